"""Processors by name: ours, those that were registered, and those of installed packages (`millstream.processors`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import Any, TypeVar

from millstream.errors import RecipeError
from millstream.records.processor import DataProcessor
from millstream.settings import check_settings, found_by_name, known_names, parameters_of, register

GROUP = "millstream.processors"

Factory = Callable[..., DataProcessor]
F = TypeVar("F", bound=Factory)


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
    register(found, factory, _known(), "processor")
    return factory


def known_processors() -> list[str]:
    """The names that a recipe may use, sorted."""
    return known_names(_known(), GROUP)


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
      hint: it has min_characters, max_characters, min_words, max_words, min_bytes, max_bytes; did you mean min_words?
    """
    factory = _find(name)
    settings = dict(settings or {})
    check_settings(name, settings, parameters_of(factory))
    processor = factory(**settings)
    if not is_dataclass(processor):
        processor.given = settings
    return processor


@cache
def _known() -> dict[str, Factory]:
    """What is registered: ours from the start, which are imported when a processor is first asked for."""
    from millstream.records.dedup import ExactDedup, MinhashDedup
    from millstream.records.language import Language
    from millstream.records.length import Length
    from millstream.records.normalize import Normalize
    from millstream.records.patterns import Regex
    from millstream.records.phrases import Blocklist, Decontaminate
    from millstream.records.pii import MaskPII
    from millstream.records.quality import C4Quality, FineWebQuality, GopherQuality, GopherRepetition

    quality = (C4Quality, FineWebQuality, GopherQuality, GopherRepetition, Language, Length)
    others = (Blocklist, Decontaminate, ExactDedup, MaskPII, MinhashDedup, Normalize, Regex)
    return {each.name: each for each in (*quality, *others)}


def _find(name: str) -> Factory:
    return found_by_name(name, _known(), GROUP, "processor")
