"""The scripts in examples/ do what they say."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_a_policy_that_learns_from_a_feed_gets_better() -> None:
    rewards = run_path(str(EXAMPLES / "grpo_loop.py"))["train"](steps=30)

    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.1
