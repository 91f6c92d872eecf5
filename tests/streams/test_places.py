"""Places of a stream that are known and those that are not, and what is interrupted on the way to one."""

from __future__ import annotations

import json
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from laws.raw_files import RawFiles
from laws.stream_kinds import Stream, example
from millstream import MixedDataLoader, UnknownLength
from millstream.errors import ClosedError
from millstream.loaders.growing import StreamSource
from millstream.loaders.runs.growing_source import Growing
from millstream.streams import KeptInMemory, Pass, StreamWindows, View
from millstream.streams.slots import SlotReader

LARGE = Stream(RawFiles((("jsonl", (5,) * 3000),)), 400)
"""More than is made ahead, however long a run waits."""


def opened(folder: Path, place: Any = "cache", data: Stream | None = None, **how: Any) -> Any:
    data = replace(data, place=place) if data else example(place)
    return data.open(folder, **{"batch_size": 3, "seed": 9, **how})


def windows_of(loader: Any) -> StreamWindows:
    windows: StreamWindows = loader._run.growing.sources["data"].windows
    return windows


def test_a_mixture_whose_epochs_have_a_size_knows_their_length_before_its_streams_are_counted(tmp_path: Path) -> None:
    with opened(tmp_path, "memory", name="web") as web:  # nothing is known of what another run has counted
        given: dict[str, Any] = {"framework": "numpy", "batch_size": 5}
        with MixedDataLoader({"web": (web, 1.0)}, epoch_size=12, **given) as mixed:
            assert mixed.get_num_batches() == len(list(mixed)) == 3
        with MixedDataLoader({"web": (web, 1.0)}, **given) as mixed, pytest.raises(UnknownLength):
            mixed.get_num_batches()


def test_a_mixture_knows_the_length_of_an_epoch_that_has_ended(tmp_path: Path) -> None:
    """Also while a source that is longer is not counted."""
    short = Stream(RawFiles((("jsonl", (2,) * 3),))).open(tmp_path, name="short")
    long = Stream(RawFiles((("jsonl", (5,) * 200),)), 400).open(tmp_path, name="long")
    with MixedDataLoader({"short": (short, 1.0), "long": (long, 1.0)}, mix_block=2, framework="numpy") as mixed:
        steps = len(list(mixed))
        assert mixed.get_num_batches() == steps == len(list(mixed))


def test_the_present_step_and_the_one_behind_known_rows_can_be_sought(tmp_path: Path) -> None:
    with opened(tmp_path, data=LARGE) as loader:
        loader.seek(0)
        rows = [loader.next().input_ids.tolist() for _ in range(4)]
        loader.seek(4)
        loader.seek(1)
        assert loader.next().input_ids.tolist() == rows[1]
        with pytest.raises(UnknownLength):
            loader.seek(10**6)
        assert loader.step == 2
        state = json.loads(json.dumps(loader.state_dict()))
    with opened(tmp_path, "memory", LARGE) as loader:
        loader.load_state_dict(state)
        loader.seek(2)
        assert loader.next().input_ids.tolist() == rows[2]


def test_a_row_of_a_window_that_is_not_known_is_not_explained(tmp_path: Path) -> None:
    """Whether it is to come, or came before a run in memory was resumed."""
    with opened(tmp_path, data=LARGE, batch_size=1) as loader:
        source = windows_of(loader)
        loader.next()
        frontier = source.first_row(source.ready[-1].window + 1)
        with pytest.raises(UnknownLength):
            loader.explain(frontier)
        for _ in range(500):
            loader.next()
        assert source.window_at(loader.step) > 1
        state = json.loads(json.dumps(loader.state_dict()))
        told = loader.explain(501)
    with opened(tmp_path, "memory", LARGE, batch_size=1) as loader:
        loader.load_state_dict(state)
        with pytest.raises(UnknownLength):
            loader.explain(0)
        loader.next()
        assert loader.explain(501) == told


