"""Records of one width: each is found by its number, and damage costs only the record that it hit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from millstream.storage import RecordLog, are_whole, record_type, records_of

KIND = record_type(("start", "<i8"), ("stop", "<i8"))


def written(path: Path, count: int) -> Path:
    with RecordLog(path, KIND) as log:
        log.write(0, records_of(KIND, *((10 * number, 10 * number + 10) for number in range(count))))
    return path


def test_records_are_found_by_their_numbers_and_written_anywhere(tmp_path: Path) -> None:
    path = written(tmp_path / "log", 5)
    with RecordLog(path, KIND) as log:
        log.write(2, records_of(KIND, (7, 8)))
        log.cut(4)
        log.sync()
    with RecordLog(path, KIND, writes=False) as log:
        assert len(log) == 4
        assert log.read()["start"].tolist() == [0, 10, 7, 30]
        assert log.read(3, 5)["stop"].tolist() == [40]
        assert len(log.read(9)) == 0
        assert are_whole(log.read()).all()


def test_a_log_that_is_only_read_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RecordLog(tmp_path / "log", KIND, writes=False)


def test_no_bit_can_flip_without_being_noticed(tmp_path: Path) -> None:
    path = written(tmp_path / "log", 3)
    data = path.read_bytes()
    for bit in range(8 * KIND.itemsize, 8 * 2 * KIND.itemsize):  # of record 1
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with RecordLog(path, KIND, writes=False) as log:
            assert are_whole(log.read()).tolist() == [True, False, True]


@pytest.mark.parametrize("size", range(KIND.itemsize))
def test_a_torn_record_is_none_and_is_written_over(tmp_path: Path, size: int) -> None:
    path = written(tmp_path / "log", 3)
    path.write_bytes(path.read_bytes()[: 2 * KIND.itemsize + size])
    with RecordLog(path, KIND) as log:
        assert len(log) == len(log.read()) == 2
        log.cut(len(log))
        log.write(len(log), records_of(KIND, (20, 30)))
        assert are_whole(log.read()).tolist() == [True, True, True]


def test_zeros_are_no_record() -> None:
    assert not are_whole(np.zeros(1, KIND)).any()


def test_fields_that_fill_no_whole_words_are_refused() -> None:
    with pytest.raises(ValueError, match="4 bytes, not whole words"):
        record_type(("start", "<u4"))
