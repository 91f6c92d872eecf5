"""Of a file that grows, only what is new is read; nothing is lost, and nothing comes twice."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.sources import GrowingLines, Reading


def texts(growing: GrowingLines, path: Path) -> list[str]:
    return [record.text for read in growing.read(path) for record in read.block]


@given(st.lists(st.text(min_size=1, max_size=9), max_size=9), st.lists(st.integers(0, 400), max_size=6))
def test_a_file_cut_anywhere_and_completed_gives_each_text_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("growing") / "a.jsonl"
    whole = "".join(json.dumps({"text": line}) + "\n" for line in lines).encode()
    began = Counter[str]()
    growing = GrowingLines(lambda reason: began.update([reason]), Reading(chunk_bytes=16))
    came = []
    for stop in [*sorted(cuts), len(whole)]:
        with path.open("ab") as file:
            file.write(whole[path.stat().st_size : stop])
        came += texts(growing, path)

    assert came == lines and not began


def test_rows_count_from_the_start_of_the_file(tmp_path: Path) -> None:
    path, growing = tmp_path / "a.jsonl", GrowingLines(lambda reason: None)
    path.write_text('{"text": "one"}')
    assert texts(growing, path) == ["one"]
    with path.open("a") as file:
        file.write('\n{"text": "two"}\nnull\n')

    reads = list(growing.read(path))
    assert [record.row for read in reads for record in read.block] == [1]
    assert [bad.row for read in reads for bad in read.bad] == [2]


def test_a_member_that_is_added_to_a_packed_file_is_read_alone(tmp_path: Path) -> None:
    path, growing = tmp_path / "a.jsonl.gz", GrowingLines(lambda reason: None)
    for text in ("one", "two"):
        with path.open("ab") as file:
            file.write(gzip.compress(json.dumps({"text": text}).encode() + b"\n"))
        assert texts(growing, path) == [text]


@pytest.mark.parametrize("change", ["cut", "written over", "replaced"])
def test_a_file_that_is_another_one_begins_again_and_is_counted(tmp_path: Path, change: str) -> None:
    path, counted = tmp_path / "a.jsonl", Counter[str]()
    growing = GrowingLines(lambda reason: counted.update([reason]))
    path.write_text('{"text": "one"}\n{"text": "two"}\n')
    texts(growing, path)
    new = {"cut": ["one"], "written over": ["six", "ten"], "replaced": ["one", "two", "three"]}[change]
    content = "".join(f'{{"text": "{text}"}}\n' for text in new)
    if change == "replaced":
        (tmp_path / "new").write_text(content)
        (tmp_path / "new").replace(path)
    else:
        path.write_text(content)

    assert texts(growing, path) == new and counted == {"begun anew": 1}


def test_what_cannot_be_read_is_bad_and_what_is_gone_is_not(tmp_path: Path) -> None:
    growing = GrowingLines(lambda reason: None)
    (tmp_path / "folder.jsonl").mkdir()

    assert list(growing.read(tmp_path / "gone.jsonl")) == []
    assert [bad.reason for read in growing.read(tmp_path / "folder.jsonl") for bad in read.bad] == ["unreadable"]
