"""The numbers of a run: few, however long it is."""

from __future__ import annotations

import json

import pytest

from millstream.preparation import report
from millstream.preparation.report import Statistics


@pytest.mark.parametrize("most", [2, 5, 8])
def test_a_long_run_keeps_few_notes_and_always_the_first_and_the_newest(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "MOST_SAMPLES", most)
    run = Statistics.of([])

    for number in range(100):
        run.tick(10 * number, number)
        tokens = [tokens for _, _, tokens in run.pace]
        assert tokens[0] == 0 and tokens[-1] == number
        assert len(tokens) <= most and tokens == sorted(set(tokens))


def test_counts_survive_a_bookmark() -> None:
    counts = Statistics([], started=0)
    for what, reason, number in (("skipped", "empty", 2), ("changed", "cut", 1), ("dropped", "short", 3)):
        counts.losses.add(what, reason, number)
    again = Statistics.from_json(json.loads(json.dumps(counts.to_json())))
    assert again.losses.counts == counts.losses.counts == {"skipped:empty": 2, "changed:cut": 1, "dropped:short": 3}
    again.started, again.losses = 0, counts.losses
    assert again == counts
