"""Runs whose recipe changes on the way: other ranks, batch sizes, sources, weights and row lengths, again and again."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st


@dataclass(frozen=True)
class Stretch:
    """What a run does for some steps."""

    steps: int
    ranks: int
    rows: int
    """Of each rank."""
    quotas: tuple[int, int, int]
    """Places of each source in a block: 0 takes it out."""
    factor: int
    """By which rows become shorter."""


def runs(least_steps: int) -> st.SearchStrategy[list[Stretch]]:
    """Stretches of so many steps at least, one after another."""
    stretch = st.builds(
        Stretch,
        steps=st.integers(least_steps, 9),
        ranks=st.integers(1, 3),
        rows=st.integers(1, 5),
        quotas=st.tuples(*[st.integers(0, 4)] * 3).filter(any),
        factor=st.sampled_from([1, 1, 1, 2, 3]),
    )
    return st.lists(stretch, min_size=1, max_size=8)
