"""Rollouts on the command line: the options about them, and what `inspect` and `explain` print about files of them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from millstream.cli.options import wanted_rows
from millstream.cli.stderr import say
from millstream.cli.terminal import bars, histogram, one_line, print_json, spread, table
from millstream.errors import LoaderError
from millstream.loaders import RolloutDataLoader, are_rollouts, refuse_journal, refuse_nothing
from millstream.loaders.rollouts import FEED_SCHEMES
from millstream.rollouts import RolloutSummary, find_rollouts, read_rollouts
from millstream.sources import FoundFile
from millstream.stats import count, counted, share, size
from millstream.tokens import load_tokenizer

MOST_BARS = 12
OF_ROLLOUTS = ("estimator", "rollout_id", "whole")
DAMAGED = ["damaged/*"]
"""What a spool has put aside."""


def add_rollout_arguments(parser: argparse._ActionsContainer) -> None:
    """Declare how a rollout is shown."""
    parser.add_argument(
        "--estimator", metavar="E", help="how advantages are computed: grpo (default), rloo, gae, …; none: not at all"
    )
    parser.add_argument("--whole", action="store_true", help="show long prompts and outputs of tools to the end")


def hold_rollouts(source: Any, arguments: argparse.Namespace) -> bool:
    """Whether files hold rollouts; if not, flags about rollouts are refused. A source without files is an error."""
    refuse_journal(source)
    refuse_nothing(source)
    if are_rollouts(source):
        return True
    for name in OF_ROLLOUTS:
        if getattr(arguments, name, None):
            flag = f"--{name.replace('_', '-')}"
            raise LoaderError(f"{flag} is about rollouts, and these are none", hint=f"leave out {flag}")
    return False


def rollout_files(source: Any) -> list[FoundFile]:
    """The files of rollouts of a source; of a spool, those that are whole."""
    if isinstance(source, str) and source.partition("://")[0] in FEED_SCHEMES:
        raise LoaderError(
            f"{source}: only the run that trains on a feed can read it",
            hint="pass the folder of a spool instead: it can be read by any program",
        )
    return find_rollouts(source, exclude=DAMAGED)


def open_rollouts(source: Any, arguments: argparse.Namespace, estimator: str) -> RolloutDataLoader:
    """The loader of the run that the arguments describe, over what can be used of the files."""
    loader = RolloutDataLoader(
        [file.path for file in rollout_files(source)],  # the folder of a spool would be opened as a feed
        tokenizer=arguments.tokenizer,
        compute_advantages=estimator != "none",
        advantages=None if estimator == "none" else {"estimator": estimator, "allow_singleton": True},
        on_bad="skip",
        batch_size=arguments.batch_size,
        seed=arguments.seed,
        shuffle=False if arguments.shuffle == "none" else arguments.shuffle,
        rank=arguments.rank,
        world_size=arguments.world_size,
        framework="numpy",
    )
    _note_left_out(loader)
    return loader


def number_of(loader: RolloutDataLoader, rollout_id: str) -> int:
    """The number of a rollout by its id as it was typed: a text, or a number."""
    try:
        return loader.number_of(rollout_id)
    except LoaderError:
        if not rollout_id.lstrip("-").isdecimal():
            raise
        return loader.number_of(int(rollout_id))


def refuse(arguments: argparse.Namespace, names: Iterable[str], what: str) -> None:
    """Refuse flags that are not about rollouts."""
    for name in (name for name in names if getattr(arguments, name) is not None):
        flag = f"--{name.replace('_', '-')}"
        raise LoaderError(f"{flag} is about {what}, and these are rollouts", hint=f"leave out {flag}")


def _note_left_out(loader: RolloutDataLoader) -> None:
    reasons = loader.rollouts.losses.reasons("left_out", source=loader.name)
    left_out = ", ".join(f"{number:,} {reason}" for reason, number in reasons.items())
    if left_out:
        say("note", f"left out, not counted among the rows: {left_out}; `millstream lint` names them")


def inspect_rollouts(source: Any, tokenizer: str | None, *, as_json: bool) -> None:
    """Read them to the end, and tell."""
    files = rollout_files(source)
    loaded = None if tokenizer is None else load_tokenizer(tokenizer)
    summary = RolloutSummary.of(read_rollouts([file.path for file in files], on_bad="skip", tokenizer=loaded))
    facts = _facts(summary) | {"path": str(source), "files": len(files), "bytes": sum(file.bytes for file in files)}
    facts["vocabulary"] = None if loaded is None else loaded.vocab_size
    if as_json:
        print_json(facts)
        return
    print(table(_rows(facts)))
    lengths, rewards = summary.lengths.tolist(), summary.rewards.tolist()
    blocks = [
        ("tokens per rollout", histogram(lengths)),
        ("rewards", spread(rewards) if rewards else ""),
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
        ("rollouts", f"{rollouts:,}  ({counted(facts['files'], 'file')}, {size(facts['bytes'])})"),
        ("baselines", f"{facts['baselines']:,}  (compared with, not trained on)" if facts["baselines"] else ""),
        ("tokens", f"{count(tokens)}  ({count(trained)} trained, {share(trained, tokens)})"),
        ("ids", _ids(facts["largest_id"], facts["vocabulary"]) if rollouts else ""),
        ("lengths", f"median {lengths['median']:,.0f}, longest {lengths['most']:,.0f}" if lengths else ""),
        ("rewards", _rewards(facts["rewards"], rollouts)),
        ("groups", _groups(facts["groups"])),
        ("ended by", ", ".join(f"{name} {share(n, rollouts)}" for name, n in facts["finishes"].items())),
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
    unscored = f"{missing:,.0f} not scored ({share(missing, rollouts)})" if missing else ""
    if "mean" not in rewards:
        return unscored
    return f"mean {rewards['mean']:.3g}, from {rewards['least']:g} to {rewards['most']:g}{unscored and f', {unscored}'}"


def _groups(groups: Mapping[str, Any]) -> str:
    number, sizes = groups["groups"], groups["sizes"]
    if not sizes:
        return ""
    of = f"of {next(iter(sizes))}" if len(sizes) == 1 else f"of {min(sizes)} to {max(sizes)}"
    constant = f"{groups['constant']:,} ({share(groups['constant'], number)}) with one reward for all"
    return f"{number:,} {of}, {constant}"


def _policies(versions: Mapping[int, int], mixed: int, rollouts: int) -> str:
    if not versions:
        return ""
    low, high = min(versions), max(versions)
    several = f", {share(mixed, rollouts)} of the rollouts by several" if mixed else ""
    return (f"version {low}" if low == high else f"versions {low} to {high}") + several


def _left_out(reasons: Mapping[str, int]) -> str:
    parts = ", ".join(f"{number:,} {reason}" for reason, number in reasons.items())
    return parts and f"{parts}  (`millstream lint` says where)"


def _recent(versions: Mapping[int, int]) -> str:
    """Bars of the youngest versions, if there are several."""
    if len(versions) < 2:
        return ""
    latest = [(str(version), number) for version, number in versions.items()][-MOST_BARS:]
    earlier = len(versions) - len(latest)
    note = f"\n and {counted(earlier, 'older version')}" if earlier else ""
    return bars(latest) + note


def explain_rollouts(arguments: argparse.Namespace) -> None:
    """Explain a step, or find the steps of a rollout."""
    refuse(arguments, ("state", "root", "chunk_size", "dtype"), "stores")
    if arguments.raw or arguments.packing:
        raise LoaderError("--raw and --packing are about stores", hint="`millstream show` shows a rollout")
    with open_rollouts(arguments.store, arguments, "none") as loader:
        if arguments.rollout_id is not None:
            _steps(loader, number_of(loader, arguments.rollout_id), as_json=arguments.json)
        elif arguments.document is not None:
            _steps(loader, arguments.document, as_json=arguments.json)
        else:
            _step(loader, arguments.step, arguments.row, as_json=arguments.json)


def _steps(loader: RolloutDataLoader, number: int, *, as_json: bool) -> None:
    steps = loader.steps_of(number)
    facts = _described(loader, number)
    if as_json:
        print_json({**facts, "steps": steps})
        return
    used = counted(len(steps), "step")
    print(f"rollout {facts['rollout_id']!r} ({facts['where']}) is used in {used} of this epoch:")
    print(" ".join(map(str, steps)))


def _step(loader: RolloutDataLoader, step: int, row: int | None, *, as_json: bool) -> None:
    origins = wanted_rows(loader.explain(step), step, row)
    rows = [{"row": origin.row, **_described(loader, origin.sample), "text": origin.text} for origin in origins]
    if as_json:
        print_json({"step": step, "rows": rows})
        return
    print(f"step {step}: {counted(len(rows), 'rollout')}")
    for each in rows:
        named = f"rollout {each['rollout_id']!r} of group {each['group_id']!r}"
        text = "" if each["text"] is None else each["text"] if row is not None else one_line(each["text"], 48)
        facts = f"{named}  {each['tokens']:,} tokens  reward {each['reward']:g}  {text}"
        print(f"row {each['row']:<4} {each['where']}  {facts}".rstrip())


def _described(loader: RolloutDataLoader, number: int) -> dict[str, Any]:
    block = loader.rollouts.block
    return {
        "rollout": number,
        "rollout_id": block["rollout_id"][number],
        "group_id": block["group_id"][number],
        "where": loader.rollouts.origin(number),
        "tokens": int(block.lengths[number]),
        "reward": float(block["reward"][number]),
    }
