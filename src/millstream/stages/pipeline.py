"""Pipeline: stages joined by queues, started, watched and ended together. The first failure stops everything.

The graph of stages says which queue leads from where to where. A wrong graph is refused before a thread starts.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Self

from millstream.errors import ClosedError, LoaderError, QueueClosed, RecipeError, StageError, Stopped
from millstream.settings import nearest
from millstream.stages.lifetime import HomeProcess, close_on_exit
from millstream.stages.metrics import History, filling
from millstream.stages.queue import Queue
from millstream.stages.queue_ends import left_behind
from millstream.stages.stage import Stage
from millstream.stages.wait import Deadline, wait_for

CLOSE_S = 0.9
"""How long closing waits for threads that are in the middle of something."""
_log = logging.getLogger("millstream.stages")


class Pipeline:
    """A graph of stages.

    >>> from millstream.stages.stage_kinds import FunctionStage, IterableStage
    >>> lines = IterableStage(["the quick", "brown fox"])
    >>> words = FunctionStage(lines, function=str.split, threads=2)
    >>> with Pipeline({"lines": lines, "words": words}) as pipeline:
    ...     print(list(pipeline))
    ['the', 'quick', 'brown', 'fox']
    >>> pipeline.counters()["stages"]["words"]["out"]
    4

    Args:
        stages: By name; their inputs say how they are joined.
        output: What comes out of the pipeline: `"stage"`, `"stage.output"`, or several of them. By default the one
            output that no stage takes from.
    """

    def __init__(self, stages: Mapping[str, Stage[Any]], output: str | Sequence[str] | None = None) -> None:
        self._outputs = checked_outputs(stages, output)
        self._run = run = _Run(dict(stages))
        self._queues = named_queues(stages)
        for name, stage in stages.items():
            stage.name, stage.on_failure = name, run.fail
        for name, queue in self._queues.items():
            queue.name = name
        self._history = History()
        self._began: float | None = None
        self._ended: float | None = None
        close_on_exit(self, run.close, in_children=True)

    @classmethod
    def from_recipe(cls, recipe: str | os.PathLike[str] | Mapping[str, Any]) -> Pipeline:
        """A pipeline from a YAML or TOML file, or from what such a file holds; see the guide on pipelines."""
        from millstream.stages.pipeline_file import read_recipe  # which makes stages, of which some may hold a pipeline

        stages, output, where = read_recipe(recipe)
        try:
            return cls(stages, output)
        except RecipeError as error:
            raise RecipeError(f"{where}: {error.message}", hint=error.hint) from None

    @property
    def error(self) -> StageError | None:
        """What stopped the pipeline, with the name of its stage."""
        return self._run.error

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what comes out."""
        return tuple(self._outputs)

    def start(self) -> None:
        """Start all stages; entering a `with` block does it, too."""
        if self._ended is not None:
            raise ClosedError("this pipeline was closed", hint="make a new one")
        if self._began is not None:
            raise LoaderError("this pipeline was started before", hint="`with pipeline:` starts it, too")
        self._began, self._run.process = time.monotonic(), HomeProcess()
        with contextlib.suppress(Stopped):  # by one that has failed before others were started
            for stage in self._run.stages.values():
                stage.start()

    def get(self, output: str = "", timeout_s: float | None = None, *, warn: bool = True) -> Any:
        """Take the next item of an output, waiting for it; where there is one output, its name may be left out.

        Raises QueueClosed when everything was taken, and StageError when a stage has failed. A long wait without a
        `timeout_s` gives a WaitWarning that says how far the stages are.
        """
        if self._began is None and self._ended is None:
            raise LoaderError("this pipeline was not started", hint="write `with pipeline:`, or call start()")
        self._run.refuse_elsewhere()
        self._history.look_if_due(self.counters)
        name = self._name(output)
        queue = self._outputs[name]
        try:
            if self.error is not None:
                self._raise_why()
            if timeout_s is None and warn:
                return wait_for(queue.get, f"an item of {name!r}", self._how_far)
            return queue.get(timeout_s)
        except Stopped:
            self._raise_why()

    def __iter__(self) -> Iterator[Any]:
        """Take items of the only output until it ends."""
        while True:
            try:
                item = self.get()
            except QueueClosed:
                return
            yield item

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until every stage has ended; False if some have not after `timeout_s`. Raises the first failure."""
        self._run.refuse_elsewhere()
        ended = self._run.join(timeout_s)
        if self.error is not None:
            self._raise_why()
        return ended

    def close(self) -> None:
        """Stop everything, whatever it is doing, within a second. What is in queues is lost; so is what comes later."""
        if self._ended is None:
            self._ended = time.monotonic()
        self._run.close()
        if not self._run.join(CLOSE_S):
            _log.warning("still at work after %s s: %s", CLOSE_S, ", ".join(self._run.at_work()))

    def on_close(self, call: Callable[[], None]) -> None:
        """Have something called when the pipeline is closed, once."""
        self._run.at_close.append(call)

    def counters(self) -> dict[str, Any]:
        """What went through each stage and each queue since the start; see `Stage.counters` and `Queue.counters`."""
        self._run.refuse_elsewhere()
        now = self._ended or time.monotonic()
        return {
            "seconds": now - (self._began or now),
            "stages": {name: stage.counters() for name, stage in self._run.stages.items()},
            "queues": {name: queue.counters() for name, queue in self._queues.items()},
        }

    def statistics(self) -> dict[str, Any]:
        """How fast things go: shares and rates of the last second and since the start; plain numbers, fit for JSON.

        >>> from millstream.stages.stage_kinds import IterableStage
        >>> with Pipeline({"numbers": IterableStage(range(9))}) as pipeline:
        ...     numbers = list(pipeline)
        >>> statistics = pipeline.statistics()
        >>> sorted(statistics), sorted(statistics["stages"]["numbers"]["last"])
        (['queues', 'seconds', 'stages', 'window_s'], ['busy', 'in_per_s', 'out_per_s'])
        """
        return self._history.statistics(self.counters())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _name(self, output: str) -> str:
        if not output and len(self._outputs) == 1:
            return next(iter(self._outputs))
        if not output and self._outputs:
            names = " and ".join(map(repr, self._outputs))
            first = next(iter(self._outputs))
            raise RecipeError(f"this pipeline has several outputs: {names}", hint=f"say which: get({first!r})")
        if output not in self._outputs:
            raise RecipeError(f"this pipeline has no output {output!r}", hint=nearest(output, self._outputs))
        return output

    def _how_far(self) -> str:
        stages = self.counters()["stages"]
        given = ", ".join(f"{name} {each['out']:,}" for name, each in stages.items())
        full = filling({name: each["gauges"] for name, each in stages.items()})
        return "; ".join([f"so far the stages have given {given}", *full])

    def _raise_why(self) -> NoReturn:
        if self.error is not None:
            raise self.error.with_traceback(None)  # each call would lengthen it; the cause has the place
        raise ClosedError("this pipeline was closed", hint="make a new one") from None


class _Run:
    """The stages at work. It knows nothing of its pipeline, which may be forgotten while they are."""

    def __init__(self, stages: dict[str, Stage[Any]]) -> None:
        self.stages = stages
        self.error: StageError | None = None
        self.at_close: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self.process: HomeProcess | None = None
        """Where its threads are, once they were started."""

    @property
    def elsewhere(self) -> bool:
        """Whether this process was forked from the one that has the threads."""
        return self.process is not None and self.process.left

    def refuse_elsewhere(self) -> None:
        if self.elsewhere:
            raise left_behind("this pipeline")

    def fail(self, error: StageError) -> None:
        with self._lock:
            if self.error is not None:
                return
            self.error = error
        _log.error("%s", error.message)
        self.stop()

    def stop(self) -> None:
        for stage in self.stages.values():
            stage.stop()

    def close(self) -> None:
        if self.elsewhere:  # where what is called at the end belongs, too
            return
        self.stop()
        for stage in self.stages.values():
            stage.on_failure = None  # which knows all stages: one that is held would hold the others
        while self.at_close:
            self.at_close.pop()()

    def join(self, timeout_s: float | None) -> bool:
        deadline = Deadline(timeout_s)
        return all(stage.join(deadline.left_s) for stage in self.stages.values())

    def at_work(self) -> list[str]:
        return [name for name, stage in self.stages.items() if not stage.join(0)]


Stages = Mapping[str, Stage[Any]]


def named_queues(stages: Stages) -> dict[str, Queue[Any]]:
    """Every queue: outputs as `stage` or `stage.output`, and `stage.input` for what is fed from outside."""
    queues = {
        f"{name}.{output}" if output else name: stage.output(output)
        for name, stage in stages.items()
        for output in stage.outputs
    }
    for name, stage in stages.items():
        outside = [intake.queue for intake in stage.inputs if intake.queue.maker is None]
        queues |= {f"{name}.input{number or ''}": queue for number, queue in enumerate(outside)}
    return queues


def checked_outputs(stages: Stages, wanted: str | Sequence[str] | None) -> dict[str, Queue[Any]]:
    """Refuse a graph that cannot work; give the queues that come out of one that can, by name."""
    _refuse_strange_stages(stages)
    queues = named_queues(stages)
    names = {id(queue): name for name, queue in queues.items()}
    consumers: dict[int, str] = {}
    for name, stage in stages.items():
        for intake in stage.inputs:
            _refuse_strangers(name, intake.queue, stages)
            other = consumers.setdefault(id(intake.queue), name)
            if other != name or sum(each.queue is intake.queue for each in stage.inputs) > 1:
                _refuse_two_consumers(names[id(intake.queue)], other, name)
    loose = [name for name, queue in queues.items() if queue.maker is not None and id(queue) not in consumers]
    outputs = _wanted_outputs(wanted, loose, queues)
    for name, queue in outputs.items():
        if id(queue) in consumers:
            _refuse_two_consumers(name, consumers[id(queue)], "the output of the pipeline")
    if unread := [name for name in loose if name not in outputs]:
        raise RecipeError(
            f"no stage takes what comes out of {_listed(unread)}",
            hint=f"pass output={sorted({*outputs, *unread})}, or give it to a stage",
        )
    return outputs


def _refuse_strange_stages(stages: Stages) -> None:
    if not isinstance(stages, Mapping):
        raise RecipeError(
            f"the stages of a pipeline are a {type(stages).__name__}", hint='give each a name: {"name": stage, …}'
        )
    if not stages:
        raise RecipeError("a pipeline without stages does nothing", hint='pass {"name": stage, …}')
    seen: dict[int, str] = {}
    for name, stage in stages.items():
        if not isinstance(name, str) or not name or "." in name:
            raise RecipeError(f"{name!r} cannot be the name of a stage", hint="a name is a word without a dot")
        if not isinstance(stage, Stage):
            raise RecipeError(
                f"{name!r} is a {type(stage).__name__} and no stage", hint="derive it from MapStage or SourceStage"
            )
        other = seen.setdefault(id(stage), name)
        if other != name:
            raise RecipeError(f"{other!r} and {name!r} are the same stage", hint="make one stage for each name")


def _refuse_strangers(name: str, queue: Queue[Any], stages: Stages) -> None:
    """Refuse an input from outside the pipeline's stages."""
    before = queue.maker
    if before is not None and not any(each is before for each in stages.values()):
        raise RecipeError(
            f"stage {name!r} takes from a {type(before).__name__} that is not in the pipeline",
            hint="add that stage to the dict, too",
        )


def _refuse_two_consumers(queue: str, first: str, second: str) -> None:
    raise RecipeError(
        f"{first!r} and {second!r} both take from {queue!r}: each item would go to one of them",
        hint="let one stage take it and give it two outputs",
    )


def _wanted_outputs(
    wanted: str | Sequence[str] | None, loose: list[str], queues: dict[str, Queue[Any]]
) -> dict[str, Queue[Any]]:
    if wanted is None:
        if len(loose) > 1:
            raise RecipeError(
                f"there are {len(loose)} loose ends: {_listed(loose)}", hint=f"pass output={loose}, or join them"
            )
        wanted = loose
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    for name in names:
        if name not in queues or queues[name].maker is None:
            ends = [known for known, queue in queues.items() if queue.maker is not None]
            raise RecipeError(f"there is no output {name!r}", hint=nearest(name, ends))
        if names.count(name) > 1:
            raise RecipeError(f"the output {name!r} is named twice", hint="name it once")
    return {name: queues[name] for name in names}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
