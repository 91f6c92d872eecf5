"""From JSONL.zst files to tokens on disk, by everyone who does that. Run by prepare.py, each in a fresh process.

    python benchmarks/preparers.py NAME --corpus FOLDER --scratch FOLDER --tokenizer FILE --workers N

The result is one line of JSON on stdout, after the word RESULT. Imports and what a library loads once are not timed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from processes import cpu_seconds

MARK = "RESULT "
QUALITY = ["gopher_repetition", "gopher_quality", "c4_quality", "fineweb_quality"]
"""In FineWeb's order: what is dearest comes first, so that every document pays for it."""
BATCH_BYTES = 8 << 20


@dataclass(frozen=True)
class Task:
    """What is to be done, and where."""

    corpus: Path
    scratch: Path
    tokenizer: Path
    workers: int

    @property
    def files(self) -> list[Path]:
        return sorted(self.corpus.glob("*.jsonl.zst"))


@dataclass(frozen=True)
class Sample:
    """What one run showed. CPU counts all threads and processes, memory is the largest process's peak."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    tokens: int


Work = Callable[[], int]


def gigatoken_bare(task: Task) -> Work:
    """gigatoken alone: texts in memory, no ids written."""
    import numpy as np
    from gigatoken.gigatoken_rs import load_hf_json

    from corpus import texts_of
    from millstream.tokens.gigatoken import _strings

    backend = load_hf_json(task.tokenizer.read_text())
    texts = [text.encode() for path in task.files for text in texts_of(path)]
    batches, held, size = [], [], 0
    for text in texts:
        held.append(text)
        size += len(text)
        if size >= BATCH_BYTES:
            batches.append(held)
            held, size = [], 0
    batches.append(held)
    arrays = [
        _strings(np.frombuffer(b"".join(batch), np.uint8), np.cumsum([len(text) for text in batch]))
        for batch in batches
    ]
    return lambda: sum(len(backend.encode_batch(array, parallel=False).layout.content.data) for array in arrays)


def _ours(task: Task, **settings: Any) -> Work:
    from millstream import load_tokenizer, prepare

    tokenizer = load_tokenizer(task.tokenizer)
    assert getattr(tokenizer, "engine") == "gigatoken"  # noqa: B009 - asking for it proves it, before the clock starts
    out = task.scratch / "store"
    cache = task.scratch / "cache"
    return lambda: (
        prepare(task.corpus, out, tokenizer, workers=task.workers, cache_dir=cache, overwrite=True, **settings).tokens
    )


def millstream(task: Task) -> Work:
    """Ours without the cache."""
    return _ours(task, cache=False)


def millstream_cached(task: Task) -> Work:
    """Ours, filling the cache."""
    return _ours(task, cache=True)


def millstream_again(task: Task) -> Work:
    """Ours, when the cache has everything."""
    work = _ours(task, cache=True)
    work()
    return work


def millstream_filters(task: Task) -> Work:
    """Ours with quality rules and exact deduplication."""
    return _ours(task, cache=False, recipe=[*QUALITY, "exact_dedup"])


def datasets_map(task: Task) -> Work:
    """Hugging Face: load_dataset, then map with `tokenizers`."""
    import datasets
    import pyarrow.compute as pc
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(task.tokenizer))
    processes = task.workers if task.workers > 1 else None

    def encode(rows: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return {"input_ids": [each.ids for each in tokenizer.encode_batch_fast(rows["text"])]}

    def work() -> int:
        files = [str(path) for path in task.files]
        cache = str(task.scratch / "hf")
        loaded = datasets.load_dataset("json", data_files=files, split="train", cache_dir=cache, num_proc=processes)
        done = loaded.map(encode, batched=True, remove_columns=loaded.column_names, num_proc=processes)
        return int(pc.sum(pc.list_value_length(done.data.column("input_ids"))).as_py())

    return work


def _datatrove(task: Task, filters: list[Any]) -> Work:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    out = task.scratch / "tokens"
    steps = [
        JsonlReader(str(task.corpus), glob_pattern="*.jsonl.zst", compression="zstd"),
        *filters,
        DocumentTokenizer(str(out), str(task.tokenizer), eos_token="<|endoftext|>", shuffle_documents=False),
    ]
    logs = str(task.scratch / "logs")
    executor = LocalPipelineExecutor(
        steps, tasks=len(task.files), workers=task.workers, logging_dir=logs, start_method="fork"
    )

    def work() -> int:
        executor.run()
        return sum(path.stat().st_size for path in out.rglob("*.ds")) // 2

    return work


def datatrove(task: Task) -> Work:
    """datatrove: JsonlReader and DocumentTokenizer on the local executor, documents not shuffled."""
    return _datatrove(task, [])


def datatrove_filters(task: Task) -> Work:
    """datatrove with the same rules; it has no exact deduplication of documents."""
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )
    from datatrove.utils.text import split_into_sentences, split_into_words

    split_into_words("Words are loaded once.", "en")
    split_into_sentences("So are sentences.", "en")
    return _datatrove(
        task, [GopherRepetitionFilter(), GopherQualityFilter(), C4QualityFilter(), FineWebQualityFilter()]
    )


PREPARERS: dict[str, Callable[[Task], Work]] = {
    "gigatoken, bare": gigatoken_bare,
    "millstream": millstream,
    "millstream, cache on": millstream_cached,
    "millstream, again": millstream_again,
    "datasets.map": datasets_map,
    "datatrove": datatrove,
    "millstream, filters and dedup": millstream_filters,
    "datatrove, filters": datatrove_filters,
}


def measured(name: str, task: Task) -> Sample:
    """Let one of them do it."""
    shutil.rmtree(task.scratch, ignore_errors=True)
    task.scratch.mkdir(parents=True)
    work = PREPARERS[name](task)
    wall, cpu = time.perf_counter(), cpu_seconds()
    tokens = work()
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    shutil.rmtree(task.scratch, ignore_errors=True)
    return Sample(wall, cpu, peak * 1024 / 1e6, tokens)


def main() -> None:
    """Measure one and print the sample."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=PREPARERS)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--workers", type=int, required=True)
    given = parser.parse_args()
    os.environ.update({"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"})
    sample = measured(given.name, Task(given.corpus, given.scratch, given.tokenizer, given.workers))
    print(MARK + json.dumps(asdict(sample)), flush=True)


if __name__ == "__main__":
    main()
