"""Which rollouts came before: everything that is held, and the latest of what has gone, is recognised exactly."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from millstream.admission.identity import Key, Name, name_from_json, name_to_json

Thing = TypeVar("Thing", bound=Hashable)


class Seen:
    """Rollouts by key, with the hash of their content.

    >>> seen = Seen(remember=1)
    >>> for each in "ab":
    ...     seen.hold((each, -1), 7)
    >>> seen.let_go([("a", -1), ("b", -1)])
    >>> seen.content(("a", -1)), seen.content(("b", -1))
    (None, 7)
    """

    def __init__(self, remember: int) -> None:
        self._remember = remember
        self._held: dict[Key, int] = {}
        self._gone: OrderedDict[Key, int] = OrderedDict()

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

    def let_go(self, held: Iterable[Key]) -> None:
        """Rollouts were cut or dropped: they are remembered for a while."""
        for key in held:
            self._gone[key] = self._held.pop(key)
        while len(self._gone) > self._remember:
            self._gone.popitem(last=False)

    def gone(self) -> Iterator[Name]:
        """Those that were let go, the earliest first."""
        return iter(self._gone.items())

    def to_json(self) -> dict[str, Any]:
        """Write down what is recognised."""
        held, gone = ([name_to_json(name) for name in each.items()] for each in (self._held, self._gone))
        return {"held": held, "gone": gone}

    @classmethod
    def from_json(cls, saved: dict[str, Any], remember: int) -> Seen:
        """Read it back."""
        seen = cls(remember)
        seen._held.update(map(name_from_json, saved["held"]))
        seen._gone.update(map(name_from_json, saved["gone"]))
        return seen


class Recent(Generic[Thing]):
    """The latest things that were added, up to a number.

    >>> recent = Recent[int](2)
    >>> for each in range(3):
    ...     recent.add(each)
    >>> list(recent), 0 in recent
    ([1, 2], False)
    """

    def __init__(self, remember: int, things: Iterable[Thing] = ()) -> None:
        self._remember = remember
        self._things: OrderedDict[Thing, None] = OrderedDict.fromkeys(things)

    def __contains__(self, thing: Thing) -> bool:
        return thing in self._things

    def __iter__(self) -> Iterator[Thing]:
        return iter(self._things)

    def add(self, thing: Thing) -> None:
        """Remember one more, and forget the oldest."""
        self._things[thing] = None
        while len(self._things) > self._remember:
            self._things.popitem(last=False)
