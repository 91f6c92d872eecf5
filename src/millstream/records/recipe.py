"""A recipe: which steps, in which order, with which settings. Its pipeline takes blocks of records through them.

    [[steps]]
    name = "normalize"

    [[steps]]
    name = "gopher_quality"
    min_words = 20

It comes from a list in Python, a TOML or a YAML file. It is plain data, so the manifest holds it as it is; its digest
is part of every cache key. Steps are named: ours, registered ones, and those of installed packages
(`millstream.processors`). A pipeline never raises for a record: a processor that fails makes a bad record, and the
policy for bad records decides.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from millstream.errors import RecipeError
from millstream.records.processor import (
    DataProcessor,
    FunctionProcessor,
    GlobalStep,
    Outcome,
    ProcessedBlock,
    Reject,
    label_of,
)
from millstream.settings import check_settings, found_by_name, known_names, parameters_of, parsed_file, register
from millstream.sources import BadRecord, Record, RecordBlock

_EXAMPLE = {"toml": 'write [[steps]] and name = "…" for each', "yaml": "write steps: and - name: … for each"}
_FAILED = "processor failed"
_GROUP = "millstream.processors"
Step = str | Mapping[str, Any] | DataProcessor | Callable[[Record], Outcome]
Before = Callable[[Record], None]
After = Callable[[Record, Outcome], None]
Factory = Callable[..., DataProcessor]
F = TypeVar("F", bound=Factory)


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

    def pipeline(self, *, before: Before | None = None, after: After | None = None) -> CleaningPipeline:
        """The steps, ready for blocks of records."""
        return CleaningPipeline(self.steps, before=before, after=after)

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
        """The steps whose results cannot be cached, since their identity is unknown."""
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


@dataclass(frozen=True, slots=True)
class Rejected:
    """Records that one step dropped, as the step saw them, and why: "rule: reason"."""

    block: RecordBlock
    reasons: list[str]


@dataclass(slots=True)
class PipelineResult:
    """What became of a block. `keys` holds one array per global step, one row per record that remains."""

    block: RecordBlock
    rejected: list[Rejected] = field(default_factory=list)
    bad: list[BadRecord] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    keys: list[NDArray[np.uint64]] = field(default_factory=list)

    @property
    def counts(self) -> Counter[str]:
        """How many records were dropped, by rule and reason."""
        return Counter(reason for each in self.rejected for reason in each.reasons)


class CleaningPipeline:
    """Steps in their order, and callbacks around them.

    `before(record)` sees each record that comes in; `after(record, outcome)` sees it again with the records it became,
    or the `Reject`. Both are called in the worker's thread, record by record; a record that failed has no outcome.

    >>> from dataclasses import replace
    >>> from millstream.records.processor import FunctionProcessor
    >>> def shout(record):
    ...     return replace(record, text=record.text.upper()) if record.text else Reject("no text")
    >>> block = RecordBlock.of([Record("ab", "a.txt", 0, 0, 2), Record("", "a.txt", 1, 3, 3)], "a.txt")
    >>> done = CleaningPipeline([FunctionProcessor(shout)]).run(block)
    >>> [record.text for record in done.block], dict(done.counts)
    (['AB'], {'shout: no text': 1})
    """

    def __init__(
        self, steps: Sequence[DataProcessor], *, before: Before | None = None, after: After | None = None
    ) -> None:
        self.local_steps = [step for step in steps if not isinstance(step, GlobalStep)]
        self.global_steps = [step for step in steps if isinstance(step, GlobalStep)]
        if [*self.local_steps, *self.global_steps] != list(steps):
            late = label_of(self.global_steps[0])
            raise RecipeError(f"{late}: a step stands after it", hint="put deduplication last in the recipe")
        self.before = before
        self.after = after

    def run(self, block: RecordBlock) -> PipelineResult:
        """Take a block through all steps."""
        if self.before is not None:
            for record in block:
                self.before(record)
        result = PipelineResult(block)
        parents = np.arange(len(block), dtype=np.int64)
        dropped: dict[int, Reject] = {}
        for step in self.local_steps:
            rule, seen = label_of(step), result.block
            done = _processed(step, seen)
            result.bad += [_bad(seen, place, rule, error) for place, error in done.failed]
            if done.rejected:
                reasons = [f"{rule}: {reason}" for _, reason in done.rejected]
                result.rejected.append(Rejected(_taken(seen, [place for place, _ in done.rejected]), reasons))
                if self.after is not None:
                    places = (int(parents[place]) for place, _ in done.rejected)
                    dropped |= {place: Reject(reason) for place, reason in zip(places, reasons, strict=True)}
            result.notes.update({f"{rule}: {note}": count for note, count in done.notes.items() if count})
            result.block, parents = done.block, parents[done.parents]
        result.keys = [step.keys(result.block) for step in self.global_steps]
        if self.after is not None:
            _call_after(self.after, block, result.block, parents, dropped)
        return result


def _processed(step: DataProcessor, block: RecordBlock) -> ProcessedBlock:
    """One step; if it cannot say which record made it fail, the records go through it one by one."""
    try:
        return step.process_block(block)
    except Exception:
        return DataProcessor.process_block(step, block)


def _taken(block: RecordBlock, places: list[int]) -> RecordBlock:
    wanted = np.zeros(len(block), np.bool_)
    wanted[places] = True
    return block.select(wanted)


def _bad(block: RecordBlock, place: int, rule: str, error: Exception) -> BadRecord:
    found = f"{rule} raised {type(error).__name__}: {error}"
    origin = int(block.rows[place]), int(block.starts[place]), int(block.stops[place])
    return BadRecord(
        _FAILED, *origin, found, hint=f"mend {rule}, or let it reject the record", raw=block.bytes_of(place)
    )


def _call_after(
    after: After, block: RecordBlock, done: RecordBlock, parents: NDArray[np.int64], dropped: dict[int, Reject]
) -> None:
    children: dict[int, list[Record]] = {}
    for place, record in zip(parents.tolist(), done, strict=True):
        children.setdefault(place, []).append(record)
    for place, record in enumerate(block):
        became = children.get(place)
        if became is not None:
            after(record, became[0] if len(became) == 1 else became)
        elif place in dropped:
            after(record, dropped[place])


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
    return known_names(_known(), _GROUP)


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
    """Every registered processor; ours are imported at the first lookup."""
    from millstream.records.dedup import ExactDedup, MinhashDedup
    from millstream.records.normalize import Normalize, Regex
    from millstream.records.phrases import Blocklist, Decontaminate
    from millstream.records.pii import MaskPII
    from millstream.records.quality import C4Quality, FineWebQuality, GopherQuality, GopherRepetition, Language, Length

    quality = (C4Quality, FineWebQuality, GopherQuality, GopherRepetition, Language, Length)
    others = (Blocklist, Decontaminate, ExactDedup, MaskPII, MinhashDedup, Normalize, Regex)
    return {each.name: each for each in (*quality, *others)}


def _find(name: str) -> Factory:
    return found_by_name(name, _known(), _GROUP, "processor")
