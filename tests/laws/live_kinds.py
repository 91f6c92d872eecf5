"""Loaders of rollouts, from a list and from a feed, and of self-play games, bounded and watched."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from games.archives import varied_game
from laws.case import Data, Kind, Row, State, Team
from millstream import RolloutDataLoader, RowOrigin, SelfPlayDataLoader, TrainingBatch
from millstream.batches import SelfPlayBatch
from millstream.feeds import Gather
from millstream.feeds.spool import SpoolSource
from rollouts.samples import random_rollouts
from selfplay.growing_games import LENGTHS, add

# Rollouts


class RolloutRows(Data):
    """Data whose rows are rollouts."""

    def rows(self, batch: TrainingBatch) -> list[Row]:
        """Every row without its padding: its tokens, and what is said of them."""
        facts, found = batch.metadata, []
        for row, rollout in enumerate(facts["rollout_id"]):
            length = len(np.trim_zeros(np.asarray(batch.input_ids[row]), "b"))
            columns = (batch.input_ids, batch.labels, *(facts[name] for name in ("advantages", "sampling_logprobs")))
            content = tuple(tuple(column[row][:length].tolist()) for column in columns)
            found.append(Row("rollouts", facts["epoch"], rollout, content))
        return found


@dataclass(frozen=True)
class RolloutList(RolloutRows):
    """Rollouts that are all there."""

    records: Sequence[Mapping[str, Any]]
    how: Mapping[str, Any] = field(default_factory=dict)
    spoils = True
    names_budget = False

    @property
    def reference_rows(self) -> int:  # type: ignore[override]
        """Groups that stay whole are not cut into rows."""
        return 12 if self.how.get("keep_groups") else 1

    @property
    def seeks(self) -> bool:  # type: ignore[override]
        return not self.how.get("keep_groups")

    @property
    def drops(self) -> bool:  # type: ignore[override]
        return not self.how.get("keep_groups")

    def merged(self, start: int, of_ranks: Sequence[list[Row]]) -> list[Row]:
        """A balanced step holds the same rows on any ranks, but not in the same order."""
        rows = super().merged(start, of_ranks)
        return sorted(rows) if self.how.get("balance") else rows

    def in_order(self) -> RolloutList:
        return replace(self, how={**self.how, "balance": None})

    def documents(self, run: Team) -> list[Any]:
        return [(number, None) for number in range(len(self.records))]

    def open(self, folder: Path, **how: Any) -> Any:
        return RolloutDataLoader(list(self.records), framework="numpy", cache_dir=folder, **self.how, **how)

    def check_complete(self, run: Team, epochs: Sequence[list[Row]]) -> None:
        names = Counter(record["rollout_id"] for record in self.records)
        for number, epoch in enumerate(epochs):
            assert Counter(row.name for row in epoch) == names
            assert {row.epoch for row in epoch} == {number}

    def check_origin(self, loader: Any, origin: RowOrigin, row: Row) -> list[Any]:
        assert self.records[origin.sample]["rollout_id"] == row.name
        return [(origin.sample, None)]

    def spoiled(self) -> RolloutList:
        bad = [{"rollout_id": f"bad {number}", "token_ids": "?"} for number in range(3)]
        return replace(self, records=[*self.records, *bad], how={**self.how, "on_bad": "skip"})

    def given_units(self) -> int:
        return len(self.records)

    def lost_units(self, losses: Sequence[Mapping[str, int]]) -> int:
        (lost,) = {sum(count for name, count in each.items() if name.startswith("left_out:")) for each in losses}
        return lost


rollout_lists = st.builds(
    lambda seed, groups, size, how: RolloutList(random_rollouts(seed, groups=groups, size=size, mean_length=5), how),
    st.integers(0, 99),
    st.integers(1, 8),
    st.integers(2, 4),
    st.fixed_dictionaries(
        {
            "shuffle": st.sampled_from(["global", "local", False]),
            "balance": st.sampled_from([None, "karmarkar_karp"]),
            "keep_groups": st.booleans(),
            "labels": st.sampled_from(["next", "same"]),
        }
    ),
)


@dataclass(frozen=True)
class RolloutFeed(RolloutRows):
    """Rollouts that lie in a spool, as engines left them; the first rank decides, the others follow its journal."""

    groups: int = 12
    passes: int = 2
    short: int = 0
    """Groups that never become whole."""
    at_once = True
    runs_on = False
    most_state_bytes = None
    ranks = (1, 2, 4)
    step_rows = (4, 8)
    steps = 6
    reference_rows = 4
    knows_ahead = False
    seeks = False
    drops = False
    names_budget = False
    spoils = True

    def make(self, folder: Path) -> None:
        _spooled(folder / "spool", self.groups, self.short)

    def open(self, folder: Path, **how: Any) -> Any:
        live = {"groups_per_batch": 3, "group_size": 4, "passes": self.passes, "timeout_s": 30}
        return RolloutDataLoader(folder / "spool", live=live, framework="numpy", cache_dir=folder / "run", **how)

    def joined(self, states: Sequence[State]) -> State:
        """That of the first rank."""
        return states[0]

    @cached_property
    def names(self) -> list[str]:
        return [record["rollout_id"] for record in random_rollouts(groups=self.groups, size=4)]

    def check_complete(self, run: Team, epochs: Sequence[list[Row]]) -> None:
        """Over all rollout batches, which all lie in what `for` gives until the feed ends."""
        rows = [row for epoch in epochs for row in epoch]
        assert Counter(row.name for row in rows) == dict.fromkeys(self.names, self.passes)

    def check_origin(self, loader: Any, origin: RowOrigin, row: Row) -> list[Any]:
        (span,) = origin.spans
        assert (span.id, span.file) == (row.name, "")
        return [(row.name, None)]

    def spoiled(self) -> RolloutFeed:
        return replace(self, short=2)

    def given_units(self) -> int:
        return 4 * self.groups + 3 * self.short

    def kept_units(self, rows: Sequence[Row]) -> int:
        return len(rows) // self.passes

    def lost_units(self, losses: Sequence[Mapping[str, int]]) -> int:
        first = losses[0]
        assert first["arrived"] == self.given_units()
        fates = {name: count for name, count in first.items() if f"{name}_tokens" in first}
        return sum(count for name, count in fates.items() if name not in ("arrived", "cut"))


def _spooled(path: Path, groups: int, short: int) -> None:
    if not path.exists():
        gather = Gather(most_bytes=1 << 20, most_rollouts=7, seconds=60)
        with SpoolSource(path, producer="engine", gather=gather) as source:
            for record in random_rollouts(groups=groups, size=4):
                source.put({**record, "policy_version": 0})
            for record in random_rollouts(7, groups=short, size=3):
                names = {"rollout_id": f"short {record['rollout_id']}", "group_id": f"short {record['group_id']}"}
                source.put({**record, **names, "policy_version": 0})


# Self-play


@dataclass(frozen=True)
class Games(Data):
    """A folder of games: one pass over them is an epoch, or the newest of them are a window that moves on."""

    archives: int = 3
    watch: bool = False
    how: Mapping[str, Any] = field(default_factory=dict)
    damaged: int = 0
    step_rows = (12, 24)
    most_state_bytes = None
    knows_ahead = False
    seeks = False
    drops = False

    @property
    def at_once(self) -> bool:  # type: ignore[override]
        return self.watch

    @property
    def ends(self) -> bool:  # type: ignore[override]
        return not self.watch

    @property
    def spoils(self) -> bool:  # type: ignore[override]
        return not self.watch

    def open(self, folder: Path, **how: Any) -> Any:
        own = {"framework": "numpy", "shuffle_frames": 16, "watch": self.watch, "cache_dir": folder / "run"}
        if self.watch:
            own |= {"poll_s": 0.05, "num_chunks": 16}
        return SelfPlayDataLoader(_archives(self.archives, self.damaged), **{**own, **self.how, **how})

    def rows(self, batch: SelfPlayBatch) -> list[Row]:
        facts = zip(*(batch.metadata[key].tolist() for key in ("chunk", "ply", "use")), strict=True)
        return [
            Row("games", batch.metadata["epoch"], fact, tuple(batch[name][row].tobytes() for name in TENSORS))
            for row, fact in enumerate(facts)
        ]

    def joined(self, states: Sequence[State]) -> State:
        """Before its first step a follower has not heard yet whose run it is: the leader's state counts."""
        return states[0] if states[0]["step"] == 0 else super().joined(states)

    def again(self, folder: Path, steps: int, expected: list[list[Row]]) -> list[list[Row]]:
        if not self.watch:
            return expected
        journal = folder / "run" / "admissions.jsonl"
        with self.open(folder / "again", replay=journal, batch_size=min(self.step_rows), seed=9) as loader:
            return [self.rows(loader.next()) for _ in range(steps)]

    @property
    def lengths(self) -> list[int]:
        """Positions of each game, by its number."""
        return [*LENGTHS] * self.archives

    def check_complete(self, run: Team, epochs: Sequence[list[Row]]) -> None:
        """Every position once in each epoch; of a window, no position of a use twice."""
        if self.watch:
            rows = [row.name for epoch in epochs for row in epoch]
            assert len(set(rows)) == len(rows)
            return
        places = Counter((game, ply) for game, length in enumerate(self.lengths) for ply in range(length))
        for epoch in epochs:
            assert Counter(row.name[:2] for row in epoch) == places

    def check_origin(self, loader: Any, origin: RowOrigin, row: Row) -> list[Any]:
        (span,) = origin.spans
        chunk, ply, use = row.name
        assert (span.document, span.start, span.stop, origin.use) == (chunk, ply, ply + 1, use)
        return [(chunk, None)]

    def spoiled(self) -> Games:
        return replace(self, damaged=4)

    def given_units(self) -> int:
        return len(self.lengths) + self.damaged

    def kept_units(self, rows: Sequence[Row]) -> int:
        return len({row.name[0] for row in rows})

    def lost_units(self, losses: Sequence[Mapping[str, int]]) -> int:
        (lost,) = {sum(each.values()) for each in losses}
        return lost


TENSORS = ("planes", "policy", "values")


@cache
def _archives(count: int, damaged: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="millstream-games-"))
    for number in range(count):
        add(folder, number)
    for number in range(damaged):
        path = folder / f"damaged-{number}.gz"
        path.write_bytes(varied_game(5, number)[:-20] + bytes(20))
        os.utime(path, (0, 0))
    return folder


KINDS = [
    Kind("rollouts", rollout_lists, lambda: RolloutList(random_rollouts(groups=25, size=4, mean_length=5)), cases=8),
    Kind(
        "rollout feed", st.builds(RolloutFeed, st.sampled_from([24, 30]), st.sampled_from([1, 2])), RolloutFeed, cases=3
    ),
    Kind(
        "self-play",
        st.builds(Games, st.integers(1, 3), how=st.sampled_from([{}, {"shuffle": False}, {"shuffle_frames": 64}])),
        lambda: Games(8),
        cases=4,
    ),
    Kind(
        "self-play, watched", st.builds(Games, st.just(3), st.just(value=True)), lambda: Games(3, watch=True), cases=2
    ),
]
