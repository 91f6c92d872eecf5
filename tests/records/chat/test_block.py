"""From files to conversations: every row is one or a bad record with its file, line and bytes."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import SourceError
from millstream.parts import BadRecords
from millstream.records.chat import ChatRow, Conversation, Message, Options, RowParser, parse_block
from millstream.records.chat.parser import parse_row
from millstream.sources import BadRecord, Reading, discover, read_file
from sources.test_tables import write_table

CHAT = {"messages": [{"role": "user", "content": "é?"}, {"role": "assistant", "content": "4"}]}
MEANT = Conversation((Message("user", "é?"), Message("assistant", "4")))


def read(source: Any, **settings: Any) -> tuple[list[tuple[int, ChatRow]], list[BadRecord]]:
    """The rows of one source with their numbers, and what is wrong with the others."""
    (file,) = discover(source).files
    parser = RowParser()
    rows: list[tuple[int, ChatRow]] = []
    bad: list[BadRecord] = []
    for part in read_file(file, Reading(whole_rows=True, **settings)):
        parsed = parse_block(part.block, parser)
        rows += zip(part.block.rows[parsed.places].tolist(), parsed.rows, strict=True)
        bad += [*part.bad, *parsed.bad]
    return rows, sorted(bad, key=lambda each: each.row)


@pytest.mark.parametrize("chunk_bytes", [1, 60, 1 << 20])
def test_a_broken_file_gives_its_good_rows_and_the_address_of_every_bad_one(chunk_bytes: int, tmp_path: Path) -> None:
    good = json.dumps(CHAT).encode()
    lines = [good, good[:30], b"[1]", b"7", b'{"messages": "caf\xe9"}', b"", good, b'{"messages": []}', good]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))

    rows, bad = read(tmp_path / "a.jsonl", chunk_bytes=chunk_bytes)

    assert rows == [(0, MEANT), (6, MEANT), (8, MEANT)]
    reasons = ["not JSON", "not an object", "not an object", "not UTF-8", "empty conversation"]
    assert [(each.row, each.reason) for each in bad] == list(zip([1, 2, 3, 4, 7], reasons, strict=True))
    whole = (tmp_path / "a.jsonl").read_bytes()
    assert [whole[each.start : each.stop] for each in bad] == [lines[each.row] for each in bad]
    assert [each.raw for each in bad] == [lines[each.row] for each in bad]


def test_the_policy_for_bad_records_says_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(CHAT) + '\n{"messages": []}\n')
    _, bad = read(tmp_path / "a.jsonl")

    with pytest.raises(SourceError, match=r"a.jsonl:2: empty conversation: messages has no messages\n  hint: leave"):
        BadRecords("error").take("a.jsonl", bad)


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_a_table_that_pads_structs_means_what_its_rows_meant(ending: str, tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"x": {"type": "integer"}}}}]
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    rows = [
        {
            "messages": [*CHAT["messages"], asked, {"role": "tool", "content": "3", "tool_call_id": "c1"}],
            "tools": tools,
        },
        {"messages": CHAT["messages"], "tools": [{"type": "function", "function": {"name": "g", "strict": True}}]},
        CHAT,
    ]
    write_table(tmp_path / ("a" + ending), pa.Table.from_pylist(rows), 2)

    read_rows, bad = read(tmp_path / ("a" + ending))

    assert not bad
    assert read_rows == list(enumerate(parse_row(row) for row in rows))


def test_rows_at_hand_are_read_like_a_file() -> None:
    rows, bad = read([CHAT, {"messages": 7}, CHAT])

    assert rows == [(0, MEANT), (2, MEANT)]
    assert [(each.reason, each.row) for each in bad] == [("wrong type", 1)]


def test_rows_and_parsers_can_be_sent_to_another_process() -> None:
    parser = RowParser(options=Options(roles={"bot": "assistant"}))
    parser.parse(CHAT)

    again = pickle.loads(pickle.dumps(parser))

    assert again.format == "messages"
    assert pickle.loads(pickle.dumps(again.parse(CHAT))) == MEANT
