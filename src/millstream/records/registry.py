"""Processors by name: ours, those that were registered, and those of installed packages (`millstream.processors`)."""

from __future__ import annotations

import difflib
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from importlib import metadata
from typing import Any, TypeVar, Union, get_args, get_origin

from millstream.errors import RecipeError
from millstream.records.processor import DataProcessor

GROUP = "millstream.processors"

Factory = Callable[..., DataProcessor]
F = TypeVar("F", bound=Factory)

_registered: dict[str, Factory] = {}


def register_processor(factory: F, name: str | None = None) -> F:
    """Make a processor known under its `name`; a factory is a class or function that takes settings. Also a decorator.

    >>> @register_processor
    ... class Twice(DataProcessor):
    ...     name = "twice"
    ...     def process(self, record):
    ...         return [record, record]
    >>> make_processor("twice").name
    'twice'
    """
    found = name or getattr(factory, "name", "")
    if not found or not isinstance(found, str):
        raise RecipeError(f"{factory!r} has no name", hint='write name = "…" into the class, or pass name=')
    if _registered.setdefault(found, factory) is not factory and not _same_definition(_registered[found], factory):
        raise RecipeError(f"there is a processor {found!r} already: {_registered[found]!r}", hint="choose another name")
    _registered[found] = factory
    return factory


def known_processors() -> list[str]:
    """The names that a recipe may use, sorted."""
    return sorted({*_registered, *(point.name for point in metadata.entry_points(group=GROUP))})


def make_processor(name: str, settings: Mapping[str, Any] | None = None) -> DataProcessor:
    """A processor by its name and settings; what does not fit is refused with the nearest names.

    >>> make_processor("length", {"min_words": 5}).settings()["min_words"]
    5
    >>> make_processor("lenght")
    Traceback (most recent call last):
    millstream.errors.RecipeError: there is no processor 'lenght'
      hint: did you mean length?
    >>> make_processor("length", {"min_word": 5})
    Traceback (most recent call last):
    millstream.errors.RecipeError: length: there is no setting 'min_word'
      hint: it has min_characters, max_characters, min_words, max_words, min_bytes, max_bytes
    """
    factory = _find(name)
    settings = dict(settings or {})
    _check(name, settings, _parameters(factory))
    processor = factory(**settings)
    if not is_dataclass(processor):
        processor.given = settings
    return processor


def _parameters(factory: Factory) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(factory, eval_str=True).parameters)
    except NameError:  # an annotation that exists for type checkers only
        return dict(inspect.signature(factory).parameters)


def _check(name: str, settings: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]) -> None:
    open_ended = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    named = {key: each for key, each in parameters.items() if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)}
    for setting, value in settings.items():
        if setting in named:
            wanted = named[setting].annotation
            if not fits(value, wanted):
                raise RecipeError(f"{name}: {setting}={value!r} does not fit", hint=f"it must be {_spelled(wanted)}")
        elif not open_ended:
            raise RecipeError(f"{name}: there is no setting {setting!r}", hint=f"it has {', '.join(named) or 'none'}")
    for setting, parameter in named.items():
        if parameter.default is parameter.empty and setting not in settings:
            raise RecipeError(f"{name}: the setting {setting!r} is missing", hint=f"give it a value: {setting} = …")


def fits(value: object, wanted: Any) -> bool:
    """Whether a value as JSON, TOML and YAML have them fits an annotation; annotations of other kinds fit everything.

    >>> fits(3, float), fits("3", int), fits(True, int), fits(["en"], tuple[str, ...]), fits(None, int | None)
    (True, False, False, True, True)
    """
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if wanted is None or wanted is type(None):
        return value is None
    if wanted is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if wanted in (bool, str):
        return isinstance(value, wanted)
    if origin in (tuple, list):
        if not isinstance(value, list | tuple):
            return False
        if origin is tuple and inner and inner[-1] is not Ellipsis:
            return len(value) == len(inner) and all(fits(v, w) for v, w in zip(value, inner, strict=True))
        return not inner or all(fits(each, inner[0]) for each in value)
    return True


def _find(name: str) -> Factory:
    if name not in _registered:
        for point in metadata.entry_points(group=GROUP, name=name):
            try:
                _registered[name] = point.load()
            except Exception as error:
                raise RecipeError(
                    f"the plugin {name!r} of {point.value} cannot be loaded: {error}",
                    hint=f"see what `python -c 'import {point.module}'` says",
                ) from error
    if name not in _registered:
        known = known_processors()
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
        raise RecipeError(f"there is no processor {name!r}", hint=hint)
    return _registered[name]


def _same_definition(one: Factory, other: Factory) -> bool:
    """A module that is run again defines its classes anew."""
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


def _spelled(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
