"""A step of a recipe: a record in; the record, other records or a reason to drop it out.

A processor is pure: the same text gives the same result, whatever came before. That is what makes results equal for any
number of workers, and worth caching.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass
from types import CodeType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from millstream.sources import Record, RecordBlock


@dataclass(frozen=True, slots=True)
class Reject:
    """The record is dropped, for this reason. Reasons are counted: name a kind of fault, not the fault itself.

    >>> def no_shouting(record):
    ...     return Reject("shouted") if record.text.isupper() else record
    >>> no_shouting(Record("HELLO", file="a.txt", row=0, start=0, stop=5))
    Reject(reason='shouted')
    """

    reason: str


Outcome = Record | list[Record] | Reject


@dataclass(frozen=True, slots=True)
class ProcessedBlock:
    """What a step made of a block: the records that remain, and what became of the others.

    `parents[i]` is the place in the input of record i of `block`. `rejected` and `failed` name a place in the input and
    the reason, or the error. `notes` counts what was changed or cut inside records that remain.
    """

    block: RecordBlock
    parents: NDArray[np.int64]
    rejected: list[tuple[int, str]] = field(default_factory=list)
    failed: list[tuple[int, Exception]] = field(default_factory=list)
    notes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def judged(
        cls, block: RecordBlock, verdicts: NDArray[Any], reasons: Sequence[str] | Callable[[int], str]
    ) -> ProcessedBlock:
        """A filter's result: records with verdict 0 remain, the others are dropped for `reasons[verdict]`."""
        dropped = np.flatnonzero(verdicts)
        reason = reasons if callable(reasons) else reasons.__getitem__
        rejected = [(place, reason(int(verdicts[place]))) for place in dropped.tolist()]
        keep = verdicts == 0
        return cls(block.select(keep), np.flatnonzero(keep), rejected)


class DataProcessor:
    """One step of a recipe. A subclass has a `name`, settings (as a dataclass has them), and `process`.

    >>> from dataclasses import dataclass, replace
    >>> @dataclass(frozen=True)
    ... class Shout(DataProcessor):
    ...     name = "shout"
    ...     mark: str = "!"
    ...
    ...     def process(self, record):
    ...         if not record.text:
    ...             return Reject("nothing to shout")
    ...         return replace(record, text=record.text.upper() + self.mark)
    >>> Shout().process(Record("hello", file="a.txt", row=0, start=0, stop=5)).text
    'HELLO!'
    """

    name: ClassVar[str] = ""
    version: ClassVar[int] = 1
    """Raise it when the same text no longer gives the same result: caches are keyed by it."""
    given: Mapping[str, Any] | None = None
    """The settings that a recipe made it with, unless it is a dataclass, which knows them itself."""

    def process(self, record: Record) -> Outcome:
        """Keep, change, split or reject one record."""
        raise NotImplementedError(f"{type(self).__name__} has no process()")

    def process_block(self, block: RecordBlock) -> ProcessedBlock:
        """The same for many records; one that raises is listed as failed, with its error."""
        records: list[Record] = []
        parents: list[int] = []
        rejected: list[tuple[int, str]] = []
        failed: list[tuple[int, Exception]] = []
        for place, record in enumerate(block):
            try:
                outcome = _checked(self.process(record))
            except Exception as error:  # any error of users' code belongs to this record
                failed.append((place, error))
                continue
            if isinstance(outcome, Reject):
                rejected.append((place, outcome.reason))
            else:
                records += outcome
                parents += [place] * len(outcome)
        return ProcessedBlock(
            RecordBlock.of(records, block.file), np.array(parents, np.int64), rejected=rejected, failed=failed
        )

    def settings(self) -> dict[str, Any]:
        """What a recipe needs to make this processor again, as JSON can hold it."""
        own: tuple[Field[Any], ...] = fields(self) if is_dataclass(self) else ()
        return {**(self.given or {}), **{each.name: getattr(self, each.name) for each in own if each.init}}

    def identity(self) -> dict[str, Any] | None:
        """What results depend on beside the text, for cache keys; None if that cannot be known."""
        if not is_dataclass(self) and self.given is None and type(self).__init__ is not object.__init__:
            return None  # its arguments are unknown
        return {"version": self.version, **self.settings()}


