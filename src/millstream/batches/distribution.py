"""distribute: one global batch -> a batch for every rank.

Every row goes to one data rank, to all ranks of its group. Which one is decided by a balancer, a pure function of the
rows' tokens, so that all ranks that ask get the same answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import TypeVar

from millstream.batches.batch import TrainingBatch
from millstream.batches.self_play import SelfPlayBatch
from millstream.batches.topology import Topology
from millstream.errors import BatchError, LoaderError
from millstream.order import CostModel, members, partition

Balancer = Callable[[Sequence[int], int, int], Sequence[Sequence[int]]]
"""(real tokens of each row, data ranks, rows of a full batch) -> the rows of each data rank."""
AnyBatch = TypeVar("AnyBatch", TrainingBatch, SelfPlayBatch)


def distribute(
    batch: AnyBatch, topology: Topology, *, balance: str | Balancer = "rows", batch_size: int | None = None
) -> list[AnyBatch]:
    """Cut a global batch into one batch per rank; peers receive the same rows.

    Neighbouring rows are views of the batch; others are copied, once per group. Call it before moving to a device.

    >>> pieces = distribute(TrainingBatch.empty(6, 8), Topology.grid(data=2, tensor=2))
    >>> [piece.metadata["rows"] for piece in pieces]
    [3, 3, 3, 3]
    >>> [piece.metadata["rows"] for piece in distribute(TrainingBatch.empty(5, 8), Topology.flat(4))]
    [2, 1, 1, 1]
    >>> [piece.metadata["rows"] for piece in distribute(TrainingBatch.empty(5, 8), Topology.flat(3), batch_size=4)]
    [4, 1, 0]

    Args:
        batch: All rows of a step; of pairs, which stay together, every "row" below means both. Of self-play every
            row counts as one token.
        topology: The ranks.
        balance: "rows": neighbours, no rank with two rows more than another or, with `batch_size`, cut as loaders cut a
            step; "tokens": longest row first, always to the rank with the
            fewest real tokens; "karmarkar_karp": the work of a transformer as equal as can be; a name given to
            `register_balancer`; or a function.
        batch_size: Rows of a full batch of one rank: the most that one gets, and what `balance="rows"` gives to each
            until there are no more; by default as few as suffice for all rows.
    """
    if not isinstance(topology, Topology):
        raise BatchError(
            f"topology={topology!r} is none", hint="pass Topology.flat(ranks), or Topology.grid(data=…, …)"
        )
    ranks = topology.data_world_size
    if not isinstance(batch, TrainingBatch | SelfPlayBatch):
        raise BatchError(f"a {type(batch).__name__} is no batch", hint="pass a TrainingBatch or a SelfPlayBatch")
    rows = int(batch._tensor("planes" if isinstance(batch, SelfPlayBatch) else "input_ids").shape[0]) // batch.unit
    most = -(-rows // ranks) if batch_size is None else batch_size
    if most * ranks < rows:
        raise BatchError(
            f"{rows} rows do not fit into {ranks} data ranks of {most} rows",
            hint=f"pass batch_size={-(-rows // ranks)} or more, or leave it out",
        )
    lengths = batch._real_lengths().reshape(rows, batch.unit).sum(axis=1)
    even = balance == "rows" and batch_size is None
    shares = _evenly(rows, ranks) if even else balancer(balance)(lengths.tolist(), ranks, most)
    if not _is_a_deal(shares, rows, ranks):
        raise BatchError(
            f"balance={balance!r} did not give each of {rows} rows to one of {ranks} data ranks",
            hint="a balancer returns one list of row numbers per data rank, and each row is in one of them",
        )
    pieces = [_gathered(batch, share) for share in shares]
    return [_view(pieces[topology.data_rank(rank)]) for rank in range(topology.world_size)]


def _is_a_deal(shares: object, rows: int, ranks: int) -> bool:
    """Whether a balancer gave every row to one rank."""
    try:
        dealt = [sorted(share) for share in shares]  # type: ignore[attr-defined]
        return len(dealt) == ranks and sorted(row for share in dealt for row in share) == list(range(rows))
    except TypeError:
        return False


def by_rows(tokens: Sequence[int], ranks: int, most: int) -> list[range]:
    """Give rank r the rows [r · most, (r + 1) · most), as far as there are any.

    >>> by_rows([9, 9, 9, 9, 9], 3, 2)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    rows = len(tokens)
    return [range(min(rows, rank * most), min(rows, (rank + 1) * most)) for rank in range(ranks)]


