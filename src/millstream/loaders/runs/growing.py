"""GrowingSource: a store whose rows are still being made, as a source of a run."""

from __future__ import annotations

from collections.abc import Callable

from millstream.errors import StoreError
from millstream.loaders.growth import Growth
from millstream.loaders.member import Member
from millstream.store import TokenStore

MakeMember = Callable[[TokenStore, bool], Member]
"""(store, whether it is complete) -> its part in the run."""


class GrowingSource:
    """What of a store is made so far, and a wait for more."""

    def __init__(self, name: str, growth: Growth, member: MakeMember) -> None:
        self.name, self._growth, self._make = name, growth, member

    def more(self, documents: int) -> tuple[Member, bool]:
        """Wait for more documents than these; gives their part in the run, and whether they are all."""
        growth = self._growth
        while True:
            store, complete = growth.wait(documents)
            try:
                member = self._make(store, complete)
            except StoreError:
                if complete or not growth.lost(store):
                    raise
            else:
                if complete:
                    growth.close()
                return member, complete

    @property
    def is_complete(self) -> bool:
        """Whether all rows are made by now."""
        return self._growth.look()[1]

    def lost(self, store: TokenStore) -> bool:
        """Whether files of a store that was found are gone: it was finished and moved, or is made anew."""
        return self._growth.lost(store)

    def close(self) -> None:
        """Stop making rows; what was made stays, and the next loader resumes there."""
        self._growth.close()