class BlockProcessor(DataProcessor):
    """A processor that works on whole blocks; for one record it makes a block of it."""

    def process(self, record: Record) -> Outcome:
        """Do what `process_block` does to a block of this one record."""
        done = self.process_block(RecordBlock.of([record], record.file))
        if done.failed:
            raise done.failed[0][1]
        return Reject(done.rejected[0][1]) if done.rejected else next(iter(done.block))


class GlobalStep(DataProcessor):
    """A step that cannot judge a record by itself: it gives keys, and records that share one are duplicates.

    A key is `key_words` neighbouring columns of `keys`. Global steps stand last in a recipe: only what passed all other
    steps takes part, as it will be written.
    """

    key_words: ClassVar[int] = 1

    def process(self, record: Record) -> Outcome:
        """Keep the record: alone it is no duplicate."""
        return record

    def keys(self, block: RecordBlock) -> NDArray[np.uint64]:
        """The keys of each record, one row for each."""
        raise NotImplementedError(f"{type(self).__name__} has no keys()")


class FunctionProcessor(DataProcessor):
    """A user's function `record -> Record | list[Record] | Reject`.

    It is known by its module, its name and its compiled code. If it takes values from its surroundings (a closure,
    defaults, globals that are not modules or names imported from other modules), its identity is None: results are
    not cached.

    >>> def keep(record):
    ...     return record
    >>> FunctionProcessor(keep).label
    'keep'
    """

    name = "function"

    def __init__(self, function: Callable[[Record], Outcome]) -> None:
        self.function = function
        self.label = getattr(function, "__qualname__", type(function).__qualname__)

    def process(self, record: Record) -> Outcome:
        """Call the function."""
        return self.function(record)

    def settings(self) -> dict[str, Any]:
        """Where the function is defined."""
        return {"function": f"{getattr(self.function, '__module__', '?')}:{self.label}"}

    def identity(self) -> dict[str, Any] | None:
        """Module, name and code of the function."""
        function = self.function
        if not inspect.isfunction(function) or function.__closure__ or function.__defaults__ or function.__kwdefaults__:
            return None  # other values than the code's own may decide
        names = _names_in(function.__code__) & function.__globals__.keys()
        if not all(_comes_from_elsewhere(function.__globals__[name], function.__module__) for name in names):
            return None
        digest = hashlib.blake2b(repr(_code_facts(function.__code__)).encode(), digest_size=16)
        return {"version": self.version, **self.settings(), "code": digest.hexdigest()}


def _names_in(code: CodeType) -> set[str]:
    """The names of globals and attributes that a function, or a function inside it, uses."""
    inner = (_names_in(each) for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*inner)


def _comes_from_elsewhere(value: object, module: str) -> bool:
    """Whether a global is a module, or a function or class of another module: users do not edit those between runs."""
    if inspect.ismodule(value):
        return True
    return (inspect.isroutine(value) or inspect.isclass(value)) and getattr(value, "__module__", module) != module


def _code_facts(code: CodeType) -> tuple[Any, ...]:
    """What a function does, without where it stands."""
    constants = tuple(_code_facts(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts)
    return code.co_code, code.co_names, code.co_varnames, constants


def label_of(processor: DataProcessor) -> str:
    """How reports call a step."""
    return processor.label if isinstance(processor, FunctionProcessor) else processor.name


def _checked(outcome: object) -> list[Record] | Reject:
    if isinstance(outcome, Reject):
        return outcome
    given = outcome if isinstance(outcome, list) else [outcome]
    records = [each for each in given if isinstance(each, Record)]
    if len(records) == len(given):
        for each in records:
            each.text.encode()  # a lone surrogate is this record's fault, not its block's
        return records
    raise TypeError(f"process() gave {type(outcome).__name__}; it must give a Record, a list of them or Reject(reason)")
