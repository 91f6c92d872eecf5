"""Kinds of stages by name: those that were registered, and those of installed packages (`millstream.stages`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from millstream.errors import RecipeError
from millstream.settings import found_by_name, known_names, parameters_of, register
from millstream.stages.stage import Stage
from millstream.stats import counted

GROUP = "millstream.stages"
Factory = Callable[..., Stage[Any]]
_registered: dict[str, Factory] = {}


def register_stage(kind: str, made: Factory) -> None:
    """Make a kind of stage known to recipes: a class, or a function that takes inputs and settings.

    >>> from millstream.stages.map_stage import MapStage

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
    places = [
        key for key, each in parameters.items() if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    meant = [key for key in places if any(word in str(parameters[key].annotation) for word in ("Queue", "Stage"))]
    takes = [key for key in places if key in meant or parameters[key].annotation is inspect.Parameter.empty]
    any_number = any(each.kind is each.VAR_POSITIONAL for each in parameters.values())
    wanted = [key for key in meant if parameters[key].default is inspect.Parameter.empty]
    if inputs < len(wanted) or (inputs > len(takes) and not any_number):
        raise RecipeError(f"{name} takes {counted(len(takes), 'input')}, not {inputs}", hint="write input: [stage, …]")
    return {key: each for key, each in parameters.items() if key not in places[:inputs] and key not in meant}
