"""Windows of a stream: rows across their borders, empty ones, gaps, and the store that shows some of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from laws import examples
from millstream.errors import SourceError
from millstream.sources import Reading, discover
from millstream.streams import KeptInMemory, KeptOnDisk, PartMaker, StreamPlan, StreamWindows, Units, WindowStarts
from millstream.streams.windows import GAP, Pass
from streams.files import TOKENIZER, job

LENGTH = 7


def windows_of(
    folder: Path, sizes: Sequence[int], *, kept: Any = None, starts: Any = None, **how: Any
) -> StreamWindows:
    """Windows over files of so many tokens, each a unit; a file of no tokens holds a blank line."""
    folder.mkdir(exist_ok=True)
    for number, size in enumerate(sizes):
        text = json.dumps({"text": "abcdefghijklmnopqrstuvwxyz"[number % 26] * (size - 1)}) if size > 1 else ""
        (folder / f"{number:03d}.jsonl").write_text(f"{text:<200}\n")
    reading = Reading(chunk_bytes=max(201, *((folder / f"{n:03d}.jsonl").stat().st_size for n in range(len(sizes)))))
    units = Units(discover(folder).files, reading)
    assert units.count == len(sizes)
    plan = StreamPlan(units, shuffle="none", seed=0, name="data")
    maker = PartMaker(units, job(reading), kept or KeptInMemory(), threads=1)
    return StreamWindows(plan, maker, starts or WindowStarts(plan.windows), length=LENGTH, **how)


def truth(sizes: Sequence[int]) -> list[int]:
    tokens: list[int] = []
    for number, size in enumerate(sizes):
        if size > 1:
            tokens += [*TOKENIZER.encode("abcdefghijklmnopqrstuvwxyz"[number % 26] * (size - 1)), TOKENIZER.eos_id]
    return tokens


def read(windows: StreamWindows, place: int, tokens: list[int]) -> None:
    """Insist that a window shows the tokens of all its rows, and that their documents are where they were."""
    first, stop = windows.first_row(place), windows.first_row(place + 1)
    assert first is not None and stop is not None
    view = windows.view(Path("x"), [place])
    for row in range(first, stop):
        begin, end = row * LENGTH, min((row + 1) * LENGTH + 1, len(tokens))
        assert view.store.read(begin, end).tolist() == tokens[begin:end]


sizes = st.lists(st.sampled_from([0, 2, 3, 6, 8, 20, 50]), min_size=1, max_size=24)


@given(sizes=sizes, padded=st.booleans())
@examples(25)
def test_rows_of_all_windows_are_the_rows_of_all_tokens_end_to_end(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], padded: bool
) -> None:
    """Also where a row ends in the next window, or in one behind it, and where windows are empty."""
    tokens = truth(sizes)
    inputs = max(0, len(tokens) - 1)
    rows = -(-inputs // LENGTH) if padded else inputs // LENGTH
    assume(rows > 0)
    windows = windows_of(tmp_path_factory.mktemp("units"), sizes, padded=padded)
    counted, taken = windows.rows, 0
    assert counted is None
    while taken < rows:
        windows.make(0, taken, 1)
        count = windows.count(0, taken)
        if count == 0:
            assert windows.rows == rows, "it came back with nothing but the number of all rows"
            windows.make(0, taken, 1)
            count = windows.count(0, taken)
        assert count > 0
        for each in windows.ready:
            read(windows, each.window, tokens)
        taken += count
    if windows.rows is None:
        windows.make(0, rows - 1, 2)  # it may come back when all rows are counted
    windows.make(0, rows - 1, 2)  # the epoch after it, too
    assert windows.rows == rows and windows.starts.tokens == len(tokens)
    assert windows.count(0, rows - 1) >= 2 and windows.ready[-1].epoch >= 1
    order = windows.order(windows.starts.known)
    assert order.samples == rows and order.gaps == ()
    firsts = np.cumsum([0, *order.bins])
    for row in range(rows):
        window = windows.window_at(row)
        assert firsts[window] <= row < firsts[window + 1]
    windows.close()


def test_a_run_that_begins_in_the_middle_makes_what_it_needs_and_nothing_before(tmp_path: Path) -> None:
    sizes = [20] * 24  # windows of 2, 2, 4, 4, 8, 4 units
    tokens = truth(sizes)
    starts = WindowStarts(6)
    starts.learn(4, 240, counted=False)
    windows = windows_of(tmp_path / "raw", sizes, starts=starts, ahead=0)
    windows.make(0, 40, 5)
    assert windows.ready == [Pass(0, 4)] and windows.count(0, 40) == 58 - 40
    assert windows.maker.made <= 8 + 1, "the window, and the unit in which its last row ends"
    order = windows.order(windows.starts.known)
    assert order.bins[:5] == (0, 0, 0, 35, 23) and order.gaps == (3,)
    view = windows.view(tmp_path, [4])
    assert view.units[0] == GAP and len(view.store) == 420
    assert view.store.read(240, 407).tolist() == tokens[240:407]
    windows.close()


def test_documents_are_found_by_unit_and_place_and_back(tmp_path: Path) -> None:
    windows = windows_of(tmp_path / "raw", [20, 0, 9, 30, 12, 12])
    windows.make(0, 0, 5)
    view = windows.view(tmp_path, [0, 1])
    for unit in (0, 2, 3):
        document = view.document_at(unit, 0)
        assert document is not None and view.place_of(document) == (unit, 0)
        origin = view.store.origin_of(document)
        assert origin is not None and origin.file == f"{unit:03d}.jsonl"
    assert view.document_at(1, 0) is None and view.document_at(0, 1) is None
    windows.close()


def test_windows_are_in_use_one_after_another_and_the_others_are_dropped(tmp_path: Path) -> None:
    sizes = [20] * 56
    windows = windows_of(tmp_path / "raw", sizes, ahead=1)
    held, row = [], 0
    for epoch in range(2):
        row = 0
        while windows.rows is None or row < windows.rows:
            windows.make(epoch, row, 1)
            windows.want_next()
            row += windows.count(epoch, row)
            held.append(windows.maker.kept.held_bytes)
            if windows.rows is not None and row >= windows.rows:
                break
    one = windows.maker.wait(windows.plan.units_of(0)[0]).bytes
    assert max(held) <= (16 + 16 + 1) * one, "two windows, and the unit in which the last row ends"
    windows.close()


def test_a_limit_keeps_the_windows_that_come_next(tmp_path: Path) -> None:
    """And a process that shares the cache finds them."""
    sizes = [20] * 24
    kept = KeptOnDisk(tmp_path / "parts")
    windows = windows_of(tmp_path / "raw", sizes, kept=kept, ahead=1)
    windows.make(0, 0, 400 // LENGTH)
    windows.want_next()
    part = sum(path.stat().st_size for path in (tmp_path / "parts").glob("00000000.*"))
    kept.limit = 8 * part
    windows.make(0, 6, 1)  # in the second window
    windows.want_next()
    there = {unit for unit in range(24) if kept.find(unit)}
    assert {*windows.plan.units_of(1), *windows.plan.units_of(2)} <= there
    assert not there & set(windows.plan.units_of(0)), "which was used last, and is needed last"
    windows.close()


def test_what_parts_lack_is_counted_once_however_often_they_are_made(tmp_path: Path) -> None:
    sizes = [20, 0, 20, 20, 0, 20, 20, 20, 20]
    windows = windows_of(tmp_path / "raw", sizes, ahead=0)
    for epoch in range(3):
        windows.make(epoch, 0, 10)
    assert windows.left_out == {"blank line": 2}
    windows.close()


def test_ids_beyond_the_model_are_refused_also_in_parts_that_were_found(tmp_path: Path) -> None:
    kept = KeptOnDisk(tmp_path / "parts")
    windows_of(tmp_path / "raw", [20] * 4, kept=kept).make(0, 0, 1)
    windows = windows_of(tmp_path / "raw", [20] * 4, kept=kept, id_limit=5)
    with pytest.raises(SourceError, match="has 5 ids"):
        windows.make(0, 0, 1)
    assert windows.maker.made == 0
    windows.close()


def test_parts_that_are_gone_are_made_again(tmp_path: Path) -> None:
    kept = KeptOnDisk(tmp_path / "parts")
    windows = windows_of(tmp_path / "raw", [20] * 8, kept=kept, ahead=0)
    windows.make(0, 0, 3)
    tokens, made = truth([20] * 8), windows.maker.made
    assert made >= 3
    for path in (tmp_path / "parts").iterdir():
        path.unlink()
    windows.forget()
    windows.make(0, 0, 3)
    assert windows.maker.made == 2 * made, "each of them again"
    read(windows, 0, tokens)
    windows.close()


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_that_share_a_cache_begin_at_different_parts(tmp_path: Path, ranks: int) -> None:
    wanted: list[list[int]] = []
    for rank in range(ranks):
        windows = windows_of(tmp_path / "raw", [20] * 24, first=(rank, ranks), ahead=0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(windows.maker, "want", lambda units, **_: wanted.append(units))
            windows._want(Pass(0, 4), 1)
        windows.close()
    assert len({units[0] for units in wanted}) == ranks
    assert all(sorted(units) == windows.plan.units_of(4) for units in wanted)
