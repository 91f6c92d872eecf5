"""`load` opens the loader of what a path holds, and a keyword that only one of them has decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream import LoaderError, MemoryFeed, PretrainDataLoader, Rollout, RolloutDataLoader, load
from millstream.feeds.spool import SpoolSource
from millstream.loaders import are_rollouts, kind_of
from millstream.rollouts import block_of, write_rollouts
from rollouts.samples import random_rollouts

RECORDS = [
    {name: value.tolist() if hasattr(value, "tolist") else value for name, value in record.items()}
    for record in random_rollouts(groups=2)
]
CHATS = [{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}]


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def spool(path: Path) -> Path:
    with SpoolSource(path, producer="engine") as source:
        source.put(RECORDS)
    return path


def test_files_of_rollouts_are_told_by_their_first_row_or_their_ending(tmp_path: Path) -> None:
    jsonl = lines(tmp_path / "a.jsonl", [*RECORDS])
    write_rollouts(tmp_path / "own.rollouts", block_of(RECORDS))
    (tmp_path / "a.json").write_text(json.dumps(RECORDS))
    (tmp_path / "folder").mkdir()
    lines(tmp_path / "folder" / "b.jsonl", RECORDS)
    sources: list[Any] = [jsonl, str(jsonl), [jsonl], tmp_path / "own.rollouts", str(tmp_path / "*.rollouts")]
    (tmp_path / "a.msgpack").write_bytes(b"".join(map(msgpack.packb, RECORDS)))
    pq.write_table(pa.Table.from_pylist(RECORDS), tmp_path / "a.parquet")
    sources += [tmp_path / name for name in ("a.json", "a.msgpack", "a.parquet", "folder")]
    sources += [RECORDS, block_of(RECORDS)]
    for source in sources:
        assert are_rollouts(source) and kind_of(source, {}) == "rollouts"
        with load(source, framework="numpy") as loader:
            assert isinstance(loader, RolloutDataLoader) and loader.next() is not None


def test_a_first_line_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("not json\n[]\n" + json.dumps(RECORDS[0]) + "\n")
    assert are_rollouts(path)


def test_dataclasses_and_single_records_are_rollouts() -> None:
    rollout = Rollout(rollout_id="a", group_id="g", token_ids=[5, 6], loss_mask=[0, 1], reward=1.0, finish="stop")
    assert kind_of([rollout], {}) == kind_of(RECORDS[0], {}) == "rollouts"


def test_feeds_are_told_by_what_they_are(tmp_path: Path) -> None:
    live = {"groups_per_batch": 2, "group_size": 4, "timeout_s": 20}
    for source in (spool(tmp_path / "spool"), MemoryFeed(), tmp_path / "new"):
        loader: Any = load(source, live=live, framework="numpy")
        assert isinstance(loader, RolloutDataLoader) and loader.is_feed
        loader.close()
    assert kind_of(tmp_path / "spool", {}) == kind_of("redis://localhost/x", {}) == "rollouts"


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({}, "rollouts"),
        ({"max_length": 64, "packing": True}, "rollouts"),
        ({"chat_template": "chatml"}, "chat"),
        ({"chunk_size": 8}, "text"),
    ],
)
def test_keywords_of_one_loader_decide_and_others_do_not(asked: dict[str, Any], kind: str) -> None:
    assert kind_of(RECORDS, asked) == kind


@pytest.mark.parametrize("asked", [{"estimator": "rloo"}, {"live": {}}, {"keep_groups": True}, {"micro_tokens": 9}])
def test_keywords_of_rollouts_decide_whatever_the_rows_are(asked: dict[str, Any]) -> None:
    assert kind_of(CHATS, asked) == "rollouts"


def test_chats_and_texts_are_what_they_were(tmp_path: Path) -> None:
    assert kind_of(CHATS, {}) == kind_of([{"text": "a"}], {"packing": True}) == "chat"
    (tmp_path / "a.txt").write_text("the mill")
    assert kind_of(tmp_path, {}) == kind_of(tmp_path / "a.txt", {}) == kind_of([{"text": "a"}], {}) == "text"
    assert not are_rollouts(tmp_path / "missing.jsonl") and not are_rollouts([7])
    assert not are_rollouts(lines(tmp_path / "empty.jsonl", []))


def test_a_loader_says_what_it_cannot_read(tmp_path: Path) -> None:
    with pytest.raises(LoaderError, match="there are no rollouts"):
        load(lines(tmp_path / "a.jsonl", []), estimator="rloo")
    with pytest.raises(Exception, match=r"missing\.rollouts"):
        load(tmp_path / "missing.rollouts")
    assert PretrainDataLoader.kind != RolloutDataLoader.kind
