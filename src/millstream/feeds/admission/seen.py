"""Which rollout a row is, and which rollouts came before.

A row is one rollout, or a part of one that an engine gave in several samples: these share its id and differ in
`sample_idx`, and the rollout counts once. Everything that is held is recognised exactly, and so is the latest of what
was released.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from millstream.rollouts import KINDS, Id, RolloutBlock

Key: TypeAlias = tuple[Id, int]
"""A rollout's id and its `sample_idx`, -1 where there is none."""
Name: TypeAlias = tuple[Key, int]
"""A key and the hash of the content: two records that claim one key have two names."""

BASELINE = KINDS.index("baseline")
Thing = TypeVar("Thing", bound=Hashable)


@dataclass(frozen=True)
class Drop:
    """Rollouts of a group that no batch gets, and the reason."""

    reason: str
    group: Id
    names: tuple[Name, ...]
    tokens: int


def keys(block: RolloutBlock) -> list[Key]:
    """The keys of the rows."""
    ids = block.rows["rollout_id"].tolist()
    samples = block.rows["sample_idx"].tolist() if "sample_idx" in block.rows else [-1] * len(ids)
    return list(zip(ids, samples, strict=True))


def is_baseline(block: RolloutBlock, row: int) -> bool:
    """Whether a row is only compared with, and not trained on."""
    return "kind" in block.rows and bool(block.rows["kind"][row] == BASELINE)


def are_baselines(block: RolloutBlock) -> npt.NDArray[np.bool_]:
    """Which rows are only compared with."""
    return block.rows["kind"] == BASELINE if "kind" in block.rows else np.zeros(len(block), bool)


def whole_number_of(block: RolloutBlock, row: int, name: str) -> int | None:
    """A whole number that a record gives as a column or in its `extra`, or None.

    >>> rows = {"rollout_id": np.array(["a", "b"], object), "extra": np.array([{"target_step": 4}, None], object)}
    >>> block = RolloutBlock(np.array([1, 2]), rows, {})
    >>> whole_number_of(block, 0, "target_step"), whole_number_of(block, 1, "target_step")
    (4, None)
    """
    extra = block.rows["extra"][row] if "extra" in block.rows else None
    value = block.rows[name][row] if name in block.rows else extra.get(name) if isinstance(extra, Mapping) else None
    number = value.item() if isinstance(value, np.generic) else value
    return int(number) if isinstance(number, int | float) and number % 1 == 0 else None


def name_to_json(name: Name) -> list[Any]:
    """Write a name down: the id, the content's hash, and the part where there are several."""
    (rollout, sample), content = name
    return [rollout, f"{content:016x}", *([] if sample < 0 else [sample])]


def name_from_json(saved: list[Any]) -> Name:
    """Read a name back.

    >>> name_from_json(name_to_json((("r1", 2), 255)))
    (('r1', 2), 255)
    """
    rollout, content, *sample = saved
    return (rollout, sample[0] if sample else -1), int(content, 16)


def drop_to_json(drop: Drop) -> list[Any]:
    """Write a drop down."""
    return [drop.reason, drop.group, drop.tokens, [name_to_json(name) for name in drop.names]]


def drop_from_json(saved: list[Any]) -> Drop:
    """Read a drop back."""
    reason, group, tokens, names = saved
    return Drop(reason, group, tuple(name_from_json(name) for name in names), tokens)


