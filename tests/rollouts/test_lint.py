"""`lint_rollouts` finds every kind of problem, and names file, row and rollout."""

from __future__ import annotations

from typing import Any

import pytest

from millstream import RecordError, RolloutDataLoader
from millstream.rollouts import Rollout, block_of, lint_rollouts, read_rollouts
from millstream.rollouts.lint import PROBLEMS
from millstream.stats import LintReport
from millstream.stats.lint_report import Finding
from millstream.tokens import CharTokenizer

TOKENIZER = CharTokenizer("abcdefghijkl")
EOS = TOKENIZER.eos_id


def record(number: int, **more: Any) -> dict[str, Any]:
    said = {
        "rollout_id": f"r{number}",
        "group_id": f"g{number // 2}",
        "token_ids": [7, 8, 9, EOS],
        "loss_mask": [0, 1, 1, 1],
        "reward": float(number % 2),
        "finish": "stop",
        "sampling_logprobs": [0, -1, -2, -1],
        "policy_version": 4,
        "prompt_len": 1,
    }
    return {**said, **more}


GOOD = [record(number) for number in range(6)]
HOW: dict[str, Any] = {"tokenizer": TOKENIZER, "max_tokens": 5, "policy_version": 5, "max_staleness": 1}


def lint(records: list[Any], **how: Any) -> LintReport:
    return lint_rollouts(read_rollouts(records, on_bad="skip"), **{**HOW, **how})


def found(report: LintReport, kind: str) -> Finding:
    return next(finding for finding in report.findings if finding.kind == kind)


def test_good_rollouts_are_good() -> None:
    report = lint(GOOD)
    assert (report.ok, report.findings, report.rows, report.usable) == (True, [], 6, 6)
    assert (report.tokens, report.trained_tokens, report.longest) == (24, 18, 4)
    assert report.formats == {"rollouts": 6, "groups": 3} and "nothing is wrong" in str(report)


def turns(role: str) -> dict[str, Any]:
    return {"turns": [{"role": "assistant", "start": 1, "end": 2}, {"role": role, "start": 2, "end": 3}]}


FAULTS: dict[str, dict[str, Any]] = {
    "not scored": {"reward": None},
    "nothing trained": {"loss_mask": [0, 0, 0, 0]},
    "prompt trained": {"loss_mask": [1, 1, 1, 1]},
    "others trained": {"extra": turns("tool")},
    "turns of another form": {"extra": {"turns": [["tool", 2, 3]]}},
    "too long": {
        "token_ids": [7] * 6,
        "loss_mask": [0, 1, 1, 1, 1, 1],
        "sampling_logprobs": [-1] * 6,
    },
    "from the future": {"policy_version": 6},
    "stale": {"policy_version": 3},
    "mixed versions": {"policy_version": {"start": 4, "end": 5}},
    "log-probabilities of 0": {"sampling_logprobs": [0, 0, 0, 0]},
    "ended by length": {"finish": "length"},
    "unknown id": {"token_ids": [7, 8, TOKENIZER.vocab_size, EOS]},
    "several ends": {"token_ids": [7, EOS, 9, EOS]},
    "unequal lengths": {"loss_mask": [1]},
    "wrong type": {"reward": "high"},
}


@pytest.mark.parametrize("kind", FAULTS)
def test_each_problem_is_found_with_its_rollout(kind: str) -> None:
    report = lint([*GOOD[:3], record(3, **FAULTS[kind]), *GOOD[4:]])
    finding = found(report, kind)
    assert finding.rows == 1 and finding.examples[0].startswith("rollouts:4") and "'r3'" in finding.examples[0]
    assert {each.kind for each in report.findings} <= {kind, "unequal groups", "group of one"}


@pytest.mark.parametrize("extra", [turns("assistant"), {"turns": []}, {"turns": None}, {}])
def test_turns_of_the_policy_say_nothing(extra: dict[str, Any]) -> None:
    assert lint([*GOOD[:5], record(5, extra=extra)]).findings == []


OTHER_TURNS: list[Any] = [
    7,
    turns("tool")["turns"][0],
    ["tool"],
    [{"role": "tool"}],
    [{"role": "tool", "tokens": [2, 3]}],
    [{"role": "tool", "start": 2, "end": 30}],
    [{"role": "tool", "start": 3, "end": 2}],
    [{"role": "tool", "start": 2.0, "end": 3.0}],
]


