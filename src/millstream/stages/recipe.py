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

Order in the file does not matter. An error names the line in a YAML file, the entry in any other recipe.
"""

from __future__ import annotations

import graphlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from millstream.errors import MillstreamError, RecipeError
from millstream.settings import check_settings, nearest, parsed_file
from millstream.stages.kinds import find_stage, known_stages, settable
from millstream.stages.places import Places
from millstream.stages.queue import Queue
from millstream.stages.stage import Stage

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
        content, places = recipe, Places("the recipe")
    else:
        path = Path(recipe)
        content, places = parsed_file(path, _EXAMPLE), Places.of_file(path)
    reader = _Reader(places)
    entries = reader.entries(content)
    return reader.stages(entries), reader.output(content), places.name


class _Reader:
    """Turns what a file holds into stages; every refusal names its place."""

    def __init__(self, places: Places) -> None:
        self._places = places

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
        if isinstance(cause, RecipeError) and cause.message.startswith(self._places.name):
            raise cause  # it knows its place better
        raise RecipeError(f"{self._places.where(place)} {message}", hint=hint) from cause