class RecentKeys(Generic[Thing]):
    """The latest things that were added, up to a number, each with a number of its own. Changes can be undone.

    >>> recent = RecentKeys[int](2)
    >>> for each in range(2):
    ...     recent.add(each)
    >>> mark = recent.mark()
    >>> recent.add(2)
    >>> list(recent), 0 in recent, list(recent.at(mark))
    ([1, 2], False, [0, 1])
    >>> recent.rewind(mark)
    >>> list(recent)
    [0, 1]
    """

    def __init__(self, remember: int, things: Iterable[Thing] = ()) -> None:
        self._remember = remember
        self._things: OrderedDict[Thing, int] = OrderedDict.fromkeys(things, 0)
        self._changes: deque[tuple[Thing, int | None]] | None = None
        """What was added (None) and what was forgotten for it, since the first mark that may be asked for."""
        self._settled = 0
        """Changes before these."""

    def __contains__(self, thing: Thing) -> bool:
        return thing in self._things

    def __iter__(self) -> Iterator[Thing]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)

    def get(self, thing: Thing) -> int | None:
        """The number of a thing, or None."""
        return self._things.get(thing)

    def items(self) -> Iterator[tuple[Thing, int]]:
        """All things with their numbers, the earliest first."""
        return iter(self._things.items())

    def add(self, thing: Thing, number: int = 0) -> None:
        """Remember one more, and forget the oldest."""
        if thing in self._things:
            return
        self._note(thing, None)
        self._things[thing] = number
        while len(self._things) > self._remember:
            self._note(*self._things.popitem(last=False))

    def _note(self, thing: Thing, number: int | None) -> None:
        if self._changes is not None:
            self._changes.append((thing, number))

    def mark(self) -> int:
        """The present, as a place to go back to."""
        if self._changes is None:
            self._changes = deque()
        return self._settled + len(self._changes)

    def rewind(self, mark: int) -> None:
        """Undo everything since a mark."""
        assert self._changes is not None
        while self._settled + len(self._changes) > mark:
            thing, number = self._changes.pop()
            if number is None:
                del self._things[thing]
            else:
                self._things[thing] = number
                self._things.move_to_end(thing, last=False)

    def settle(self, mark: int) -> None:
        """Nothing before a mark is undone any more."""
        assert self._changes is not None
        while self._settled < mark:
            self._changes.popleft()
            self._settled += 1

    def at(self, mark: int) -> RecentKeys[Thing]:
        """A copy, as it was at a mark."""
        then: RecentKeys[Thing] = RecentKeys(self._remember)
        then._things, then._settled = self._things.copy(), self._settled
        then._changes = deque(self._changes or ())
        then.rewind(mark)
        return then


class SeenRollouts:
    """Rollouts by key, with the hash of their content.

    >>> seen = SeenRollouts(remember=1)
    >>> for each in "ab":
    ...     seen.hold((each, -1), 7)
    >>> seen.release([("a", -1), ("b", -1)])
    >>> seen.content(("a", -1)), seen.content(("b", -1))
    (None, 7)
    """

    def __init__(self, remember: int) -> None:
        self._remember = remember
        self._held: dict[Key, int] = {}
        self._gone: RecentKeys[Key] = RecentKeys(remember)

    def __len__(self) -> int:
        return len(self._held) + len(self._gone)

    def content(self, key: Key) -> int | None:
        """The hash of what this rollout was when it came, or None."""
        return self._held[key] if key in self._held else self._gone.get(key)

    def hold(self, key: Key, content: int) -> None:
        """A rollout came and is held."""
        self._held[key] = content

    def names(self, held: Iterable[Key]) -> tuple[Name, ...]:
        """The names of rollouts that are held."""
        return tuple((key, self._held[key]) for key in held)

    def release(self, held: Iterable[Key]) -> None:
        """Rollouts were cut or dropped: they are remembered for a while."""
        for key in held:
            self._gone.add(key, self._held.pop(key))

    def gone(self) -> Iterator[Name]:
        """Those that were let go, the earliest first."""
        return self._gone.items()

    def mark(self) -> tuple[dict[Key, int], int]:
        """The present, as a place to go back to."""
        return self._held.copy(), self._gone.mark()

    def rewind(self, mark: tuple[dict[Key, int], int]) -> None:
        """Undo everything since a mark."""
        self._held = mark[0].copy()
        self._gone.rewind(mark[1])

    def settle(self, mark: tuple[dict[Key, int], int]) -> None:
        """Nothing before a mark is undone any more."""
        self._gone.settle(mark[1])

    def at(self, mark: tuple[dict[Key, int], int]) -> SeenRollouts:
        """A copy, as it was at a mark."""
        then = SeenRollouts(self._remember)
        then._held, then._gone = mark[0].copy(), self._gone.at(mark[1])
        return then

    def to_json(self) -> dict[str, Any]:
        """Write down what is recognised."""
        held, gone = ([name_to_json(name) for name in each.items()] for each in (self._held, self._gone))
        return {"held": held, "gone": gone}

    @classmethod
    def from_json(cls, saved: dict[str, Any], remember: int) -> SeenRollouts:
        """Read it back."""
        seen = cls(remember)
        seen._held.update(map(name_from_json, saved["held"]))
        for key, content in map(name_from_json, saved["gone"]):
            seen._gone.add(key, content)
        return seen
