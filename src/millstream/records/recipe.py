"""A recipe: which steps, in which order, with which settings. From a list in Python, a TOML or a YAML file.

    [[steps]]
    name = "normalize"

    [[steps]]
    name = "gopher_quality"
    min_words = 20

A recipe is plain data, so it goes into the manifest as it is; its digest is part of every cache key.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.errors import RecipeError
from millstream.records.pipeline import After, Before, Pipeline
from millstream.records.processor import DataProcessor, FunctionProcessor, Outcome, label_of
from millstream.records.registry import make_processor
from millstream.settings import parsed_file
from millstream.sources import Record

_EXAMPLE = {"toml": 'write [[steps]] and name = "…" for each', "yaml": "write steps: and - name: … for each"}
Step = str | Mapping[str, Any] | DataProcessor | Callable[[Record], Outcome]


@dataclass(frozen=True)
class Recipe:
    """Steps that are ready to run, and what they were made from.

    >>> recipe = Recipe.of(["normalize", {"name": "length", "min_words": 5}])
    >>> [step["name"] for step in recipe.canonical()]
    ['normalize', 'length']
    >>> recipe.digest() == Recipe.of(recipe.canonical()).digest()
    True
    """

    steps: tuple[DataProcessor, ...] = ()

    @classmethod
    def of(cls, recipe: Recipe | Sequence[Step] | str | os.PathLike[str] | None) -> Recipe:
        """A recipe from a list of steps, or from a file."""
        if isinstance(recipe, Recipe):
            return recipe
        if recipe is None:
            return cls()
        if isinstance(recipe, str | os.PathLike):
            return cls.load(recipe)
        made = cls(tuple(_step(number, step) for number, step in enumerate(recipe, 1)))
        made.pipeline()  # refuses an impossible order now, not in a worker
        return made

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recipe:
        """A recipe from a TOML or YAML file with a list `steps`."""
        content = parsed_file(Path(path), _EXAMPLE)
        steps = content.get("steps") if isinstance(content, dict) else content
        if not isinstance(steps, list):
            raise RecipeError(f"{path}: there is no list 'steps'", hint='write [[steps]] and name = "…" for each')
        if isinstance(content, dict) and set(content) != {"steps"}:
            unknown = sorted(set(content) - {"steps"})[0]
            raise RecipeError(f"{path}: unknown entry {unknown!r}", hint="a recipe holds 'steps' only")
        try:
            return cls.of(steps)
        except RecipeError as error:
            raise RecipeError(f"{path}: {error.message}", hint=error.hint) from None

    def pipeline(self, *, before: Before | None = None, after: After | None = None) -> Pipeline:
        """The steps, ready for blocks of records."""
        return Pipeline(self.steps, before=before, after=after)

    def canonical(self) -> list[dict[str, Any]]:
        """Every step with all its settings, as JSON holds them: for the manifest."""
        plain: list[dict[str, Any]] = json.loads(
            json.dumps([{"name": step.name, **step.settings()} for step in self.steps])
        )
        return plain

    def digest(self) -> str | None:
        """What results depend on, as 32 hexadecimal digits; None if a step cannot be identified (see `uncacheable`)."""
        identities = [step.identity() for step in self.steps]
        if None in identities:
            return None
        named = [[step.name, identity] for step, identity in zip(self.steps, identities, strict=True)]
        return hashlib.blake2b(json.dumps(named, sort_keys=True).encode(), digest_size=16).hexdigest()

    def uncacheable(self) -> list[str]:
        """The steps whose results cannot be cached, since what they depend on cannot be known."""
        return [label_of(step) for step in self.steps if step.identity() is None]


def _step(number: int, step: object) -> DataProcessor:
    if isinstance(step, DataProcessor):
        if not step.name:
            raise RecipeError(
                f"step {number}: {type(step).__name__} has no name", hint='write name = "…" into the class'
            )
        return step
    if isinstance(step, str):
        return make_processor(step)
    if isinstance(step, Mapping):
        settings = {str(key): value for key, value in step.items()}
        name = settings.pop("name", None)
        if not isinstance(name, str):
            raise RecipeError(f"step {number} has no name", hint='write {"name": "length", "min_words": 5}')
        try:
            return make_processor(name, settings)
        except RecipeError as error:
            raise RecipeError(f"step {number}: {error.message}", hint=error.hint) from None
    if callable(step) and not isinstance(step, type):
        return FunctionProcessor(step)
    raise RecipeError(f"step {number} is {step!r}", hint="a step is a name, a dict with one, a processor or a function")