@pytest.mark.parametrize("said", OTHER_TURNS)
def test_turns_that_cannot_be_read_are_told_with_what_was_expected(said: Any) -> None:
    (finding,) = lint([*GOOD[:4], record(4, extra=turns("user")), record(5, extra={"turns": said})]).findings[1:]
    assert (finding.kind, finding.rows) == ("turns of another form", 1)
    assert finding.examples == ("rollouts:6: rollout 'r5'",) and '"start"' in finding.advice


def test_missing_log_probabilities_are_told() -> None:
    bare = [{name: value for name, value in each.items() if name != "sampling_logprobs"} for each in GOOD]
    assert found(lint(bare), "no log-probabilities").rows == 6


def test_groups_that_teach_nothing_are_told() -> None:
    report = lint([*GOOD[:2], record(2), record(3, reward=0.0), record(4, group_id="x"), record(5, group_id="y")])
    assert found(report, "constant group").rows == 2 and "'g1' of 2" in found(report, "constant group").examples[0]
    assert found(report, "group of one").rows == 2
    assert found(lint([*GOOD, record(6, group_id="g2")]), "unequal groups").rows == 3


def test_one_reward_for_all_is_an_error() -> None:
    report = lint([record(number, reward=0.3) for number in range(6)])
    assert not report.ok and found(report, "constant reward").rows == 6


def test_a_baseline_is_no_part_of_its_group() -> None:
    assert lint([*GOOD, record(7, group_id="g0", kind="baseline", reward=0.0)]).findings == []


def test_without_a_version_the_youngest_counts() -> None:
    report = lint([*GOOD, record(6, policy_version=9), record(7, policy_version=9)], policy_version=None)
    assert found(report, "stale").rows == 6
    assert "stale" not in {each.kind for each in lint(GOOD, policy_version=None).findings}


def test_repeats_and_conflicts_are_told() -> None:
    report = lint([*GOOD, GOOD[0], record(1, reward=7.0)])
    assert found(report, "repeated").rows == 1 and found(report, "conflicting id").rows == 1
    assert (report.rows, report.usable) == (8, 6)


def test_nothing_at_all_is_an_error() -> None:
    assert not lint([]).ok


def test_repeats_are_named() -> None:
    report = lint([*GOOD, GOOD[4], GOOD[0]])
    assert found(report, "repeated").examples == ("rollouts:7: rollout 'r4'", "rollouts:8: rollout 'r0'")
    for again in (Rollout(**GOOD[1]), block_of(GOOD[1:2]), {"id": "r1", **{k: GOOD[1][k] for k in [*GOOD[1]][1:]}}):
        assert found(lint([*GOOD, again]), "repeated").examples == ("rollouts:7: rollout 'r1'",)


def test_the_largest_id_is_told() -> None:
    report = lint([*GOOD[:5], record(5, token_ids=[7, 99, 9, EOS])], tokenizer=None)
    assert report.largest_id == 99 and report.ok and "largest id 99" in str(report)


def test_a_rollout_in_several_parts_is_alone_in_its_group_all_the_same() -> None:
    parts = [record(6, group_id="x", sample_idx=part) for part in range(2)]
    report = lint([*GOOD, *parts])
    assert found(report, "group of one").rows == 1 and not report.ok


def test_lint_and_loader_agree_on_groups_of_one_and_on_masks_of_zeros() -> None:
    alone, unscored = record(6, group_id="x"), record(7, group_id="y", reward=None)
    assert not lint([*GOOD, alone]).ok and lint([*GOOD, unscored]).ok
    with pytest.raises(RecordError, match="group of one"):
        RolloutDataLoader([*GOOD, alone], framework="numpy")
    RolloutDataLoader([*GOOD, unscored], framework="numpy").close()
    with RolloutDataLoader([*GOOD, alone], advantages={"allow_singleton": True}, framework="numpy") as loader:
        assert loader.losses == {"groups_of_one:rollouts": 1}

    idle = [*GOOD[:5], record(5, loss_mask=[0, 0, 0, 0])]
    assert found(lint(idle), "nothing trained").rows == 1 and lint(idle).ok
    assert not lint([record(number, loss_mask=[0, 0, 0, 0]) for number in range(6)]).ok
    for rated in (True, False):
        with RolloutDataLoader(idle, compute_advantages=rated, framework="numpy") as loader:
            assert loader.losses == {"nothing_trained:rollouts": 1}


def test_every_rule_is_tested() -> None:
    elsewhere = {
        "nothing trained at all",
        "no log-probabilities",
        "constant reward",
        "constant group",
        "group of one",
        "unequal groups",
    }
    assert PROBLEMS.keys() - FAULTS.keys() - elsewhere == {"repeated", "tokenised here"}
