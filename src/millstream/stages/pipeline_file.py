"""A pipeline as a file: which stages, joined how, with which settings. Nothing in it is executed.

    stages:
      - name: files
        stage: discovery
        path: games/
      - name: games
        stage: chunk_reader
        input: files
        threads: 2
    output: games

Order in the file does not matter. An error names the line in a YAML file, the entry in any other recipe. Kinds of
stages have names: those that were registered, and those of installed packages (`millstream.stages`).
"""

from __future__ import annotations

import graphlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from millstream.errors import MillstreamError, RecipeError
from millstream.settings import (
    check_settings,
    found_by_name,
    known_names,
    nearest,
    parameters_of,
    parsed_file,
    register,
    yaml_module,
)
from millstream.stages.queue import Queue
from millstream.stages.stage import Stage
from millstream.stats import counted

_EXAMPLE = {
    "toml": 'write [[stages]] with name = "…" and stage = "…" for each',
    "yaml": "write stages: and - {name: …, stage: …} for each",
}
Made = dict[str, Stage[Any]]


@dataclass(frozen=True)
class _Entry:
    """One stage of a recipe, before it is made."""

    place: tuple[str | int, ...]
    name: str
    kind: str
    inputs: tuple[str, ...]
    settings: dict[str, Any]


def read_recipe(recipe: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[Made, list[str] | None, str]:
    """The stages of a recipe, what comes out of it, and how it is called in messages."""
    content: Any
    if isinstance(recipe, Mapping):
        content, locations = recipe, SourceLocations("the recipe")
    else:
        path = Path(recipe)
        content, locations = parsed_file(path, _EXAMPLE), SourceLocations.of_file(path)
    reader = _Reader(locations)
    entries = reader.entries(content)
    return reader.stages(entries), reader.output(content), locations.name


class _Reader:
    """Turns what a file holds into stages; every refusal names its place."""

    def __init__(self, locations: SourceLocations) -> None:
        self._locations = locations

    def entries(self, content: Any) -> dict[str, _Entry]:
        listed = content.get("stages") if isinstance(content, Mapping) else None
        if not isinstance(listed, list) or not listed:
            self._refuse((), "there is no list 'stages'", _EXAMPLE["yaml"])
        for key in content:
            if key not in ("stages", "output"):
                self._refuse((key,), f"there is no entry {key!r}", nearest(str(key), ("stages", "output")))
        entries: dict[str, _Entry] = {}
        for number, raw in enumerate(listed):
            entry = self._entry(("stages", number), raw)
            if entry.name in entries:
                self._refuse((*entry.place, "name"), f"there are two stages {entry.name!r}", "give each its own name")
            entries[entry.name] = entry
        return entries

    def output(self, content: Mapping[str, Any]) -> list[str] | None:
        if "output" not in content:
            return None
        return list(self._names(("output",), content["output"]))

    def stages(self, entries: dict[str, _Entry]) -> Made:
        """Make each stage after those that it takes from."""
        made: Made = {}
        for name in self._in_order(entries):
            entry = entries[name]
            try:
                made[name] = self._stage(entry, made)
            except MillstreamError as error:
                self._refuse(entry.place, f"{name!r}: {error.message}", error.hint, error)
            except (TypeError, ValueError) as error:
                self._refuse(entry.place, f"{name!r}: {error}", "look at its settings", error)
        return {name: made[name] for name in entries}

    def _entry(self, place: tuple[str | int, ...], raw: Any) -> _Entry:
        if not isinstance(raw, Mapping):
            self._refuse(place, f"{raw!r} is no stage", _EXAMPLE["yaml"])
        settings = dict(raw)
        kind = settings.pop("stage", None)
        if not isinstance(kind, str):
            self._refuse(
                place, "the entry 'stage' is missing: its kind", f"known are {', '.join(known_stages()) or 'none'}"
            )
        name = settings.pop("name", kind)
        if not isinstance(name, str) or not name or "." in name:
            self._refuse((*place, "name"), f"{name!r} cannot be the name of a stage", "a name is a word without a dot")
        inputs = self._names((*place, "input"), settings.pop("input", []))
        for key in settings:
            if not isinstance(key, str):
                self._refuse(place, f"{name!r}: {key!r} is no setting", "settings have names")
        return _Entry(place, name, kind, inputs, settings)

    def _names(self, place: tuple[str | int, ...], raw: Any) -> tuple[str, ...]:
        names = [raw] if isinstance(raw, str) else raw
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            self._refuse(place, f"{raw!r} names no stages", 'write "stage" or "stage.output", or a list of them')
        return tuple(names)

    def _in_order(self, entries: dict[str, _Entry]) -> list[str]:
        before: dict[str, list[str]] = {}
        for name, entry in entries.items():
            before[name] = [each.partition(".")[0] for each in entry.inputs]
            for each in before[name]:
                if each not in entries:
                    hint = nearest(each, (other for other in entries if other != name))
                    self._refuse((*entry.place, "input"), f"{name!r}: there is no stage {each!r}", hint)
        try:
            return list(graphlib.TopologicalSorter(before).static_order())
        except graphlib.CycleError as error:
            circle = " → ".join(reversed(error.args[1]))
            place = (*entries[error.args[1][0]].place, "input")
            self._refuse(place, f"these stages wait for each other: {circle}", "items must come from somewhere")

    def _stage(self, entry: _Entry, made: Made) -> Stage[Any]:
        factory = find_stage(entry.kind)
        inputs = [self._queue(each, made) for each in entry.inputs]
        parameters = settable(factory, len(inputs))
        for setting in entry.settings:
            one = {name: each.replace(default=None) for name, each in parameters.items()}
            try:
                check_settings(entry.kind, {setting: entry.settings[setting]}, one)
            except RecipeError as error:
                self._refuse((*entry.place, setting), f"{entry.name!r}: {error.message}", error.hint)
        check_settings(entry.kind, entry.settings, parameters)
        stage = factory(*inputs, **entry.settings)
        if not isinstance(stage, Stage):
            raise RecipeError(f"{entry.kind} makes a {type(stage).__name__} and no stage", hint="register a Stage")
        return stage

    def _queue(self, name: str, made: Made) -> Queue[Any]:
        stage, _, output = name.partition(".")
        return made[stage].output(output)

    def _refuse(
        self, place: tuple[str | int, ...], message: str, hint: str | None, cause: Exception | None = None
    ) -> NoReturn:
        if isinstance(cause, RecipeError) and cause.message.startswith(self._locations.name):
            raise cause  # it knows its place better
        raise RecipeError(f"{self._locations.where(place)} {message}", hint=hint) from cause


GROUP = "millstream.stages"
Factory = Callable[..., Stage[Any]]
_registered: dict[str, Factory] = {}


def register_stage(kind: str, made: Factory) -> None:
    """Make a kind of stage known to recipes: a class, or a function that takes inputs and settings.

    >>> from millstream.stages.stage_kinds import MapStage

    >>> from millstream.stages.pipeline import Pipeline
    >>> class Upper(MapStage[str, str]):
    ...     def process(self, item):
    ...         return [item.upper()]
    >>> register_stage("upper", Upper)
    >>> Pipeline.from_recipe({"stages": [{"name": "loud", "stage": "uper"}]})
    Traceback (most recent call last):
    millstream.errors.RecipeError: the recipe: stages[0]: 'loud': there is no kind of stage 'uper'
      hint: did you mean upper?
    """
    register(kind, made, _known(), "kind of stage")


def find_stage(kind: str) -> Factory:
    """What makes stages of a kind."""
    return found_by_name(kind, _known(), GROUP, "kind of stage")


def known_stages() -> list[str]:
    """The kinds that a recipe may use, sorted."""
    return known_names(_known(), GROUP)


def _known() -> dict[str, Factory]:
    """What is registered, and before it ours: the live road lies downstream, so it is asked when a kind is wanted."""
    if not _registered:
        _registered.update(import_module("millstream.selfplay").stages_of_recipes())
    return _registered


def settable(factory: Factory, inputs: int) -> dict[str, inspect.Parameter]:
    """What a recipe may set: not the inputs, which come first, and not the name.

    `**settings` of a class go to the class above, those of a function to any stage.
    """
    found: dict[str, inspect.Parameter] = {}
    for number, constructor in enumerate(_constructors(factory)):
        parameters = parameters_of(constructor)
        parameters.pop("self", None)
        passed_on = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        if number == 0:
            parameters = _without_inputs(factory, parameters, inputs)
        for name, each in parameters.items():
            if name != "name" and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL):
                # What a class above needs, the class itself may give to it.
                found.setdefault(name, each.replace(default=None) if number else each)
        if not passed_on:
            break
    return found


