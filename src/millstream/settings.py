"""Settings that come from files: parsed, never executed, and compared with what a constructor takes."""

from __future__ import annotations

import difflib
import inspect
import math
import operator
import os
import re
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from millstream.errors import LoaderError, MillstreamError, MissingExtra, RecipeError

Parameters = Mapping[str, inspect.Parameter]
F = TypeVar("F")
T = TypeVar("T")
UNITS = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "KI": 2**10,
    "MI": 2**20,
    "GI": 2**30,
    "TI": 2**40,
}
A_SIZE = "write bytes, or '512MB', '2GB', '64MiB'"
MOST_VALUES = 1 << 20
"""Of a recipe, with everything that its anchors repeat: the longest ones have some hundred."""


def parsed_file(path: Path, example: Mapping[str, str]) -> object:
    """What a TOML or YAML file holds; `example` says for each of the two how such a file begins."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: cannot be read: {error}", hint="a recipe is a TOML or YAML file in UTF-8") from None
    if path.suffix == ".toml":
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise RecipeError(f"{path}: not TOML: {error}", hint=example["toml"]) from None
        except RecursionError:
            raise _too_deep(path, example["toml"]) from None
    if path.suffix in (".yaml", ".yml"):
        yaml = yaml_module()
        try:
            content = yaml.safe_load(text)
            repeats = _values_in(content, {}) > MOST_VALUES
        except (yaml.YAMLError, ValueError) as error:  # the latter of a date or a number that is none
            raise RecipeError(f"{path}: not YAML: {error}", hint=example["yaml"]) from None
        except RecursionError:
            raise _too_deep(path, example["yaml"]) from None
        if repeats:
            raise RecipeError(
                f"{path}: an anchor (&) stands in itself, or repeats too much",
                hint="write out what its aliases (*) mean",
            )
        return content
    raise RecipeError(f"{path}: recipes are .toml or .yaml files", hint="rename it, or pass what it holds")


def _too_deep(path: Path, hint: str) -> RecipeError:
    return RecipeError(f"{path}: lists and mappings are nested too deeply", hint=hint)


def _values_in(content: object, counted: dict[int, float]) -> float:
    """How many values there are when every alias is written out; what stands in itself has no end.

    >>> _values_in({"a": [1, 2]}, {})
    4
    >>> inside = []; inside.append(inside)
    >>> _values_in(inside, {})
    inf
    """
    if not isinstance(content, Mapping | list | tuple):
        return 1
    if id(content) not in counted:
        counted[id(content)] = math.inf  # for those inside
        values = content.values() if isinstance(content, Mapping) else content
        counted[id(content)] = 1 + sum(_values_in(each, counted) for each in values)
    return counted[id(content)]


_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_STORAGE = re.compile(r"(s3|gs|gcs|az|abfss?|hdfs|hf|https?|rediss?|memory|file):/")
"""Addresses whose second slash a Path has eaten."""


def local_path(where: str | os.PathLike[str], what: str, error: type[MillstreamError]) -> Path:
    """A path on this machine; an address is refused, as only local files are read and written.

    >>> local_path("data/corpus", "a store", LoaderError).as_posix()
    'data/corpus'
    >>> local_path("s3://bucket/corpus", "a store", LoaderError)
    Traceback (most recent call last):
    millstream.errors.LoaderError: s3://bucket/corpus: a store behind s3:// is not supported yet
      hint: pass a local path: copy it here first, or mount it
    >>> local_path("file:///data/corpus", "a store", LoaderError)
    Traceback (most recent call last):
    millstream.errors.LoaderError: file:///data/corpus: a store is named by its path, not by a file:// address
      hint: pass '/data/corpus'
    """
    if not isinstance(where, str | os.PathLike) or not isinstance(text := os.fspath(where), str):
        raise error(f"{where!r} is not the path of {what}", hint="pass a string or a pathlib.Path")
    match = _ADDRESS.match(text) or (None if isinstance(where, str) else _STORAGE.match(text))
    if match is None:
        return Path(where)
    scheme = match[0].rstrip(":/").lower()
    if scheme == "file":
        from urllib.parse import urlsplit
        from urllib.request import url2pathname

        path = url2pathname(urlsplit(text).path)
        raise error(f"{text}: {what} is named by its path, not by a file:// address", hint=f"pass {path!r}")
    raise error(
        f"{text}: {what} behind {scheme}:// is not supported yet",
        hint="pass a local path: copy it here first, or mount it",
    )


def yaml_module() -> Any:
    """The library for YAML, or an error that says how to get it."""
    try:
        import yaml
    except ImportError:
        raise MissingExtra.of("pyyaml", "yaml") from None
    return yaml


def parameters_of(factory: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """What a class or function takes, with its annotations."""
    try:
        return dict(inspect.signature(factory, eval_str=True).parameters)
    except NameError:  # an annotation that exists for type checkers only
        return dict(inspect.signature(factory).parameters)


def check_settings(name: str, settings: Mapping[str, Any], parameters: Parameters) -> None:
    """Refuse a setting that does not exist, does not fit or is missing."""
    open_ended = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    named = {key: each for key, each in parameters.items() if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)}
    for setting, value in settings.items():
        if setting in named:
            wanted = named[setting].annotation
            if not fits(value, wanted):
                raise RecipeError(f"{name}: {setting}={value!r} does not fit", hint=f"it must be {spelled(wanted)}")
        elif not open_ended:
            near = difflib.get_close_matches(setting, named, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise RecipeError(
                f"{name}: there is no setting {setting!r}", hint=f"it has {', '.join(named) or 'none'}{meant}"
            )
    for setting, parameter in named.items():
        if parameter.default is parameter.empty and setting not in settings:
            raise RecipeError(f"{name}: the setting {setting!r} is missing", hint=f"give it a value: {setting} = …")


def made_from(kind: type[T], said: T | Mapping[str, Any] | None, name: str) -> T:
    """Settings of a kind: as they are, from a mapping of their names, or by default.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Mill:
    ...     stones: int = 2
    >>> made_from(Mill, {"stones": 3}, "mill"), made_from(Mill, None, "mill")
    (Mill(stones=3), Mill(stones=2))
    """
    if isinstance(said, kind):
        return said
    if said is not None and not isinstance(said, Mapping):
        raise RecipeError(f"{name}={said!r} does not fit", hint=f"pass a {kind.__name__}, or its settings by name")
    check_settings(name, said or {}, parameters_of(kind))
    return kind(**(said or {}))


def fits(value: object, wanted: Any) -> bool:
    """Whether a value as JSON, TOML and YAML have them fits an annotation; annotations of other kinds fit everything.

    >>> fits(3, float), fits("3", int), fits(True, int), fits(["en"], tuple[str, ...]), fits(None, int | None)
    (True, False, False, True, True)
    >>> fits("drop", Literal["block", "drop_new"]), fits({"a": 1}, dict[str, int]), fits([1], dict)
    (False, True, False)
    >>> fits("games", str | os.PathLike[str]), fits(3, str | os.PathLike[str])
    (True, False)
    """
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if origin is Literal:
        return any(value == each and type(value) is type(each) for each in inner)
    if wanted is None or wanted is type(None):
        return value is None
    if wanted is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    if wanted is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if (origin or wanted) is os.PathLike:
        return isinstance(value, str | os.PathLike)
    if wanted in (bool, str):
        return isinstance(value, wanted)
    if (origin or wanted) in (dict, Mapping):
        return isinstance(value, Mapping) and (not inner or all(fits(each, inner[1]) for each in value.values()))
    if origin in (tuple, list):
        if not isinstance(value, list | tuple):
            return False
        if origin is tuple and inner and inner[-1] is not Ellipsis:
            return len(value) == len(inner) and all(fits(v, w) for v, w in zip(value, inner, strict=True))
        return not inner or all(fits(each, inner[0]) for each in value)
    return True


def size_in_bytes(said: str) -> int | None:
    """A size as people write it; None if it is none.

    >>> size_in_bytes("1.5 GB"), size_in_bytes("64MiB"), size_in_bytes("much")
    (1500000000, 67108864, None)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?\s*", said.upper())
    return None if match is None else int(float(match[1]) * UNITS[match[2] or ""])


