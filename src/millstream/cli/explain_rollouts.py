"""Which rollouts a step trains on, and which steps train on a rollout."""

from __future__ import annotations

import argparse
from typing import Any

from millstream.cli import show
from millstream.cli.rollouts import number_of, open_rollouts, refuse
from millstream.errors import LoaderError
from millstream.loaders import RolloutDataLoader


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
        show.print_json({**facts, "steps": steps})
        return
    used = show.counted(len(steps), "step")
    print(f"rollout {facts['rollout_id']!r} ({facts['where']}) is used in {used} of this epoch:")
    print(" ".join(map(str, steps)))


def _step(loader: RolloutDataLoader, step: int, row: int | None, *, as_json: bool) -> None:
    origins = show.wanted_rows(loader.explain(step), step, row)
    rows = [{"row": origin.row, **_described(loader, origin.sample), "text": origin.text} for origin in origins]
    if as_json:
        show.print_json({"step": step, "rows": rows})
        return
    print(f"step {step}: {show.counted(len(rows), 'rollout')}")
    for each in rows:
        named = f"rollout {each['rollout_id']!r} of group {each['group_id']!r}"
        text = "" if each["text"] is None else each["text"] if row is not None else show.one_line(each["text"], 48)
        told = f"{named}  {each['tokens']:,} tokens  reward {each['reward']:g}  {text}"
        print(f"row {each['row']:<4} {each['where']}  {told}".rstrip())


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
