"""What goes wrong with the parts of a stream: each is made again, or there is an error; rows are never other ones."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from laws.case import Case, Row, Team, digest
from laws.faults import WORK, stream_on
from laws.raw_files import RawFiles, small_steps
from laws.stream_kinds import Stream, example
from laws.test_faults import STUCK_S, RefusingDisk, _check_full, _context
from millstream.errors import MillstreamError
from millstream.streams import stored_parts


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:
    with small_steps():
        yield


def team(folder: Path, data: Stream | None = None, **how: Any) -> Team:
    return Team(Case(data or example(), WORK, 6, 0), folder, **how)


def epochs(run: Team, count: int = 2) -> list[Row]:
    return [row for _ in range(count) for row in run.epoch()]


def parts_in(folder: Path, suffix: str) -> list[Path]:
    """The files of parts that hold something."""
    return sorted(path for path in folder.glob(f"streams/*/*{suffix}") if path.with_suffix(".bin").stat().st_size > 64)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    with small_steps(), team(tmp_path_factory.mktemp("whole")) as run:
        return epochs(run)


# Damage


def flipped(path: Path, place: float) -> None:
    """Change one byte of a file."""
    data = bytearray(path.read_bytes())
    data[min(int(place * len(data)), len(data) - 1)] ^= 0x40
    path.write_bytes(data)


def cut(path: Path, place: float) -> None:
    """Leave only the front of a file."""
    path.write_bytes(path.read_bytes()[: int(place * path.stat().st_size)])


def gone(path: Path, place: float) -> None:
    """Remove a file."""
    path.unlink()


@pytest.mark.parametrize("suffix", [*stored_parts.SUFFIXES, ".json"])
@pytest.mark.parametrize("harm", [flipped, cut, gone], ids=lambda harm: str(harm.__name__))
def test_a_part_that_was_damaged_at_rest_is_made_again(
    harm: Callable[[Path, float], None], suffix: str, tmp_path: Path, expected: list[Row]
) -> None:
    with team(tmp_path) as run:
        epochs(run, 1)
    places = [0.0, 0.3, 0.6, 0.99]
    harmed = parts_in(tmp_path, suffix)
    for number, path in enumerate(harmed):
        harm(path, places[number % len(places)])
    with team(tmp_path) as run:
        assert epochs(run) == expected
        told = [origin for step in range(run.loaders[0].step) for origin in run.loaders[0].explain(step)]
        for origin, row in zip(told, expected, strict=True):
            run.data.check_origin(run.loaders[0], origin, row)
        assert run.loaders[0].get_profiling_results()["parts"]["data"]["made"] >= len(harmed)


def test_a_log_of_windows_that_was_damaged_is_counted_again(tmp_path: Path, expected: list[Row]) -> None:
    with team(tmp_path) as run:
        epochs(run, 1)
    (log,) = tmp_path.glob("streams/*/*.log")
    whole = log.read_bytes()
    for place in range(0, len(whole), 5):
        log.write_bytes(bytes([*whole[:place], whole[place] ^ 0x40, *whole[place + 1 :]]))
        with team(tmp_path) as run:
            assert epochs(run) == expected


@pytest.mark.parametrize("place", ["cache", "limited"])
@pytest.mark.parametrize("suffix", [*stored_parts.SUFFIXES, ".json"])
def test_parts_that_are_removed_while_they_are_used_are_made_again(
    suffix: str, place: Any, tmp_path: Path, expected: list[Row]
) -> None:
    with team(tmp_path, example(place)) as run:
        (loader,), found = run.loaders, list[Row]()
        while len(found) < len(expected):
            for path in tmp_path.glob(f"streams/*/*{suffix}"):
                path.unlink(missing_ok=True)
            found += run.step()
            step = loader.step - 1
            for origin, row in zip(loader.explain(step), found[-len(loader.explain(step)) :], strict=True):
                run.data.check_origin(loader, origin, row)
    assert found == expected


# A full disk


def test_a_disk_that_is_full_at_any_operation_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    data = Stream(RawFiles((("jsonl", (1, 4)), ("jsonl.gz", (2, 3)))), 64)
    with team(tmp_path / "whole", data) as run:
        expected = epochs(run)
    operations = full_at(1 << 60, data, tmp_path / "counted", expected)
    assert operations > 30
    for limit in range(1, operations + 1):
        full_at(limit, data, tmp_path / str(limit), expected)


def full_at(limit: int, data: Stream, folder: Path, expected: list[Row]) -> int:
    """Run two epochs on a disk that is full at one operation, and a run after it; gives how many operations it took."""
    disk, found, refused = RefusingDisk(folder, limit), list[Row](), 0
    with pytest.MonkeyPatch.context() as patch:
        disk.install(patch)
        run: Team | None = None
        while len(found) < len(expected):
            try:
                run = run or team(folder, data)
                found += run.step()
            except MillstreamError as error:
                _check_full(error)
                refused += 1
        assert run is not None
        run.__exit__()
    assert found == expected and refused <= 1, limit
    with team(folder, data) as again:
        assert epochs(again) == expected, limit
    return disk.count


# Processes that share a cache


def test_processes_that_share_a_cache_make_each_part_once(tmp_path: Path, expected: list[Row]) -> None:
    processes = [_context.Process(target=stream_on, args=(tmp_path, rank)) for rank in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(STUCK_S)
        assert process.exitcode == 0
    told = [(tmp_path / f"done {rank}").read_text().split() for rank in range(3)]
    assert {each[0] for each in told} == {digest(expected)}
    assert sum(int(each[1]) for each in told) == len([*tmp_path.glob("cache/streams/*/*.json")])


@pytest.mark.parametrize("parts", [1, 8])
def test_a_process_that_is_killed_while_it_makes_parts_leaves_whole_ones_and_no_lock(
    parts: int, tmp_path: Path, expected: list[Row]
) -> None:
    """Another one that shares the cache meanwhile does not wait for it; a third makes the rest."""
    killed = _context.Process(target=stream_on, args=(tmp_path, 0))
    killed.start()
    while killed.exitcode is None and len([*tmp_path.glob("cache/streams/*/*.bin")]) < parts:
        killed.join(0.001)
    other = _context.Process(target=stream_on, args=(tmp_path, 1))
    other.start()
    killed.kill()
    killed.join(STUCK_S)
    assert killed.exitcode in (0, -signal.SIGKILL)
    other.join(STUCK_S)
    assert other.exitcode == 0 and (tmp_path / "done 1").read_text().split()[0] == digest(expected)
    with team(tmp_path / "cache") as run:
        assert epochs(run) == expected
        assert run.loaders[0].get_profiling_results()["parts"]["data"]["made"] == 0


def test_bad_records_are_counted_and_kept_aside_once_whoever_makes_their_part(tmp_path: Path) -> None:
    data = example().spoiled()
    for _ in range(2):
        with team(tmp_path, data, on_bad="quarantine") as run:
            assert data.kept_units(run.epoch()) + data.lost_units([run.loaders[0].losses]) == data.given_units()
    aside = [*tmp_path.glob("streams/*/*.quarantine.jsonl*")]
    assert aside and replace(data, place="memory").given_units() == data.given_units()
