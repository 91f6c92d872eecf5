"""Rollouts in files: the same rollouts from every kind of file, each with its row, and bad rows by name."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from millstream.errors import LossWarning, MillstreamError, RecordError, SourceError
from millstream.rollouts import (
    RolloutBlock,
    RolloutChunk,
    block_of,
    content_hash,
    encode,
    holds_rollouts,
    read_rollouts,
    write_rollouts,
)
from millstream.rollouts import reads as reading
from millstream.rollouts.record import rollout_at
from millstream.tokens import CharTokenizer
from mutations import mutated
from rollouts.samples import random_rollouts

SAMPLES = random_rollouts(groups=3, size=3)
BLOCK = block_of(SAMPLES)


def plain(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in record.items()}


def lines(records: list[Any]) -> bytes:
    return b"".join(
        json.dumps(plain(record) if isinstance(record, dict) else record).encode() + b"\n" for record in records
    )


def parquet(path: Path) -> None:
    table = pyarrow.Table.from_pylist([plain(record) for record in SAMPLES])
    pyarrow.parquet.write_table(table, path, row_group_size=4)


def packed(record: dict[str, Any]) -> bytes:
    """A record whose numbers are bytes."""
    binary = {name: np.asarray(value).tobytes() for name, value in record.items() if isinstance(value, np.ndarray)}
    return bytes(msgpack.packb({**record, **binary}))


WRITERS: dict[str, Callable[[Path], Any]] = {
    "a.jsonl": lambda path: path.write_bytes(lines(SAMPLES)),
    "a.jsonl.gz": lambda path: path.write_bytes(gzip.compress(lines(SAMPLES))),
    "a.json": lambda path: path.write_text(json.dumps([plain(record) for record in SAMPLES])),
    "a.parquet": parquet,
    "a.msgpack": lambda path: path.write_bytes(b"".join(msgpack.packb(plain(record)) for record in SAMPLES)),
    "a.mpk": lambda path: path.write_bytes(b"".join(map(packed, SAMPLES))),
    "a.rollouts": lambda path: write_rollouts(path, [BLOCK.select(range(4)), BLOCK.select(range(4, 9))]),
}
SOURCES: dict[str, Callable[[], Any]] = {
    "dicts": lambda: SAMPLES,
    "iterator": lambda: iter(SAMPLES),
    "dataclasses": lambda: [rollout_at(BLOCK, row) for row in range(len(BLOCK))],
    "block": lambda: BLOCK,
    "blocks": lambda: [BLOCK.select(range(4)), BLOCK.select(range(4, 9))],
    "mixed": lambda: [*SAMPLES[:4], BLOCK.select(range(4, 7)), *SAMPLES[7:]],
}


def joined(chunks: list[RolloutChunk]) -> RolloutBlock:
    return RolloutBlock.concat([chunk.block for chunk in chunks])


@pytest.mark.parametrize("name", [*WRITERS, *SOURCES])
@pytest.mark.parametrize("most", [4, 2048])
def test_every_kind_of_file_gives_the_same_rollouts(
    name: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_RECORDS", most)
    source: Any = tmp_path / name
    if name in SOURCES:
        source = SOURCES[name]()
    else:
        WRITERS[name](source)
    chunks = list(read_rollouts(source))
    assert content_hash(joined(chunks)).tolist() == content_hash(BLOCK).tolist()
    assert [row for chunk in chunks for row in chunk.rows.tolist()] == list(range(len(BLOCK)))
    assert {chunk.file for chunk in chunks} == ({"rollouts"} if name in SOURCES else {name})


def test_a_folder_gives_all_its_files_and_passes_over_what_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("what this is")
    (tmp_path / "settings.json").write_text("{}")
    (tmp_path / "a.jsonl").write_bytes(lines(SAMPLES[:3]))
    write_rollouts(tmp_path / "b.rollouts", BLOCK.select(range(2, 9)))
    chunks = list(read_rollouts(tmp_path))
    assert [chunk.file for chunk in chunks] == ["a.jsonl", "b.rollouts"]
    assert content_hash(joined(chunks)).tolist() == content_hash(BLOCK).tolist()
    assert sum(chunk.repeated for chunk in chunks) == 1 and chunks[1].rows.tolist() == list(range(1, 7))


def test_a_folder_without_rollouts_says_so(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("what this is")
    with pytest.raises(SourceError, match="no file of rollouts"):
        list(read_rollouts(tmp_path))
    with pytest.raises(SourceError, match="no rows"):
        list(read_rollouts(tmp_path / "README.md"))


BAD: list[Any] = [SAMPLES[0], 7, {**SAMPLES[1], "loss_mask": np.ones(1)}, SAMPLES[2], {**SAMPLES[0], "reward": 9.0}]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.msgpack"])
def test_bad_rows_are_named_by_file_and_row(name: str, tmp_path: Path) -> None:
    rows = [plain(record) if isinstance(record, dict) else record for record in BAD]
    data = {"a.jsonl": lines(rows), "a.json": json.dumps(rows).encode()}
    (tmp_path / name).write_bytes(data.get(name) or b"".join(map(msgpack.packb, rows)))
    (chunk,) = read_rollouts(tmp_path / name, on_bad="skip")
    assert chunk.rows.tolist() == [0, 3]
    reasons = [bad.error.reason for bad in chunk.bad]
    assert reasons == ["not a record" if name == "a.msgpack" else "not an object", "unequal lengths", "conflicting id"]
    assert [(bad.index, bad.error.where) for bad in chunk.bad] == [(row, f"{name}:{row + 1}") for row in (1, 2, 4)]
    with pytest.raises(RecordError, match=f"{name}:2: not a"):
        list(read_rollouts(tmp_path / name))


@pytest.mark.parametrize("name", [*WRITERS])
def test_a_file_that_is_cut_gives_what_stands_before(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: -len(whole) // 5])
    chunks = list(read_rollouts(tmp_path / name, on_bad="skip"))
    bad = [bad for chunk in chunks for bad in chunk.bad]
    assert len(bad) == 1 and bad[0].error.where.startswith(f"{name}:")
    rows = [row for chunk in chunks for row in chunk.rows.tolist()]
    assert rows == list(range(len(rows))) and bad[0].index >= len(rows)
    if name not in ("a.parquet", "a.jsonl.gz"):
        assert rows
    with pytest.raises(RecordError, match=name):
        list(read_rollouts(tmp_path / name))


@pytest.mark.parametrize("name", ["a.msgpack", "a.mpk", "a.rollouts", "a.jsonl"])
@given(seed=st.integers(0, 2**63))
@examples(20)
def test_a_mutated_file_is_read_or_refused(name: str, seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / f"mutated-{name}"
    WRITERS[name](path)
    path.write_bytes(mutated(path.read_bytes(), seed))
    try:
        chunks = list(read_rollouts(path, on_bad="skip"))
    except MillstreamError:
        return
    assert all(bad.error.reason and bad.error.found for chunk in chunks for bad in chunk.bad)


def test_a_list_that_promises_too_much_is_refused_before_room_is_made(tmp_path: Path) -> None:
    (tmp_path / "a.msgpack").write_bytes(b"\x81\xa9token_ids\xdd\x10\x00\x00\x00")
    (chunk,) = read_rollouts(tmp_path / "a.msgpack", on_bad="skip")
    assert chunk.bad[0].error.reason == "damaged" and "exceeds max_array_len" in chunk.bad[0].error.found


def test_columns_that_a_file_lacks_are_bad_rows(tmp_path: Path) -> None:
    bare = {name: value for name, value in plain(SAMPLES[1]).items() if name != "values"}
    (tmp_path / "a.jsonl").write_bytes(lines([SAMPLES[0]]))
    (tmp_path / "b.jsonl").write_bytes(lines([bare]))
    with pytest.raises(RecordError, match=r"b.jsonl:1: missing column: rollout '0-1': .* values"):
        list(read_rollouts(tmp_path))


def test_writing_leaves_a_whole_file_or_none(tmp_path: Path) -> None:
    def dying() -> Any:
        yield BLOCK
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        write_rollouts(tmp_path / "a.rollouts", dying())
    assert not list(tmp_path.iterdir())
    assert write_rollouts(tmp_path / "a.rollouts", BLOCK) == 9
    assert (tmp_path / "a.rollouts").read_bytes() == encode(BLOCK)


TEXTS: list[dict[str, Any]] = [
    {"prompt": "ab", "response": "ba", "reward": 1.0},
    {"prompt": "ab", "response": "bb", "reward": 0.0, "finish": "length"},
    {"prompt": "b", "response": "a", "reward": 0.5, "id": "own", "uid": 3},
]


def test_texts_are_tokenised_counted_and_warned_of() -> None:
    with pytest.warns(LossWarning, match="token ids") as warned:
        (chunk,) = read_rollouts(TEXTS, tokenizer=CharTokenizer("ab"))
    assert len(warned) == 1 and Path(warned[0].filename) == Path(__file__)
    assert chunk.tokenized == 3
    block = chunk.block
    assert [block.of(row, "token_ids").tolist() for row in range(3)] == [[0, 1, 1, 0, 2], [0, 1, 1, 1], [1, 0, 2]]
    assert [block.of(row, "loss_mask").sum() for row in range(3)] == [3, 2, 2]
    assert block["rollout_id"].tolist() == ["row-0", "row-1", "own"] and block["prompt_len"].tolist() == [2, 2, 1]
    groups = block["group_id"].tolist()
    assert groups[0] == groups[1] and groups[2] == 3


def test_texts_that_have_no_tokens_are_bad_rows() -> None:
    with pytest.raises(RecordError, match="pass tokenizer="):
        list(read_rollouts(TEXTS))
    with pytest.warns(LossWarning):
        texts = [*TEXTS, {**TEXTS[0], "prompt": "?"}, {**TEXTS[0], "response": "\ud800"}]
        (chunk,) = read_rollouts(texts, tokenizer=CharTokenizer("ab"), on_bad="skip")
    assert [bad.index for bad in chunk.bad] == [3, 4] and len(chunk.block) == 3 == chunk.tokenized


def test_much_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_VALUES", 100)
    chunks = list(read_rollouts(map(plain, SAMPLES)))
    assert len(chunks) > 2 and content_hash(joined(chunks)).tolist() == content_hash(BLOCK).tolist()


def test_texts_beside_token_ids_are_carried_along() -> None:
    (chunk,) = read_rollouts([{**SAMPLES[0], "prompt": "1+1", "response": "2", "extra": {"env": "x"}}])
    assert chunk.block["extra"][0] == {"env": "x", "prompt": "1+1", "response": "2"} and not chunk.tokenized


def test_a_first_row_tells_rollouts_from_others() -> None:
    assert all(map(holds_rollouts, [*SAMPLES, *TEXTS]))
    others: list[dict[str, Any]] = [
        {"messages": []},
        {"prompt": "a", "chosen": "b", "rejected": "c"},
        {"input_ids": [1]},
    ]
    assert not any(map(holds_rollouts, [*others, {"prompt": "a", "response": "b"}]))


def test_a_file_that_is_no_utf_8_is_told_what_a_loader_takes(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"reward": "\xff"}\n')
    with pytest.raises(RecordError, match='on_bad="skip"') as caught:
        list(read_rollouts(tmp_path / "a.jsonl"))
    assert "encoding=" not in str(caught.value)
