from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches.test_batch import batches, facts, isolated, padded
from batches.test_topology import topologies
from laws import ONE, Data, Ranks, Work, examples
from loaders.samples import follows_its_hint
from millstream import BatchError, LoaderError, OrderError, Topology, TrainingBatch, distribute, register_balancer
from millstream.batches.distribution import by_tokens
from millstream.tensors import FRAMEWORKS


def one_of_each_group(pieces: list[TrainingBatch], topology: Topology) -> list[TrainingBatch]:
    return [pieces[group[0]] for group in topology.groups]


def backwards(tokens: Sequence[int], ranks: int, most: int) -> list[list[int]]:
    """All rows to the last rank, the last row first."""
    return [[] for _ in range(ranks - 1)] + [list(reversed(range(len(tokens))))]


@given(batch=batches, topology=topologies())
@examples(60)
def test_merging_the_shares_of_all_data_ranks_gives_the_batch_back(batch: TrainingBatch, topology: Topology) -> None:
    pieces = distribute(batch, topology)

    assert len(pieces) == topology.world_size
    assert facts(TrainingBatch.merge(one_of_each_group(pieces, topology))) == facts(batch)


@given(batch=batches, topology=topologies(), balance=st.sampled_from(["rows", "tokens", "karmarkar_karp", backwards]))
@examples(100)
def test_every_row_goes_to_one_data_rank_and_peers_are_equal(
    batch: TrainingBatch, topology: Topology, balance: str
) -> None:
    pieces = distribute(batch, topology, balance=balance)
    shares = one_of_each_group(pieces, topology)

    def rows(some: list[TrainingBatch]) -> list[str]:
        return sorted(
            str(facts(row)) for piece in some if len(piece.input_ids) for row in piece.split(len(piece.input_ids))
        )

    assert rows(shares) == rows([batch])
    assert sum(share.metadata["tokens"] for share in shares) == batch.metadata["tokens"]
    for group in topology.groups:
        for rank in group:
            assert facts(pieces[rank].validate()) == facts(pieces[group[0]])


@given(data=ONE, world_size=st.integers(1, 4), rows=st.integers(1, 4))
@examples(15)
def test_a_distributed_step_is_what_the_loaders_of_the_ranks_give(data: Data, world_size: int, rows: int) -> None:
    settings = {"chunk_size": 3, "seed": 5}
    work = Work(threads=1, prefetch=2, world_size=world_size)
    alone = Work(threads=1, prefetch=2, world_size=1)
    with (
        Ranks(data, work, rows * world_size, **settings) as ranks,
        Ranks(data, alone, rows * world_size, **settings) as whole,
    ):
        for _ in range(whole.loaders[0].get_num_batches()):
            pieces = distribute(whole.loaders[0].next(), Topology.flat(world_size), batch_size=rows)
            for piece, loader in zip(pieces, ranks.loaders, strict=True):
                assert np.array_equal(piece.input_ids, loader.next().input_ids)


