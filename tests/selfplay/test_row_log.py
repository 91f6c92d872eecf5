"""The rows of every step can be looked up; what is damaged or missing is said, and costs only itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from millstream.errors import ClosedError, LoaderError, StoreError
from millstream.games import ORIGIN
from millstream.selfplay import RowLog, StepRows
from millstream.selfplay.row_log import REMEMBERED, STEP, RankConsistencyCheck


def step(number: int, rows: int = 3) -> StepRows:
    origins = np.zeros(rows, ORIGIN)
    origins["chunk"] = number
    return StepRows(origins, batch_size=2, epoch=number // 4)


def filled(folder: Path | None, steps: int) -> RowLog:
    log = RowLog(folder)
    for number in range(steps):
        log.append(step(number, 1 + number % 3))
    return log


def test_steps_are_found_again_by_the_next_process(tmp_path: Path) -> None:
    filled(tmp_path, 6).close()
    log = RowLog(tmp_path, 4)
    assert len(log) == 4
    log.append(step(9))
    assert [int(log[number].origins["chunk"][0]) for number in range(5)] == [0, 1, 2, 3, 9]
    assert (log[3].epoch, log[4].epoch, log[4].of_rank(1)["chunk"].tolist()) == (0, 2, [9])
    with pytest.raises(LoaderError, match="not made yet"):
        log[5]
    log.close()
    with pytest.raises(ClosedError):
        log.append(step(5))


@pytest.mark.parametrize("size", [0, 20, 16 * 5])
@pytest.mark.parametrize("name", ["rows.bin", "rows.idx"])
def test_a_log_that_is_shorter_than_the_state_is_named_and_goes_on_with_what_is_whole(
    tmp_path: Path, name: str, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path, 6).close()
    with (tmp_path / name).open("r+b") as file:
        file.truncate(size)
    log = RowLog(tmp_path, 5)
    assert f"{name}: the rows of" in caplog.text
    caplog.clear()
    log.append(step(5))
    assert log[5].origins["chunk"].tolist() == [5, 5, 5]
    with pytest.raises(LoaderError, match="forgotten"):
        log[3]
    kept = {0: 0, 20: int(name == "rows.bin"), 80: 2}[size]
    assert [int(log[number].origins["chunk"][0]) for number in range(kept)] == list(range(kept))
    log.close()
    again = RowLog(tmp_path, 6)
    assert again[5].origins["chunk"].tolist() == [5, 5, 5]


def test_an_entry_that_is_damaged_costs_its_own_rows_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path, 6).close()
    data = bytearray((tmp_path / "rows.idx").read_bytes())
    data[2 * STEP.itemsize + 5] ^= 1  # how far the rows of step 2 go
    (tmp_path / "rows.idx").write_bytes(data)
    log = RowLog(tmp_path, 6)
    assert "rows.idx: the rows of 1 of the first 6 steps" in caplog.text
    assert [int(log[number].origins["chunk"][0]) for number in (0, 1, 4, 5)] == [0, 1, 4, 5]
    with pytest.raises(StoreError, match="step 2 is damaged"):
        log[2]


def test_rows_of_the_last_step_that_are_damaged_are_named_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path, 3).close()
    data = bytearray((tmp_path / "rows.bin").read_bytes())
    data[-1] ^= 1
    (tmp_path / "rows.bin").write_bytes(data)
    RowLog(tmp_path, 3).close()
    assert "rows.bin: the rows of step 2 are damaged" in caplog.text


def test_damaged_rows_are_not_believed(tmp_path: Path) -> None:
    log = filled(tmp_path, 3)
    data = bytearray((tmp_path / "rows.bin").read_bytes())
    data[-1] ^= 1
    (tmp_path / "rows.bin").write_bytes(data)
    assert log[1].origins["chunk"][0] == 1
    with pytest.raises(StoreError, match="step 2 are damaged"):
        log[2]


def test_without_a_folder_only_the_last_steps_are_remembered() -> None:
    log = filled(None, REMEMBERED + 5)
    assert log.oldest_chunk == 5
    with pytest.raises(LoaderError, match="forgotten"):
        log[4]


@pytest.mark.parametrize("end", [0, 10**9, 2**64 - 1])
def test_an_index_that_is_damaged_is_named_and_costs_its_step(tmp_path: Path, end: int) -> None:
    filled(tmp_path, 6).close()
    entries = np.fromfile(tmp_path / "rows.idx", STEP)
    entries["end"][4] = end
    entries.tofile(tmp_path / "rows.idx")
    log = RowLog.recorded(tmp_path)

    with pytest.raises(StoreError, match=r"rows\.idx: the entry of step 4 is damaged"):
        log[4]
    assert int(log[3].origins["chunk"][0]) == 3
    log.close()


def test_no_bit_of_the_index_can_flip_without_being_noticed(tmp_path: Path) -> None:
    filled(tmp_path, 4).close()
    index = (tmp_path / "rows.idx").read_bytes()
    for bit in range(8 * STEP.itemsize, 8 * 2 * STEP.itemsize):  # of step 1
        damaged = bytearray(index)
        damaged[bit // 8] ^= 1 << bit % 8
        (tmp_path / "rows.idx").write_bytes(damaged)
        log = RowLog.recorded(tmp_path)

        with pytest.raises(StoreError, match=r"rows\.idx: the entry of step 1 is damaged") as told:
            log[1]
        assert told.value.hint
        assert [(log[number].epoch, int(log[number].origins["chunk"][0])) for number in (0, 3)] == [(0, 0), (0, 3)]
        log.close()


def test_the_index_is_written_as_ever(tmp_path: Path) -> None:
    log = RowLog(tmp_path)
    for number in range(3):
        origins = np.zeros(number + 1, ORIGIN)
        origins["chunk"] = number
        log.append(StepRows(origins, batch_size=2, epoch=number // 2))
    log.close()

    assert (tmp_path / "rows.idx").read_bytes().hex() == (
        "0100000000000000327c241615f709af0200000000000000a24899002b3bec85"
        "03000000000000002540721b40d92dd80200000000000000e86c23257192e396"
        "0600000000000000dafaeef5135b243c020000000100000054dea50803631ed4"
    )


def test_a_damaged_entry_of_the_first_rank_is_not_taken_for_other_rows(tmp_path: Path) -> None:
    filled(tmp_path, 3).close()
    index = tmp_path / "rows.idx"
    data = bytearray(index.read_bytes())
    data[STEP.itemsize + 9] ^= 1  # the hash of step 1
    index.write_bytes(data)
    same = RankConsistencyCheck(tmp_path)
    for number in range(3):
        same.check(number, step(number, 1 + number % 3).origins)

    with pytest.raises(LoaderError, match="step 2 has other rows"):
        RankConsistencyCheck(tmp_path).check(2, step(9).origins)


def test_an_entry_that_is_still_being_written_is_compared_when_it_is_whole(tmp_path: Path) -> None:
    filled(tmp_path, 2).close()
    index = tmp_path / "rows.idx"
    whole = index.read_bytes()
    same = RankConsistencyCheck(tmp_path)
    for size in (STEP.itemsize, STEP.itemsize + 24):
        index.write_bytes(whole[:size].ljust(2 * STEP.itemsize, b"\0") if size % STEP.itemsize else whole[:size])
        same.check(1, step(9).origins)
    index.write_bytes(whole)
    with pytest.raises(LoaderError, match="step 1 has other rows"):
        same.check(1, step(9).origins)