def at_least(name: str, value: object, hint: str, least: int = 1) -> int:
    """A whole number of any kind that a caller gave, and no smaller one.

    >>> at_least("threads", 2, hint="leave it out")
    2
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < least:
        raise LoaderError(f"{name} must be an integer of at least {least}, not {value!r}", hint=hint)
    return number


def byte_count(name: str, said: object, hint: str = A_SIZE) -> int:
    """A number of bytes, or a size as people write it, that a caller gave.

    >>> byte_count("budget_bytes", "1kB"), byte_count("budget_bytes", 24)
    (1000, 24)
    """
    size = size_in_bytes(said) if isinstance(said, str) else said
    if size is None:
        raise LoaderError(f"{name}={said!r} is not a size", hint=A_SIZE)
    return at_least(name, size, hint)


def found_by_name(name: str, registered: dict[str, F], group: str, noun: str) -> F:
    """What was registered under a name, or is by an entry point of an installed package, which is then registered."""
    if name not in registered:
        from importlib import metadata

        for point in metadata.entry_points(group=group, name=name):
            try:
                registered[name] = point.load()
            except Exception as error:
                raise RecipeError(
                    f"the plugin {name!r} of {point.value} cannot be loaded: {error}",
                    hint=f"see what `python -c 'import {point.module}'` says",
                ) from error
    if name not in registered:
        raise RecipeError(f"there is no {noun} {name!r}", hint=nearest(name, known_names(registered, group)))
    return registered[name]


def register(name: str, made: Any, registered: dict[str, Any], noun: str) -> None:
    """Make something known under a name that is free; a module that is run again may define the same thing anew."""
    other = registered.setdefault(name, made)
    if other is not made and _definition(other) != _definition(made):
        raise RecipeError(f"there is a {noun} {name!r} already: {other!r}", hint="choose another name")
    registered[name] = made


def known_names(registered: Iterable[str], group: str) -> list[str]:
    """Every name that can be found, sorted."""
    from importlib import metadata

    return sorted({*registered, *(point.name for point in metadata.entry_points(group=group))})


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a name that does not exist: those that may have been meant, or all.

    >>> nearest("chunk_raeder", ["chunk_reader", "splitter"])
    'did you mean chunk_reader?'
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(names) or 'none'}"


def spelled(annotation: Any) -> str:
    """An annotation as it is written."""
    if get_origin(annotation) is Literal:
        return f"one of {', '.join(map(str, get_args(annotation)))}"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def _definition(made: Any) -> tuple[str, str]:
    return made.__module__, made.__qualname__
