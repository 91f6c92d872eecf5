"""Real objects of Hugging Face's `datasets` are prepared like the files that hold the same rows."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream import TokenStore, prepare
from millstream.errors import SourceError
from millstream.sources import Reading, discover, format_named
from millstream.tokens import CharTokenizer
from oracles.asked import asked

pytestmark = pytest.mark.oracle
datasets = asked("datasets")

TEXTS = [f"row {number}: " + "the mill by the stream " * (number % 7) for number in range(3000)]
TOKENIZER = CharTokenizer.train(TEXTS)


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "cache"))


def whole() -> Any:
    return datasets.Dataset.from_dict({"id": range(len(TEXTS)), "text": TEXTS})


def streamed(row: dict[str, Any]) -> dict[str, str]:
    return {"text": row["text"].replace("mill", "stream")}


def rows() -> Iterator[dict[str, Any]]:
    yield from ({"text": text} for text in TEXTS)


KINDS: dict[str, Callable[[], Any]] = {
    "whole": whole,
    "shuffled": lambda: whole().shuffle(seed=7),
    "selected": lambda: whole().select(range(5, 2000, 3)),
    "sharded": lambda: whole().shard(3, 1),
    "mapped": lambda: whole().map(streamed),
    "joined": lambda: datasets.concatenate_datasets([whole().shuffle(seed=1), whole()]),
    "iterable": lambda: whole().to_iterable_dataset(num_shards=4),
    "iterable, filtered": lambda: whole().to_iterable_dataset().filter(lambda row: row["id"] % 3 == 1).map(streamed),
    "generated": lambda: datasets.IterableDataset.from_generator(rows),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_data_set_gives_the_store_of_its_rows_as_json_lines(kind: str, tmp_path: Path) -> None:
    data = KINDS[kind]()
    lines = tmp_path / "rows.jsonl"
    lines.write_text("".join(json.dumps({"text": row["text"]}) + "\n" for row in data))

    of_lines = prepare(lines, tmp_path / "lines", TOKENIZER)
    of_data = prepare(data, tmp_path / "data", TOKENIZER)

    assert (of_data.fingerprint, of_data.documents) == (of_lines.fingerprint, of_lines.documents)
    with TokenStore(tmp_path / "data") as store:
        last = store.documents - 1
        origin = store.origin_of(last)
        assert origin is not None
        assert origin.row == last


@pytest.mark.parametrize("kind", ["whole", "shuffled"])
def test_the_same_data_set_again_is_found_and_another_order_is_not(kind: str, tmp_path: Path) -> None:
    prepare(KINDS[kind](), tmp_path / "first", TOKENIZER)

    again = prepare(KINDS[kind](), tmp_path / "again", TOKENIZER)
    other = prepare(whole().shuffle(seed=8), tmp_path / "other", TOKENIZER)

    assert (again.details["parts"]["made"], other.details["parts"]["found"]) == (0, 0)


@pytest.mark.parametrize("kind", ["whole", "shuffled", "selected"])
def test_a_chunk_takes_its_own_rows_along_and_no_others(kind: str) -> None:
    (file,) = discover(KINDS[kind]()).files

    chunks = list(format_named(file.format).chunks(file, Reading(chunk_bytes=1 << 14)))

    sent = sum(len(pickle.dumps(chunk)) for chunk in chunks)
    assert sent < 1.1 * sum(chunk.data.nbytes for chunk in chunks)


def test_a_dataset_dict_is_read_if_it_has_one_split(tmp_path: Path) -> None:
    splits = datasets.DatasetDict({"train": whole().select(range(10)), "test": whole().select(range(10, 15))})

    with pytest.raises(SourceError, match="'train', 'test'"):
        prepare(splits, tmp_path / "corpus", TOKENIZER)
    del splits["test"]
    assert prepare(splits, tmp_path / "corpus", TOKENIZER).documents == 10


def test_a_column_that_holds_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"no text in 'id': it is a column of int64"):
        prepare(whole(), tmp_path / "corpus", TOKENIZER, text_field="id")
