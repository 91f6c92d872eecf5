"""Whether self-play training is exact, and its memory flat, while archives come and go and it is killed (SIGKILL).

    python benchmarks/self_play_soak.py --minutes 10

A trainer goes over a folder as fast as it can and writes a checkpoint every few steps. Another process adds archives
and deletes those that no checkpoint needs; with `--early 0.1` a tenth of the new ones, too, while they are needed: what
is lost with them must be in the journal, and nothing else may be lost.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, os.fspath(Path(__file__).resolve().parents[1] / "tests"))

from selfplay.siege import Outcome, Plan, Siege, differences, judge, replayed

MOST_REPLAYED = 5000
"""Steps that are made again from the journal."""


def growth(outcome: Outcome) -> float:
    """What the longest life held at its end, by what it held after a third."""
    longest = max(outcome.memory, key=len)
    return longest[-1] / longest[len(longest) // 3]


def report(outcome: Outcome, replay_differs: int, seconds: float) -> None:
    """Print what became of it."""
    print(f"{outcome.kills} kills in {seconds:.0f} s; {outcome.steps:,} steps, {outcome.made_again:,} made again")
    print(f"  changed: {len(outcome.changed)}   missing: {len(outcome.missing)}   twice: {outcome.twice}")
    print(f"  lost: {len(outcome.lost)} uses of games   passed over: {len(outcome.passed_over)} games")
    print(f"  said to be lost with its file: {outcome.said_lost}   steps made again that lack it: {outcome.shifted}")
    print(f"  files left behind: {len(outcome.left)} {outcome.left[:3]}")
    print(f"  steps that a replay of the journal makes otherwise: {replay_differs}")
    most = max(max(life) for life in outcome.memory if life)
    print(f"  memory: {most / 1e6:.0f} MB at most; the longest life ended with {growth(outcome):.2f} x of its third")


def main() -> None:
    """Train, kill, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--kill-every", type=float, default=20, help="seconds, at most")
    parser.add_argument("--early", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        plan, began = (
            Plan(Path(name) / "soak", early=asked.early, pause_s=0.1 if asked.early else 0.03),
            time.monotonic(),
        )
        end = began + 60 * asked.minutes
        outcome = Siege(plan, asked.seed).run(asked.kill_every, lambda _: time.monotonic() < end)
        history = judge(plan, outcome)
        differs = len(differences(history, replayed(plan, min(outcome.steps, MOST_REPLAYED))))
        report(outcome, differs, time.monotonic() - began)
    sys.exit(not outcome.exact or bool(differs) or growth(outcome) > 1.1)


if __name__ == "__main__":
    main()
