"""Which rollouts a step of a run over a feed trained on, and which steps a rollout was in: from the run's journal."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.cli import show
from millstream.cli.loader import read_state
from millstream.cli.rollouts import refuse
from millstream.cli.saying import say
from millstream.errors import StateError
from millstream.loaders import origins_of
from millstream.loaders.rollouts import FeedOrder, FeedPhase, FeedPlace, RecordedRun, StepSettings
from millstream.loaders.runs import FeedRun
from millstream.order import CostModel
from millstream.storage import DAMAGED_STATE, read_count

NAME = "rollouts"
"""What a loader of rollouts is called unless it is told."""


def explain_run(journal: Path, arguments: argparse.Namespace) -> None:
    """Explain a step, or find the steps of a rollout."""
    refuse(arguments, ("document", "root", "chunk_size", "dtype", "tokenizer"), "stores or files")
    if arguments.state is None:
        run, step = _run_of_flags(journal, arguments), arguments.step
        say("note", f"steps are as --batch-size {arguments.batch_size} cuts them; --state knows how")
    else:
        state = read_state(Path(arguments.state), {FeedRun.kind})
        run = _run_of_state(journal, state, arguments)
        step = state["step"] if arguments.step is None else arguments.step
    if arguments.rollout_id is not None:
        _steps(run, arguments.rollout_id, as_json=arguments.json)
    else:
        _step(run, step, arguments.row, as_json=arguments.json)


def _run_of_flags(journal: Path, arguments: argparse.Namespace) -> RecordedRun:
    ranks = arguments.world_size
    order = FeedOrder(NAME, arguments.seed, arguments.shuffle, arguments.rank, ranks, passes=1)
    return RecordedRun(journal, [FeedPhase(0, FeedPlace(), arguments.batch_size * ranks, ranks)], order, StepSettings())


def _run_of_state(journal: Path, state: Mapping[str, Any], arguments: argparse.Namespace) -> RecordedRun:
    """The run that saved a state; what that does not say is as the flags say."""
    rows, phases = state.get("rows"), [FeedPhase.from_json(each) for each in state.get("phases") or ()]
    cost = rows.get("cost", []) if isinstance(rows, Mapping) else None
    if not isinstance(rows, Mapping) or not phases or not isinstance(cost, list) or len(cost) not in (0, 2):
        raise StateError(f"{arguments.state}: the state does not say how steps were cut", hint=DAMAGED_STATE)
    passes, seed = read_count(rows.get("passes"), "passes"), read_count(state.get("seed"), "seed")
    steps = StepSettings(
        keep_groups=rows.get("keep_groups", False),
        balance=rows.get("balance"),
        cost=CostModel(*(read_count(each, "cost") for each in cost)),
    )
    order = FeedOrder(NAME, seed, arguments.shuffle, arguments.rank, phases[-1].ranks, passes)
    return RecordedRun(journal, phases, order, steps)


def _steps(run: RecordedRun, rollout: str, *, as_json: bool) -> None:
    steps = run.steps_of(rollout)
    if not steps and rollout.lstrip("-").isdecimal():
        steps = run.steps_of(int(rollout))
    if as_json:
        show.print_json({"rollout_id": rollout, "steps": steps})
        return
    print(f"rollout {rollout!r} was in {show.counted(len(steps), 'step')} of this run:")
    print(" ".join(map(str, steps)))


def _step(run: RecordedRun, step: int, row: int | None, *, as_json: bool) -> None:
    place, batch = run.batch_of(step)
    origins = show.wanted_rows(origins_of(run.rows(step)), step, row)
    rows = [
        {
            "row": origin.row,
            "rollout_id": batch.rollout_ids[origin.sample],
            "group_id": batch.group_ids[int(batch.groups[origin.sample])],
            "tokens": int(batch.tokens[origin.sample]),
        }
        for origin in origins
    ]
    facts = {"rollout_batch": place.batch, "pass": place.number, "policy_version": batch.policy_version}
    if as_json:
        show.print_json({"step": step, **facts, "dropped": batch.dropped, "rows": rows})
        return
    told = f"rollout batch {place.batch}, pass {place.number}, policy version {batch.policy_version}"
    print(f"step {step}: {show.counted(len(rows), 'rollout')} of {told}")
    for each in rows:
        named = f"rollout {each['rollout_id']!r} of group {each['group_id']!r}"
        print(f"row {each['row']:<4} {named}  {each['tokens']:,} tokens")
    if batch.dropped:
        dropped = ", ".join(f"{number:,} {reason}" for reason, number in batch.dropped.items())
        print(f"dropped before this rollout batch: {dropped}")
