"""What files of rollouts, or a spool, hold: counts, lengths, rewards, groups, how they ended and who sampled them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from millstream.cli import show
from millstream.cli.rollouts import rollout_files
from millstream.rollouts import RolloutSummary, read_rollouts
from millstream.tokens import load_tokenizer

MOST_BARS = 12


def inspect_rollouts(source: Any, tokenizer: str | None, *, as_json: bool) -> None:
    """Read them to the end, and tell."""
    files = rollout_files(source)
    loaded = None if tokenizer is None else load_tokenizer(tokenizer)
    summary = RolloutSummary.of(read_rollouts([file.path for file in files], on_bad="skip", tokenizer=loaded))
    facts = _facts(summary) | {"path": str(source), "files": len(files), "bytes": sum(file.bytes for file in files)}
    facts["vocabulary"] = None if loaded is None else loaded.vocab_size
    if as_json:
        show.print_json(facts)
        return
    print(show.table(_rows(facts)))
    lengths, rewards = summary.lengths.tolist(), summary.rewards.tolist()
    blocks = [
        ("tokens per rollout", show.histogram(lengths)),
        ("rewards", show.spread(rewards) if rewards else ""),
        ("rollouts by policy version", _recent(facts["versions"])),
    ]
    for title, picture in blocks:
        if picture:
            print(f"\n{title}:\n{picture}")


def _facts(summary: RolloutSummary) -> dict[str, Any]:
    rewards, sizes = summary.rewards, summary.group_sizes
    return {
        "kind": "rollouts",
        "rollouts": summary.rollouts,
        "baselines": summary.baselines,
        "tokens": summary.tokens,
        "trained_tokens": summary.trained_tokens,
        "largest_id": summary.largest_id,
        "lengths": _five(summary.lengths),
        "rewards": {**_five(rewards), "not_scored": summary.rollouts - len(rewards)},
        "groups": {"groups": len(summary.groups), "sizes": dict(sorted(sizes.items()))}
        | {"constant": summary.constant_groups},
        "finishes": dict(summary.finishes.most_common()),
        "versions": dict(sorted(summary.versions.items())),
        "mixed_versions": summary.mixed_versions,
        "columns": summary.columns,
        "left_out": dict(summary.left_out.most_common()),
    }


def _five(values: Any) -> dict[str, float]:
    """Numbers in a few.

    >>> _five(np.array([1, 2, 3]))
    {'least': 1.0, 'median': 2.0, 'mean': 2.0, 'most': 3.0}
    """
    if not len(values):
        return {}
    found = {"least": values.min(), "median": np.median(values), "mean": values.mean(), "most": values.max()}
    return {name: float(value) for name, value in found.items()}


def _rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    rollouts, tokens, lengths = facts["rollouts"], facts["tokens"], facts["lengths"]
    trained = facts["trained_tokens"]
    return [
        ("rollouts", f"{rollouts:,}  ({show.counted(facts['files'], 'file')}, {show.size(facts['bytes'])})"),
        ("baselines", f"{facts['baselines']:,}  (compared with, not trained on)" if facts["baselines"] else ""),
        ("tokens", f"{show.count(tokens)}  ({show.count(trained)} trained, {show.share(trained, tokens)})"),
        ("ids", _ids(facts["largest_id"], facts["vocabulary"]) if rollouts else ""),
        ("lengths", f"median {lengths['median']:,.0f}, longest {lengths['most']:,.0f}" if lengths else ""),
        ("rewards", _rewards(facts["rewards"], rollouts)),
        ("groups", _groups(facts["groups"])),
        ("ended by", ", ".join(f"{name} {show.share(n, rollouts)}" for name, n in facts["finishes"].items())),
        ("policies", _policies(facts["versions"], facts["mixed_versions"], rollouts)),
        ("columns", ", ".join(facts["columns"])),
        ("left out", _left_out(facts["left_out"])),
    ]


def _ids(largest: int, vocabulary: int | None) -> str:
    """How large ids are, beside what the tokenizer has.

    >>> _ids(7, None), _ids(7, 5)
    ('up to 7', 'up to 7, and the tokenizer ends at 4: `millstream lint` names the rollouts')
    """
    if vocabulary is None or largest < vocabulary:
        return f"up to {largest:,}"
    return f"up to {largest:,}, and the tokenizer ends at {vocabulary - 1:,}: `millstream lint` names the rollouts"


def _rewards(rewards: Mapping[str, float], rollouts: int) -> str:
    missing = rewards["not_scored"]
    told = f"{missing:,.0f} not scored ({show.share(missing, rollouts)})" if missing else ""
    if "mean" not in rewards:
        return told
    return f"mean {rewards['mean']:.3g}, from {rewards['least']:g} to {rewards['most']:g}{told and f', {told}'}"


def _groups(groups: Mapping[str, Any]) -> str:
    number, sizes = groups["groups"], groups["sizes"]
    if not sizes:
        return ""
    of = f"of {next(iter(sizes))}" if len(sizes) == 1 else f"of {min(sizes)} to {max(sizes)}"
    constant = f"{groups['constant']:,} ({show.share(groups['constant'], number)}) with one reward for all"
    return f"{number:,} {of}, {constant}"


def _policies(versions: Mapping[int, int], mixed: int, rollouts: int) -> str:
    if not versions:
        return ""
    low, high = min(versions), max(versions)
    several = f", {show.share(mixed, rollouts)} of the rollouts by several" if mixed else ""
    return (f"version {low}" if low == high else f"versions {low} to {high}") + several


def _left_out(reasons: Mapping[str, int]) -> str:
    told = ", ".join(f"{number:,} {reason}" for reason, number in reasons.items())
    return told and f"{told}  (`millstream lint` says where)"


def _recent(versions: Mapping[int, int]) -> str:
    """Bars of the youngest versions, if there are several."""
    if len(versions) < 2:
        return ""
    latest = [(str(version), number) for version, number in versions.items()][-MOST_BARS:]
    earlier = len(versions) - len(latest)
    note = f"\n and {show.counted(earlier, 'older version')}" if earlier else ""
    return show.bars(latest) + note
