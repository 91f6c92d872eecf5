"""Where windows begin: what was counted is known again, damage costs only itself, and nothing contradicts itself."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.samples import follows_its_hint
from millstream.errors import StateError
from millstream.streams import WindowStarts

WIDTH = 24


def tokens_of(starts: WindowStarts) -> list[int | None]:
    return [starts.token(window) for window in range(starts.windows + 1)]


def test_another_process_knows_what_was_counted(tmp_path: Path) -> None:
    path = tmp_path / "windows.log"
    starts = WindowStarts(4, path)
    assert tokens_of(starts) == [0, None, None, None, None] and starts.tokens is None
    for window, token in ((1, 10), (2, 10), (3, 25), (4, 31)):
        starts.learn(window, token)
        assert tokens_of(WindowStarts(4, path))[: window + 1] == tokens_of(starts)[: window + 1]
    assert WindowStarts(4, path).tokens == 31


def test_processes_that_write_side_by_side_write_the_same(tmp_path: Path) -> None:
    """One began in the middle, one at the beginning; what both counted lies there once."""
    path = tmp_path / "windows.log"
    one, other = WindowStarts(4, path), WindowStarts(4, path)
    one.learn(3, 25, counted=False)
    one.learn(4, 31)
    for window, token in ((1, 10), (2, 20), (3, 25), (4, 31)):
        other.learn(window, token)
    assert tokens_of(WindowStarts(4, path)) == [0, 10, 20, 25, 31]
    assert path.stat().st_size == 5 * WIDTH


def test_what_a_state_says_is_known_and_not_written_down(tmp_path: Path) -> None:
    path = tmp_path / "windows.log"
    starts = WindowStarts(4, path)
    starts.learn(2, 20, counted=False)
    assert starts.token(2) == 20 and not path.exists()


@given(cut=st.integers(0, 6 * WIDTH), flipped=st.none() | st.integers(0, 6 * WIDTH - 1))
def test_a_torn_or_damaged_log_costs_only_what_is_torn_or_damaged(cut: int, flipped: int | None) -> None:
    truth = [0, 10, 20, 25, 31, 40]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "windows.log")
        starts = WindowStarts(5, path)
        for window, token in enumerate(truth[1:], 1):
            starts.learn(window, token)
        data = bytearray(path.read_bytes())
        assert len(data) == 6 * WIDTH
        if flipped is not None:
            data[flipped] ^= 1
        path.write_bytes(data[:cut])

        again = WindowStarts(5, path)
        lost = {window for window in range(1, 6) if (window + 1) * WIDTH > cut}
        lost |= set() if flipped is None else {flipped // WIDTH} - {0}
        assert tokens_of(again) == [None if window in lost else token for window, token in enumerate(truth)]
        for window, token in enumerate(truth[1:], 1):
            again.learn(window, token)
        assert tokens_of(WindowStarts(5, path)) == truth


def test_a_log_that_is_not_of_one_stream_is_none(tmp_path: Path) -> None:
    path = tmp_path / "windows.log"
    starts = WindowStarts(3, path)
    for window, token in ((1, 10), (2, 20), (3, 30)):
        starts.learn(window, token)
    starts.known[1:] = starts.found[1:] = -1
    starts.learn(2, 50)
    assert tokens_of(WindowStarts(3, path)) == [0, None, None, None]


def test_a_log_of_more_windows_is_read_as_far_as_there_are_any(tmp_path: Path) -> None:
    path = tmp_path / "windows.log"
    starts = WindowStarts(9, path)
    for window in range(1, 10):
        starts.learn(window, 10 * window)
    assert tokens_of(WindowStarts(2, path)) == [0, 10, 20]


@pytest.mark.parametrize(("window", "token"), [(0, 1), (2, 21), (1, 21), (3, 19), (4, 5)])
def test_what_contradicts_what_is_known_is_refused_and_changes_nothing(tmp_path: Path, window: int, token: int) -> None:
    path = tmp_path / "windows.log"
    starts = WindowStarts(4, path)
    starts.learn(2, 20)
    before, written = starts.known.copy(), path.read_bytes()
    with pytest.raises(StateError, match=f"window {window} of the stream begins at token {token}") as refused:
        starts.learn(window, token)
    assert "cache_dir" in follows_its_hint(refused.value)
    assert np.array_equal(starts.known, before) and path.read_bytes() == written


def test_what_is_found_ahead_is_counted_with_when_it_is_published(tmp_path: Path) -> None:
    """And it is in the log for others at once."""
    path = tmp_path / "windows.log"
    starts = WindowStarts(3, path)
    starts.learn(1, 10, ahead=True)
    assert starts.token(1) is None and starts.found_token(1) == 10
    assert WindowStarts(3, path).token(1) == 10
    with pytest.raises(StateError, match="not where it was found to begin"):
        starts.learn(1, 11)
    starts.publish()
    assert starts.token(1) == 10