def test_documents_of_the_tail_have_the_steps_in_which_they_begin(tmp_path: Path) -> None:
    with opened(tmp_path) as loader:
        steps = len(list(loader))
        windows, found = windows_of(loader), 0
        for unit in range(windows.plan.units.count):
            for place in range(windows._part(unit).documents):
                found += 1
                assert all(steps <= step < 2 * steps for step in loader.steps_of(unit << 32 | place))
        assert found == len(example().raw.documents)


def test_a_document_whose_last_rows_are_not_known_has_no_steps_yet(tmp_path: Path) -> None:
    with opened(tmp_path, data=LARGE, batch_size=1) as loader:
        loader.next()
        windows = windows_of(loader)
        unit = windows.plan.units_of(windows.ready[-1].window + 1)[0]
        with pytest.raises(UnknownLength):
            loader.steps_of(unit << 32)


def is_lost(view: View) -> bool:
    return view.is_lost


def test_a_part_that_was_dropped_and_made_again_is_noticed(tmp_path: Path) -> None:
    with opened(tmp_path) as loader:
        loader.next()
        source: StreamSource = loader._run.growing.sources["data"]
        view = source._view
        assert not is_lost(view)
        path = Path(source.windows.maker.kept.paths(next(iter(view.stamps)))[0])
        data = path.read_bytes()
        beside = path.with_name("beside")
        beside.write_bytes(data)
        beside.replace(path)
        assert is_lost(view)
        path.unlink()
        assert is_lost(view)


def test_a_part_in_memory_that_is_just_being_made_is_not_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was wanted, is wanted no more, is finished meanwhile, and is wanted again."""
    with opened(tmp_path, "memory") as loader:
        windows, keep = windows_of(loader), KeptInMemory.keep
        make, begun, goes_on = windows.maker._obtain, threading.Event(), threading.Event()

        def slow(units: list[int]) -> Any:
            begun.set()
            assert goes_on.wait(60)
            return make(units)

        def late(kept: KeptInMemory, *arguments: Any) -> list[object]:
            goes_on.set()
            for unit in windows.maker.held & set(windows.plan.units_of(0)):
                windows.maker.wait(unit)
            return keep(kept, *arguments)

        monkeypatch.setattr(windows.maker, "_obtain", slow)
        windows._want(Pass(0, 0), 2)
        assert begun.wait(60)
        monkeypatch.setattr(KeptInMemory, "keep", late)
        windows._want(Pass(0, windows.plan.windows - 1), 1)
        windows._want(Pass(0, 0), 2)
        windows._finish(0)
        assert len(windows.view(tmp_path, [0]).store) >= (windows.starts.token(1) or 0) > 0


def test_a_part_of_a_loader_that_was_closed_meanwhile_is_said_to_be_closed() -> None:
    with pytest.raises(ClosedError):
        KeptInMemory().paths(3)


@pytest.mark.parametrize("place", ["cache", "memory"])
@pytest.mark.parametrize(
    ("owner", "name"),
    [(SlotReader, "announce"), (StreamSource, "_member"), (Growing, "_replace"), (Growing, "counted")],
)
def test_an_interrupted_wait_for_more_rows_is_taken_up_again(
    owner: type, name: str, place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes while parts are wanted, when they are there, and when the run is to count with them."""
    with opened(tmp_path / "whole", place) as loader:
        expected = [loader.next().input_ids.tolist() for _ in range(400)]
    real, calls, heard = getattr(owner, name), [0], 0

    def interrupted(*arguments: Any, **how: Any) -> Any:
        calls[0] += 1
        if calls[0] % 3 == 1:
            signal.raise_signal(signal.SIGINT)
        return real(*arguments, **how)

    found: list[Any] = []
    with opened(tmp_path / "run", place) as loader:
        monkeypatch.setattr(StreamSource, "_want_next", lambda _: None)  # a thread would want them, and hear nothing
        monkeypatch.setattr(owner, name, interrupted)
        while len(found) < 40 or (not heard and len(found) < 400):
            try:
                found.append(loader.next().input_ids.tolist())
            except KeyboardInterrupt:
                heard += 1
        monkeypatch.undo()
    assert heard > 0 and found == expected[: len(found)]
