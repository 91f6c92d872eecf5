"""The laws of mixtures in lanes, for any lanes, quotas, starts and changes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from millstream import OrderError
from millstream.order.blends import MOST_BLENDS, Blend, Blends
from millstream.order.lanes import MOST_TABLE, LaneMixture

lane_counts = st.sampled_from([1, 2, 4, 8, 64])
all_quotas = st.lists(st.integers(1, 12), min_size=1, max_size=4).map(tuple)
starts = st.integers(0, 500)


@given(lanes=lane_counts, quotas=all_quotas, seed=st.integers(0, 5), start=starts)
@examples(60)
def test_every_block_of_the_run_and_of_a_lane_has_each_source_as_often_as_its_quota(
    lanes: int, quotas: tuple[int, ...], seed: int, start: int
) -> None:
    start -= start % lanes
    mixture, places = LaneMixture(lanes, quotas, seed, start), sum(quotas)
    sources, _ = mixture.at(np.arange(start, start + 2 * lanes * places))

    expected = Counter(dict(enumerate(quotas)))
    blocks = [*sources.reshape(-1, places), *sources.reshape(2 * places, lanes).T.reshape(-1, places)]
    assert all(Counter(block.tolist()) == expected for block in blocks)


@given(lanes=lane_counts, quotas=all_quotas, start=starts)
@examples(60)
def test_each_sample_of_a_source_comes_once_in_its_lane_and_can_be_found(
    lanes: int, quotas: tuple[int, ...], start: int
) -> None:
    mixture = LaneMixture(lanes, quotas, 1, start)
    run = np.arange(start, start + 3 * lanes * sum(quotas))
    sources, samples = mixture.at(run)

    assert np.array_equal(samples % lanes, run % lanes)
    for source in range(len(quotas)):
        own = samples[sources == source]
        for lane in range(lanes):
            in_lane = own[own % lanes == lane]
            assert in_lane.tolist() == list(range(lane, lane + lanes * len(in_lane), lanes))
            assert mixture.used(source, int(run[-1]) + 1)[lane] == len(in_lane)
    places = [mixture.run_sample(int(source), int(sample)) for source, sample in zip(sources, samples, strict=True)]
    assert places == run.tolist()


shares = st.dictionaries(st.sampled_from(["web", "code", "chat"]), st.integers(1, 5), min_size=1)


@given(lanes=lane_counts, changes=st.lists(st.tuples(st.integers(1, 40), shares), min_size=1, max_size=5))
@examples(60)
def test_no_change_of_weights_or_sources_repeats_or_loses_a_sample(
    lanes: int, changes: list[tuple[int, dict[str, int]]]
) -> None:
    run, sample, found = Blends(lanes, 0, (Blend.of(0, changes[0][1]),)), 0, list[tuple[str, int]]()
    for length, quotas in changes:
        run = run.change(sample, quotas)
        names, samples = run.at(range(sample, sample + length))
        found += zip(names, samples.tolist(), strict=True)
        sample += length

    assert [run.run_sample(*each) for each in found] == list(range(sample))
    for name in {name for name, _ in found}:
        taken = run.taken(name, sample).tolist()
        expected = {times * lanes + lane for lane in range(lanes) for times in range(taken[lane])}
        assert {each for source, each in found if source == name} == expected
        assert len([each for source, each in found if source == name]) == len(expected)


def test_a_change_that_changes_nothing_leaves_the_mixture_as_it_is() -> None:
    run = Blends(4, 0, (Blend.of(0, {"web": 3, "code": 1}),))

    assert run.change(10, {"web": 3, "code": 1}) == run
    assert run.change(10, {"web": 1}).change(10, {"web": 3, "code": 1}) == run
    assert len(run.change(10, {"code": 1, "web": 3}).all) == 2


def test_the_first_places_are_pinned() -> None:
    """Runs out there go on with this order: make a new order version."""
    sources, samples = LaneMixture(4, (3, 2), 7).at(range(12))

    assert sources.tolist() == [1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1]
    assert samples.tolist() == [0, 1, 2, 3, 0, 5, 2, 7, 4, 1, 6, 3]


def test_what_grows_without_bound_is_refused() -> None:
    with pytest.raises(OrderError, match="too large") as caught:
        LaneMixture(64, (MOST_TABLE,), 0)
    assert caught.value.hint is not None and "mix_block=16384" in caught.value.hint
    run = Blends(1, 0, (Blend.of(0, {"web": 1}),))
    with pytest.raises(OrderError, match="64 times"):
        for change in range(1, MOST_BLENDS + 2):
            run = run.change(change, {"web": 1 + change})
