"""Progress and small pictures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cli import progress, terminal
from millstream.stats import Progress


@given(st.lists(st.integers(0, 1 << 40)))
def test_a_histogram_counts_every_document_once(lengths: list[int]) -> None:
    counted = [int(line.split()[-1].replace(",", "")) for line in terminal.histogram(lengths).splitlines()]

    assert sum(counted) == len(lengths)


@given(st.lists(st.floats(-1e6, 1e6), max_size=200), st.integers(1, 80))
def test_a_sparkline_is_never_wider_than_asked(values: list[float], width: int) -> None:
    assert len(terminal.sparkline(values, width)) == min(len(values), width)


def test_without_a_terminal_progress_is_one_line_at_the_end_of_each_task(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress.shown_progress() as callback:
        for done in range(0, 101, 10):
            callback(Progress("one", done, 100, "bytes"))
        callback(Progress("two", 1, None, "steps"))
        callback(Progress("two", 0, None, "steps"))

    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["one", "two", "two"]
    assert lines[0].startswith("one: 100%  100 B  ")


def test_quiet_progress_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown_progress(quiet=True) as callback:
        callback(Progress("one", 1, 2, "bytes"))

    assert capsys.readouterr() == ("", "")


def test_bars_are_drawn_in_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_can_draw", lambda: True)

    with progress.shown_progress() as callback:
        callback(Progress("grind", 1, 2, "bytes"))
        callback(Progress("grind", 2, 2, "bytes", "two sacks"))

    shown = capsys.readouterr().err
    assert "grind" in shown
    assert "two sacks" in shown


def test_a_bar_tells_the_rate_and_the_time_of_the_end() -> None:
    text = progress.describe(Progress("x", 25, 100, "steps"), 5.0)

    assert text.startswith("25%  25 steps  5 steps/s  15.0 s left, done at ")