def _evenly(rows: int, ranks: int) -> list[range]:
    """Give every rank neighbouring rows, the first ones perhaps one more than the others."""
    bounds = [rank * (rows // ranks) + min(rank, rows % ranks) for rank in range(ranks + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def by_tokens(tokens: Sequence[int], ranks: int, most: int) -> list[list[int]]:
    """Give the longest row that is left to the rank with the fewest tokens, if it has fewer than `most` rows.

    Of equal ranks, that is the one with the fewest rows: empty rows go round, too.

    >>> by_tokens([9, 1, 8, 2], 2, 2), by_tokens([0, 0, 0], 2, 3)
    ([[0, 1], [2, 3]], [[0, 2], [1]])
    """
    shares: list[list[int]] = [[] for _ in range(ranks)]
    loads = [(0, 0, rank) for rank in range(ranks)]
    for row in sorted(range(len(tokens)), key=lambda row: (-tokens[row], row)):
        load, held, rank = heapq.heappop(loads)
        shares[rank].append(row)
        if held + 1 < most:
            heapq.heappush(loads, (load + tokens[row], held + 1, rank))
    return [sorted(share) for share in shares]


def karmarkar_karp(tokens: Sequence[int], ranks: int, most: int) -> list[list[int]]:
    """Give ranks rows that cost a model of 7 billion parameters about the same, and equally many of them.

    >>> karmarkar_karp([9, 1, 8, 2], 2, 2)
    [[0, 1], [2, 3]]
    """
    # No rank has more rows than it must, so none has more than `most`.
    return [share.tolist() for share in members(partition(CostModel().of(tokens), ranks, equal_sizes=True), ranks)]


_BALANCERS: dict[str, Balancer] = {"rows": by_rows, "tokens": by_tokens, "karmarkar_karp": karmarkar_karp}


def register_balancer(name: str, balancer: Balancer) -> None:
    """Make a balancer known by a name, in this process; names that are taken are an error.

    >>> def deal(tokens, ranks, most):
    ...     return [range(rank, len(tokens), ranks) for rank in range(ranks)]
    >>> register_balancer("deal", deal)
    >>> [piece.metadata["rows"] for piece in distribute(TrainingBatch.empty(5, 8), Topology.flat(3), balance="deal")]
    [2, 2, 1]
    """
    if _BALANCERS.setdefault(name, balancer) is not balancer:
        raise LoaderError(f"there is a balancer {name!r} already", hint="choose another name")


def balancer(balance: str | Balancer) -> Balancer:
    """Find a balancer by its name; a function is one itself."""
    if callable(balance):
        return balance
    if balance not in _BALANCERS:
        raise LoaderError(
            f"unknown balance={balance!r}", hint=f"use one of {', '.join(sorted(_BALANCERS))}, or pass a function"
        )
    return _BALANCERS[balance]


def _gathered(batch: AnyBatch, rows: Sequence[int]) -> AnyBatch:
    """Give these rows, or pairs of rows: a view of neighbours, else a copy."""
    runs = [[row for _, row in run] for _, run in groupby(enumerate(rows), lambda each: each[1] - each[0])]
    pieces = [batch.rows_between(run[0] * batch.unit, (run[-1] + 1) * batch.unit) for run in runs]
    if len(pieces) > 1:
        return (SelfPlayBatch if isinstance(batch, SelfPlayBatch) else TrainingBatch).merge(pieces)
    return pieces[0] if pieces else batch.rows_between(0, 0)


def _view(batch: AnyBatch) -> AnyBatch:
    """Look at the same rows once more: a rank may release its batch while its peers continue."""
    return batch.split(1)[0]
