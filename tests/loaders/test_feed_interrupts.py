"""Who interrupts a step at whatever line, and goes on, gets every rollout once."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loaders.test_rollout_feed import filled, ids, opened
from millstream.admission import JournalReader
from millstream.loaders.runs import JOURNAL
from millstream.loaders.runs.intake import Intake

MOST_LINES = 1600
"""About as many as are run until the first rollout batch is there."""
READS = ("/admission/", "/loaders/runs/", "/storage/log.py")


@contextmanager
def interrupted_at(line: int) -> Iterator[None]:
    """Ctrl-C at a line, counted from the moment at which a rollout batch is waited for, and until it is there."""
    left, before, within = line, sys.gettrace(), False
    begins = Intake.take.__code__

    def local(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left, within
        if event == "return" and frame.f_code is begins:
            within = False
        if event == "line" and within:
            left -= 1
            if left == -1:
                signal.raise_signal(signal.SIGINT)
        return local

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal within
        within = within or frame.f_code is begins
        return local if any(name in frame.f_code.co_filename for name in READS) else None

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@given(line=st.integers(0, MOST_LINES))
@example(line=MOST_LINES // 2)
def test_a_rollout_batch_that_was_interrupted_comes_whole_when_it_is_asked_for_again(
    tmp_path_factory: pytest.TempPathFactory, line: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    with opened(filled(3), cache_dir=folder) as loader:
        loader._run.intake.inline = True  # all work is done by the thread that is interrupted
        names = []
        try:
            with interrupted_at(line):
                names += ids(loader.next())
        except KeyboardInterrupt:
            pass
        else:
            assert line > MOST_LINES // 2
        names += [name for batch in loader for name in ids(batch)]
        assert len(names) == len(set(names)) == loader.losses["arrived"] == 12
        assert "repeated" not in loader.losses
    assert [entry.step for entry in JournalReader(folder / JOURNAL)] == [0, 1, 2]  # the last is the end


def test_a_step_that_was_interrupted_while_producers_were_told_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = filled(3)
    with opened(feed) as loader:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            tell = feed.tell

            def told(word: Any) -> None:
                tell(word)
                if word.policy_version == 1:
                    raise KeyboardInterrupt

            patch.setattr(feed, "tell", told)
            loader.next()
        assert sum(len(ids(batch)) for batch in loader) == 12