def _constructors(factory: Factory) -> list[Callable[..., Any]]:
    if not isinstance(factory, type):
        return [factory, Stage.__init__]
    return [vars(each)["__init__"] for each in factory.__mro__ if "__init__" in vars(each)]


def _without_inputs(
    factory: Factory, parameters: dict[str, inspect.Parameter], inputs: int
) -> dict[str, inspect.Parameter]:
    """Refuse more or fewer inputs than there are parameters for, and leave those parameters out."""
    name = getattr(factory, "__name__", str(factory))
    positional = [
        key for key, each in parameters.items() if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    meant = [key for key in positional if any(word in str(parameters[key].annotation) for word in ("Queue", "Stage"))]
    takes = [key for key in positional if key in meant or parameters[key].annotation is inspect.Parameter.empty]
    any_number = any(each.kind is each.VAR_POSITIONAL for each in parameters.values())
    wanted = [key for key in meant if parameters[key].default is inspect.Parameter.empty]
    if inputs < len(wanted) or (inputs > len(takes) and not any_number):
        raise RecipeError(f"{name} takes {counted(len(takes), 'input')}, not {inputs}", hint="write input: [stage, …]")
    return {key: each for key, each in parameters.items() if key not in positional[:inputs] and key not in meant}


Place = tuple[str | int, ...]


@dataclass(frozen=True)
class SourceLocations:
    """The lines of a file's entries, as far as they are known.

    >>> SourceLocations("mill.toml").where(("stages", 2, "threads"))
    'mill.toml: stages[2].threads:'
    >>> SourceLocations("mill.yaml", {("stages", 2): 7}).where(("stages", 2, "threads"))
    'mill.yaml, line 7:'
    """

    name: str
    lines: Mapping[Place, int] = field(default_factory=dict)

    @classmethod
    def of_file(cls, path: Path) -> SourceLocations:
        """Look where things stand; a key that stands twice in one place is refused."""
        if path.suffix not in (".yaml", ".yml"):
            return cls(str(path))
        yaml = yaml_module()
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        lines: dict[Place, int] = {}
        for place, line in _lines(root, ()):
            if place in lines:
                raise RecipeError(f"{path}, line {line}: {place[-1]!r} stands here twice", hint="remove one of them")
            lines[place] = line
        return cls(str(path), lines)

    def where(self, place: Place) -> str:
        """The name of the file and the line of an entry, or of what it stands in; else its path."""
        for length in range(len(place), 0, -1):
            if line := self.lines.get(place[:length]):
                return f"{self.name}, line {line}:"
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
        return f"{self.name}: {path.lstrip('.')}:" if path else f"{self.name}:"


def _lines(node: Any, place: Place) -> Iterator[tuple[Place, int]]:
    if node is None:
        return
    if node.id == "mapping":
        for key, value in node.value:
            inner = (*place, str(key.value))
            yield inner, key.start_mark.line + 1
            yield from _lines(value, inner)
    elif node.id == "sequence":
        for number, value in enumerate(node.value):
            inner = (*place, number)
            yield inner, value.start_mark.line + 1
            yield from _lines(value, inner)
