from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from loaders.samples import follows_its_hint
from millstream import OrderError, Topology

sizes = st.integers(1, 4)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Ranks in any order, in groups of one size."""
    peers, groups = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    ranks = iter(draw(st.permutations(range(peers * groups))))
    return Topology(tuple(tuple(itertools.islice(ranks, peers)) for _ in range(groups)))


@given(topology=topologies())
@examples(50)
def test_every_rank_has_one_data_rank_and_is_among_its_peers(topology: Topology) -> None:
    ranks = range(topology.world_size)

    assert sorted({topology.data_rank(rank) for rank in ranks}) == list(range(topology.data_world_size))
    for rank in ranks:
        assert rank in topology.group(rank)
        assert topology.groups[topology.data_rank(rank)] == topology.group(rank)
        assert {topology.data_rank(peer) for peer in topology.group(rank)} == {topology.data_rank(rank)}


@given(tp=sizes, cp=sizes, dp=sizes, pp=sizes)
@examples(50)
def test_a_grid_numbers_ranks_as_megatron_does(tp: int, cp: int, dp: int, pp: int) -> None:
    topology = Topology.grid(pipeline=pp, data=dp, context=cp, tensor=tp)

    assert (topology.world_size, topology.data_world_size) == (tp * cp * dp * pp, dp)
    for t, c, d, p in itertools.product(range(tp), range(cp), range(dp), range(pp)):
        rank = t + c * tp + d * tp * cp + p * tp * cp * dp
        assert topology.data_rank(rank) == d


@given(axes=st.permutations([("dp_replicate", 2), ("tp", 3), ("dp_shard", 2), ("pp", 2)]))
@examples(24)
def test_a_grid_numbers_ranks_as_a_device_mesh_does(axes: list[tuple[str, int]]) -> None:
    names, shape = [name for name, _ in axes], tuple(size for _, size in axes)
    topology = Topology.grid(**dict(axes))
    mesh = np.arange(24).reshape(shape)
    split = [name for name in names if name.startswith("dp")]

    assert topology.data_world_size == 4
    for place in np.ndindex(shape):
        at = dict(zip(names, place, strict=True))
        assert topology.data_rank(int(mesh[place])) == at[split[0]] * 2 + at[split[1]]


@given(topology=topologies())
@examples(20)
def test_flat_grid_nested_and_written_out_are_the_same_thing(topology: Topology) -> None:
    assert Topology.nested([topology.groups]) == Topology(topology.groups, (sum(topology.groups, ()),))
    assert Topology.flat(topology.world_size) == Topology.grid(data=topology.world_size)
    assert Topology.flat(topology.world_size).groups == tuple((rank,) for rank in range(topology.world_size))
    assert len({topology, Topology(topology.groups)}) == 1


def test_nodes_are_neighbours_unless_written_out() -> None:
    grid = Topology.grid(data=2, tensor=2, ranks_per_node=2)
    assert [grid.node(rank) for rank in range(4)] == [0, 0, 1, 1]
    assert [Topology.flat(4).node(rank) for rank in range(4)] == [0] * 4
    assert [Topology.nested([[0, 2, 3], [1]]).node(rank) for rank in range(4)] == [0, 1, 0, 0]
    crossing = Topology(groups=((0, 2), (1, 3)), nodes=((0, 1), (2, 3)))
    assert [crossing.node(rank) for rank in crossing.group(0)] == [0, 1]


def test_a_grid_without_data_axes_is_one_data_rank() -> None:
    assert Topology.grid(tensor=4).groups == ((0, 1, 2, 3),)
    assert Topology.grid().groups == ((0,),)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Topology(((0, 1), (1, 2))), "groups name rank 1 more than once"),
        (lambda: Topology(((0, 1), (2, 4))), "not 3"),
        (lambda: Topology(((0, 1), (2,))), "1, 2 ranks"),
        (lambda: Topology(((0,), ())), "without ranks"),
        (lambda: Topology(()), "without ranks"),
        (lambda: Topology(((0,), (1,)), ((0,),)), "2 ranks in groups, but 1 on nodes"),
        (lambda: Topology(((0,), (1,)), ((0,), (0,))), "nodes name rank 0 more than once"),
        (lambda: Topology.flat(0), "size 0"),
        (lambda: Topology.grid(expert=2), "unknown axis 'expert'"),
        (lambda: Topology.grid(data=3, ranks_per_node=2), "do not fill nodes of 2"),
        (lambda: Topology.grid(data=3, ranks_per_node=0), "do not fill nodes of 0"),
        (lambda: Topology.flat(2).data_rank(2), "rank 2 is outside 0..1"),
        (lambda: Topology.flat(2).node(-1), "rank -1 is outside 0..1"),
    ],
)
def test_impossible_topologies_and_unknown_ranks_are_refused(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(OrderError, match=complaint) as caught:
        make()
    assert follows_its_hint(caught.value)


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ([[[(0, 1), (2, 3)]]], r"\(0, 1\), where the number"),
        ([[[[0]], [[1]]]], r"\[0\], where the number"),
        ([0, 1], "a machine: found 0, where a list"),
        (3, "found 3, where a list"),
        ([["01"]], "'01', where a list"),
        ([[0.5]], "0.5, where the number"),
        ([[None]], "None, where the number"),
    ],
)
def test_a_nesting_of_another_depth_is_told_what_was_expected(nodes: Any, found: str) -> None:
    with pytest.raises(OrderError, match=found) as caught:
        Topology.nested(nodes)
    assert "machines, each a list of its ranks or of groups of ranks" in follows_its_hint(caught.value)


@pytest.mark.parametrize("groups", [(0, 1), "ab", (((0, 1),),), 3, ((0.5,),)])
def test_groups_and_nodes_of_another_depth_are_told_what_was_expected(groups: Any) -> None:
    for arguments in ([groups], [((0, 1),), groups]):
        with pytest.raises(OrderError, match="where") as caught:
            Topology(*arguments)
        assert "hold the ranks of each" in follows_its_hint(caught.value)


def test_ranks_may_be_numbers_of_numpy() -> None:
    ranks = np.arange(8).reshape(2, 2, 2)
    assert Topology.nested(ranks) == Topology.nested(ranks.tolist())
    assert Topology(ranks[0]) == Topology(((0, 1), (2, 3)))
    assert all(type(rank) is int for group in Topology(ranks[0]).groups for rank in group)
