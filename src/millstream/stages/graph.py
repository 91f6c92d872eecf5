"""What joins stages: which queue leads from where to where. A wrong graph is refused before a thread starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from millstream.errors import RecipeError
from millstream.settings import nearest
from millstream.stages.queue import Queue
from millstream.stages.stage import Stage

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
            f"nobody takes what comes out of {_listed(unread)}",
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
