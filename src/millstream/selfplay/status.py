"""What a trainer waits for, why there is nothing to train on, and how long an epoch is: from the stages' numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from millstream.errors import LoaderError, UnknownLength
from millstream.games import ChunkSource
from millstream.order import steps_in
from millstream.selfplay.chunk_feed import ChunkSourceFeed, Discovery
from millstream.selfplay.folder import sort_key
from millstream.selfplay.settings import SelfPlayTask
from millstream.stages import Pipeline

if TYPE_CHECKING:
    from millstream.selfplay.graph import SelfPlayGraph


def describe_progress(task: SelfPlayTask, graph: SelfPlayGraph | None, losses: Mapping[str, int]) -> str:
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
    return "; ".join([*said, *describe_losses(losses)])


def describe_losses(losses: Mapping[str, int]) -> list[str]:
    """What was left out, as part of a message.

    >>> describe_losses({"truncated": 2, "visits does not match": 30}), describe_losses({})
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
    why = "; ".join(["there is no position to train on", *describe_losses(losses)])
    hint = "the guide says what the reasons mean; rules=, match=, predicates= and positions= choose what is used"
    return LoaderError(f"{path}: {why}", hint=hint)


def _gauges(stages: Mapping[str, Any], name: str) -> Mapping[str, float]:
    gauges: Mapping[str, float] = stages[name]["gauges"] if name in stages else {}
    return gauges


def _many(count: float, noun: str) -> str:
    return f"{count:.0f} {noun}{'' if count == 1 else 's'}"


def _open(files: Mapping[str, float]) -> str:
    return f" ({files['open']:.0f} more may still be written)" if files.get("open") else ""


class EpochLength:
    """Counts the positions of an epoch by the headers of its files, and those of the next one anew: files may come."""

    def __init__(self, task: SelfPlayTask, step_rows: int, *, drop_last: bool) -> None:
        self._task, self._step_rows, self._drop_last = task, step_rows, drop_last
        self._loses_games = False
        self._counted: tuple[tuple[int, bool], int] | None = None

    def end_epoch(self, graph: SelfPlayGraph | None) -> None:
        """An epoch is over: what could not be read in it will not be read in the next one, either."""
        self._loses_games = self._loses_games or _loses_games(graph)

    def batches(self, epoch: int, graph: SelfPlayGraph | None) -> int:
        """How many batches an epoch has; `graph` has its files, once it has given a batch."""
        task = self._task
        if task.watch:
            raise UnknownLength("a folder that is watched has no end", hint="count steps yourself")
        if not task.knows_length:
            raise UnknownLength("how many positions are used shows when they are read", hint="iterate once and count")
        if self._loses_games or _loses_games(graph):
            raise UnknownLength(
                "some games cannot be read, and how many others cannot shows when they are read",
                hint="loader.losses has the reasons; iterate once and count",
            )
        place = epoch, graph is not None
        if self._counted is None or self._counted[0] != place:
            self._counted = place, _frames_there(task) if graph is None else _frames_in(graph)
        return steps_in(self._counted[1], self._step_rows, drop_last=self._drop_last)


def _loses_games(graph: SelfPlayGraph | None) -> bool:
    return graph is not None and bool(graph.reader.bad)


def _frames_in(graph: SelfPlayGraph) -> int:
    """The positions of an epoch that has begun: those of the files that it found then."""
    window, frames = graph.chunk_set.window, 0
    for entry in window.entries:
        if (source := graph.chunk_set.source_of(entry)) is not None:
            frames += int(source.frames[max(0, window.lower - entry.first) :].sum())
    return frames


def _frames_there(task: SelfPlayTask) -> int:
    """The positions of an epoch that would begin now."""
    found = Discovery(task.path, watch=False)
    feed = ChunkSourceFeed(found, cache_dir=task.index_cache, partial=task.partial)
    with Pipeline({"discovery": found, "chunk_source_feed": feed}) as pipeline:
        sources = [each for each in pipeline if isinstance(each, ChunkSource)]
    by_game = [source.frames for source in sorted(sources, key=lambda each: sort_key(each.path))]
    games = np.concatenate([np.zeros(0, np.uint32), *by_game])
    return int(games[-(task.num_chunks or 0) :].sum())
