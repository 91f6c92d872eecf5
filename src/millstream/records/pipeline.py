"""A block of records through the steps of a recipe: what remains, what was dropped for which reason, what failed.

Workers never raise for a record: a processor that fails makes a bad record, and the policy for bad records decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from millstream.errors import RecipeError
from millstream.records.processor import DataProcessor, GlobalStep, Outcome, ProcessedBlock, Reject, label_of
from millstream.sources import BadRecord, Record, RecordBlock

FAILED = "processor failed"

Before = Callable[[Record], None]
After = Callable[[Record, Outcome], None]


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


class Pipeline:
    """Steps in their order, and callbacks around them.

    `before(record)` sees each record that comes in; `after(record, outcome)` sees it again with the records it became,
    or the `Reject`. Both are called in the worker's thread, record by record; a record that failed has no outcome.

    >>> from dataclasses import replace
    >>> from millstream.records.processor import FunctionProcessor
    >>> def shout(record):
    ...     return replace(record, text=record.text.upper()) if record.text else Reject("no text")
    >>> block = RecordBlock.of([Record("ab", "a.txt", 0, 0, 2), Record("", "a.txt", 1, 3, 3)], "a.txt")
    >>> done = Pipeline([FunctionProcessor(shout)]).run(block)
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
            _tell(self.after, block, result.block, parents, dropped)
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
        FAILED, *origin, found, hint=f"mend {rule}, or let it reject the record", raw=block.bytes_of(place)
    )


def _tell(
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
