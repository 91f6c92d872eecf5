"""What a trainer waits for, or why there is nothing to train on: from the numbers of the stages, in a line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.errors import LoaderError
from millstream.loaders.self_play.memory import SelfPlayTask
from millstream.loaders.self_play.task import SelfPlayGraph


def what_is_there(task: SelfPlayTask, graph: SelfPlayGraph | None, losses: Mapping[str, int]) -> str:
    """What was found, what became of it, and how full the reservoir is."""
    stages = {} if graph is None else graph.pipeline.counters()["stages"]
    files, window = (_gauges(stages, name) for name in ("discovery", "chunk_set"))
    if not Path(task.path).exists() and not files.get("files"):
        return f"{task.path} is not there"
    held = int(_gauges(stages, "frame_shuffler").get("frames", 0))
    said = [
        f"{task.path} has {_many(files.get('files', 0), 'file')}{_open(files)}",
        f"the window has {_many(window.get('chunks', 0), 'game')}",
    ]
    if window.get("passes") and not held:
        said.append("a whole pass over them gave not one position")
    said.append(f"{held} of {task.shuffle_frames} positions are in the shuffle buffer, which is filled first")
    return "; ".join([*said, *left_out(losses)])


def left_out(losses: Mapping[str, int]) -> list[str]:
    """What was left out, as part of a message.

    >>> left_out({"truncated": 2, "visits does not match": 30}), left_out({})
    (['left out: 30 (visits does not match), 2 (truncated)'], [])
    """
    counts = sorted(losses.items(), key=lambda each: -each[1])
    return [f"left out: {', '.join(f'{count} ({reason})' for reason, count in counts)}"] if counts else []


def nothing_to_train_on(path: str, losses: Mapping[str, int], short: int, step_rows: int) -> LoaderError:
    """An epoch has ended without a batch; `short` positions were too few for one, of `step_rows`."""
    if short:
        return LoaderError(
            f"{path}: there are only {_many(short, 'position')}, a step takes {step_rows}, and drop_last leaves out "
            "what does not fill one",
            hint="pass a smaller batch_size, or leave out drop_last",
        )
    if not losses:
        hint = "look at the path; pass watch=True to wait for games"
        return LoaderError(f"{path}: there is no position to train on; no game was found", hint=hint)
    why = "; ".join(["there is no position to train on", *left_out(losses)])
    hint = "the guide says what the reasons mean; rules=, match=, predicates= and positions= choose what is used"
    return LoaderError(f"{path}: {why}", hint=hint)


def _gauges(stages: Mapping[str, Any], name: str) -> Mapping[str, float]:
    gauges: Mapping[str, float] = stages[name]["gauges"] if name in stages else {}
    return gauges


def _many(count: float, noun: str) -> str:
    return f"{count:.0f} {noun}{'' if count == 1 else 's'}"


def _open(files: Mapping[str, float]) -> str:
    return f" ({files['open']:.0f} more may still be written)" if files.get("open") else ""