@given(batch=batches, topology=topologies(), paired=st.booleans())
@examples(100)
def test_rows_are_cut_evenly_among_data_ranks_and_pairs_stay_whole(
    batch: TrainingBatch, topology: Topology, paired: bool
) -> None:
    if paired:
        batch = batch.rows_between(0, len(batch.input_ids) // 2 * 2)
        batch.metadata["answers"] = "preference"
    shares = one_of_each_group(distribute(batch, topology), topology)
    counts = [len(share.input_ids) // batch.unit for share in shares]

    assert max(counts) - min(counts) <= 1
    assert all(len(share.input_ids) % batch.unit == 0 for share in shares)
    assert [row for share in shares for row in share.input_ids.tolist()] == batch.input_ids.tolist()


@given(tokens=st.lists(st.integers(0, 3), max_size=12), ranks=st.integers(1, 6))
@examples(200)
def test_no_rank_is_without_rows_where_there_are_enough(tokens: list[int], ranks: int) -> None:
    batch, topology = padded(tokens), Topology.flat(ranks)
    for balance in ("rows", "tokens", "karmarkar_karp"):
        counts = [len(piece.input_ids) for piece in distribute(batch, topology, balance=balance)]
        assert sum(count > 0 for count in counts) == min(ranks, len(tokens))


@given(tokens=st.lists(st.integers(0, 50), max_size=30), ranks=st.integers(1, 6), spare=st.integers(0, 30))
@examples(200)
def test_tokens_are_dealt_out_within_a_row_of_the_ideal(tokens: list[int], ranks: int, spare: int) -> None:
    most = -(-len(tokens) // ranks) + spare
    shares = by_tokens(tokens, ranks, most)
    loads = [sum(tokens[row] for row in share) for share in shares]

    assert sorted(row for share in shares for row in share) == list(range(len(tokens)))
    assert max(map(len, shares)) <= most
    if most >= len(tokens):  # nothing but tokens counts: nobody is ahead by more than the last row it got
        assert max(loads) - min(loads) <= max(tokens, default=0)
    assert by_tokens(tokens, ranks, most) == shares


@given(tokens=st.lists(st.integers(0, 20), max_size=7), ranks=st.integers(1, 3))
@examples(50)
def test_no_choice_is_better_than_the_longest_rows_first_by_more_than_a_third(tokens: list[int], ranks: int) -> None:
    def longest(chosen: Sequence[int]) -> int:
        return max(sum(t for t, rank in zip(tokens, chosen, strict=True) if rank == each) for each in range(ranks))

    best = min(map(longest, itertools.product(range(ranks), repeat=len(tokens))))
    mine = max(sum(tokens[row] for row in share) for share in by_tokens(tokens, ranks, len(tokens)))
    assert 3 * ranks * mine <= (4 * ranks - 1) * best  # Graham's bound


def test_shares_of_neighbours_are_views_and_peers_can_be_released_one_by_one() -> None:
    batch = padded([5, 5, 5, 5])
    pieces = distribute(batch, Topology.grid(data=2, tensor=2))
    assert all(np.shares_memory(piece.input_ids, batch.input_ids) for piece in pieces)

    pieces[0].release()
    assert pieces[1].validate().metadata["rows"] == 2


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("balance", ["rows", "tokens"])
def test_shares_are_the_same_in_every_framework(framework: str, balance: str) -> None:
    topology = Topology.grid(data=2, tensor=2)
    for batch in (padded([5, 2, 0, 4, 1]), isolated([[2, 3], [6], [1]]), padded([])):
        there = distribute(batch.to(framework), topology, balance=balance)
        assert [piece.framework for piece in there] == [framework] * 4
        assert [facts(piece) for piece in there] == [
            facts(piece) for piece in distribute(batch, topology, balance=balance)
        ]


def test_balancers_have_names_that_are_taken_once() -> None:
    register_balancer("backwards", backwards)
    register_balancer("backwards", backwards)  # a module that is imported twice
    first, second = distribute(padded([5, 4, 3]), Topology.flat(2), balance="backwards")
    assert (first.metadata["rows"], second.lengths.tolist()) == (0, [3, 4, 5])  # type: ignore[union-attr]

    for name in ("rows", "backwards"):
        with pytest.raises(LoaderError, match="already"):
            register_balancer(name, by_tokens)
    with pytest.raises(LoaderError, match="unknown balance='weight'") as caught:
        distribute(padded([5]), Topology.flat(2), balance="weight")
    assert "tokens" in follows_its_hint(caught.value)


@pytest.mark.parametrize("shares", [[[0, 1]], [[0, 1], [1]], [[0], []], [[0, 1, 2], []], [[-1], [0]]])
def test_a_balancer_that_loses_or_doubles_rows_is_an_error(shares: list[list[int]]) -> None:
    with pytest.raises(BatchError, match="each of 2 rows"):
        distribute(padded([5, 5]), Topology.flat(2), balance=lambda tokens, ranks, most: shares)


def test_rows_that_do_not_fit_and_released_batches_are_refused() -> None:
    batch = padded([5, 5, 5])
    with pytest.raises(BatchError, match="do not fit") as caught:
        distribute(batch, Topology.flat(2), batch_size=1)
    assert "batch_size=2" in follows_its_hint(caught.value)
    batch.release()
    with pytest.raises(BatchError, match="released"):
        distribute(batch, Topology.flat(2))


def test_what_is_no_topology_and_no_deal_is_refused() -> None:
    batch = TrainingBatch.empty(4, 3)
    with pytest.raises(BatchError, match="topology=2 is none"):
        distribute(batch, 2)  # type: ignore[arg-type]
    for deal in (None, 5, [[0, 1], 3], [[0, "a"], [1]]):
        with pytest.raises(BatchError, match="did not give each of 4 rows"):
            distribute(batch, Topology.flat(2), balance=lambda *_: deal)  # type: ignore[arg-type] # noqa: B023
    with pytest.raises(OrderError, match=r"has size 1\.5"):
        Topology.grid(data=1.5)  # type: ignore[arg-type]
