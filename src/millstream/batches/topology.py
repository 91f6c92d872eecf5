"""Topology: which ranks there are, which of them must see the same rows, and on which machine each runs.

A trainer's ranks are not all data-parallel: tensor-, context- and pipeline-parallel peers work on one copy of the model
and so on the same rows. Such a group of peers is one rank to a loader, its *data rank*.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from millstream.errors import OrderError

Groups = tuple[tuple[int, ...], ...]
DATA_AXES = ("data", "dp", "dp_replicate", "dp_shard", "fsdp")
GROUPS = "groups hold the ranks of each copy of the model: ((0, 1), (2, 3)), or ((0,), (1,)) where each has one"
NODES = "nodes hold the ranks of each machine: ((0, 1), (2, 3))"
NESTED = (
    "a list of machines, each a list of its ranks or of groups of ranks, and nothing deeper: [[0, 1], [2, 3]] or "
    "[[(0, 1), (2, 3)], [(4, 5), (6, 7)]]; of more axes make a Topology.grid(data=…, tensor=…, pipeline=…)"
)
PEER_AXES = ("tensor", "tp", "context", "cp", "pipeline", "pp")


@dataclass(frozen=True)
class Topology:
    """Ranks 0 … n - 1, cut into groups of peers that receive the same rows, and into machines.

    >>> topology = Topology(groups=((0, 1), (2, 3)))
    >>> topology.world_size, topology.data_world_size
    (4, 2)
    >>> topology.data_rank(3), topology.group(3)
    (1, (2, 3))
    """

    groups: Groups
    """The ranks of each data rank."""
    nodes: Groups = ()
    """The ranks of each machine; all on one when left out."""

    def __post_init__(self) -> None:
        groups = tuple(_peers(group, GROUPS) for group in _members(self.groups, "groups", GROUPS))
        ranks = _checked("groups", groups)
        if len({len(group) for group in groups}) > 1:
            raise OrderError(
                f"groups of peers have {_listed(sorted({len(group) for group in groups}))} ranks",
                hint="every copy of the model has as many ranks as the others; see which group lacks one",
            )
        nodes = tuple(_peers(node, NODES) for node in _members(self.nodes, "nodes", NODES)) or (tuple(range(ranks)),)
        if _checked("nodes", nodes) != ranks:
            raise OrderError(
                f"there are {ranks} ranks in groups, but {sum(map(len, nodes))} on nodes",
                hint="name every rank once in each",
            )
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "nodes", nodes)

    @classmethod
    def flat(cls, world_size: int) -> Topology:
        """Make every rank a data rank.

        >>> Topology.flat(3).groups
        ((0,), (1,), (2,))
        """
        return cls.grid(data=world_size)

    @classmethod
    def grid(cls, *, ranks_per_node: int | None = None, **axes: int) -> Topology:
        """Lay ranks out in a grid of named axes; the last axis varies fastest.

        The axes are those of torch's `init_device_mesh`, in its order. Megatron writes its order the other way round:
        its default tp-cp-ep-dp-pp is `grid(pipeline=…, data=…, context=…, tensor=…)`.

        >>> Topology.grid(data=2, tensor=2).groups
        ((0, 1), (2, 3))
        >>> Topology.grid(pipeline=2, data=2, tensor=2).groups
        ((0, 1, 4, 5), (2, 3, 6, 7))

        Args:
            ranks_per_node: Ranks of each machine, neighbours; None: all on one.
            axes: Sizes. Rows are split along `data` (or `dp`, `dp_replicate`, `dp_shard`, `fsdp`); ranks along
                `tensor`, `context` and `pipeline` (or `tp`, `cp`, `pp`) are peers.
        """
        for name, size in axes.items():
            if name not in (*DATA_AXES, *PEER_AXES):
                raise OrderError(
                    f"unknown axis {name!r}",
                    hint=f"use {_listed([*DATA_AXES, *PEER_AXES])}; expert-parallel ranks receive different rows, so "
                    "they count as data; for anything else pass Topology(groups=…)",
                )
            if not isinstance(size, int | np.integer) or size < 1:
                raise OrderError(f"axis {name!r} has size {size}", hint="pass 1 or more, or leave the axis out")
        names, sizes = list(axes), tuple(axes.values())
        split = [place for place, name in enumerate(names) if name in DATA_AXES]
        same = [place for place, name in enumerate(names) if name in PEER_AXES]
        ranks = np.arange(math.prod(sizes)).reshape(sizes)
        groups = ranks.transpose(split + same).reshape(math.prod(sizes[place] for place in split), -1)
        return cls(tuple(map(tuple, groups.tolist())), _machines(ranks.size, ranks_per_node))

    @classmethod
    def nested(cls, nodes: Iterable[Iterable[int | Iterable[int]]]) -> Topology:
        """Write out machines, on each its ranks, or groups of ranks that are peers; data ranks count in this order.

        >>> Topology.nested([[0, 1], [2, 3]]).data_world_size
        4
        >>> topology = Topology.nested([[(0, 1), (2, 3)], [(4, 5), (6, 7)]])
        >>> topology.data_world_size, topology.nodes
        (4, ((0, 1, 2, 3), (4, 5, 6, 7)))
        """
        tree = [
            [_peers(part, NESTED) if isinstance(part, Iterable) else (_rank(part, NESTED),) for part in node]
            for node in (_members(node, "a machine", NESTED) for node in _members(nodes, "the machines", NESTED))
        ]
        return cls(
            tuple(group for node in tree for group in node),
            tuple(tuple(rank for group in node for rank in group) for node in tree),
        )

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return len(self._data_ranks)

    @property
    def data_world_size(self) -> int:
        """Groups of peers: `world_size=` of a loader."""
        return len(self.groups)

    def data_rank(self, rank: int) -> int:
        """Tell which group a rank belongs to: `rank=` of its loader."""
        return self._data_ranks[self._known(rank)]

    def group(self, rank: int) -> tuple[int, ...]:
        """Name the ranks that receive the same rows, this one among them."""
        return self.groups[self.data_rank(rank)]

    def node(self, rank: int) -> int:
        """Tell on which machine a rank runs.

        >>> Topology.grid(data=4, tensor=2, ranks_per_node=4).node(5)
        1
        """
        return self._nodes_of[self._known(rank)]

    @cached_property
    def _data_ranks(self) -> dict[int, int]:
        return {rank: place for place, group in enumerate(self.groups) for rank in group}

    @cached_property
    def _nodes_of(self) -> dict[int, int]:
        return {rank: place for place, node in enumerate(self.nodes) for rank in node}

    def _known(self, rank: int) -> int:
        if rank not in self._data_ranks:
            raise OrderError(f"rank {rank} is outside 0..{self.world_size - 1}", hint="ranks count from 0")
        return rank


def _members(found: object, what: str, hint: str) -> tuple[Any, ...]:
    if not isinstance(found, Iterable) or isinstance(found, str):
        raise OrderError(f"{what}: found {found!r}, where a list belongs", hint=hint)
    return tuple(found)


def _peers(found: object, hint: str) -> tuple[int, ...]:
    return tuple(_rank(each, hint) for each in _members(found, "a group of ranks", hint))


def _rank(found: Any, hint: str) -> int:
    try:
        return operator.index(found)
    except TypeError:
        raise OrderError(f"found {found!r}, where the number of a rank belongs", hint=hint) from None


def _machines(ranks: int, ranks_per_node: int | None) -> Groups:
    if ranks_per_node is None:
        return ()
    if ranks_per_node < 1 or ranks % ranks_per_node:
        raise OrderError(
            f"{ranks} ranks do not fill nodes of {ranks_per_node}",
            hint="for unequal nodes pass Topology(groups, nodes)",
        )
    return tuple(tuple(range(first, first + ranks_per_node)) for first in range(0, ranks, ranks_per_node))


def _checked(what: str, parts: Groups) -> int:
    """Count the ranks; each from 0 on must be there once."""
    ranks = [rank for part in parts for rank in part]
    if not ranks or not all(parts):
        raise OrderError(f"{what} without ranks: {parts}", hint="name at least one rank in each")
    doubled = sorted(rank for rank, times in Counter(ranks).items() if times > 1)
    if doubled:
        raise OrderError(f"{what} name rank {_listed(doubled)} more than once", hint="a rank has one place")
    missing = sorted(set(range(len(ranks))) - set(ranks))
    if missing:
        raise OrderError(
            f"{what} name {len(ranks)} ranks, but not {_listed(missing)}", hint="ranks count from 0 without gaps"
        )
    return len(ranks)


def _listed(things: Sequence[object]) -> str:
    return ", ".join(map(str, things))
