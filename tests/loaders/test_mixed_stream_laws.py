"""The laws for mixtures that hold streams: any sources, cuts, weights, threads, ranks, batch sizes and stop points."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from laws import examples
from loaders.corpora import TOKENIZER
from loaders.mixtures import BLOCK, MixedRanks, Sources, all_sources, check_sources, lanes_of, mixed
from millstream.loaders.stream_explain import StreamSpan
from millstream.order.mix import quotas

depths = st.tuples(st.integers(1, 4), st.integers(1, 9))
rank_counts = st.sampled_from([1, 2, 4])


def weights(sources: Sources) -> dict[str, float]:
    return {name: source.weight for name, source in sources.items()}


@given(sources=all_sources(), rows=st.integers(1, 20))
@examples(16)
def test_complete_each_source_gives_its_own_rows_in_its_own_order_and_repeats(sources: Sources, rows: int) -> None:
    """In each lane. So an epoch of a store, and of the lanes of a stream, holds every sample once."""
    with MixedRanks(sources, 1, rows) as run:
        found = run.steps(-(-100 // rows))

    check_sources(found, sources, lanes_of(sources))


@given(sources=all_sources())
@examples(16)
def test_proportions_are_exact_in_every_block(sources: Sources) -> None:
    with MixedRanks(sources, 1, BLOCK) as run:
        for _ in range(6):
            assert Counter(row.source for row in run.step()) == quotas(weights(sources), BLOCK)


@given(sources=all_sources(), depth=depths, ranks=rank_counts)
@examples(16)
def test_same_threads_depth_and_ranks_change_nothing(sources: Sources, depth: tuple[int, int], ranks: int) -> None:
    assume(lanes_of(sources) % ranks == 0)
    with MixedRanks(sources, 1, 8, threads=1, prefetch=1) as plain:
        expected = plain.steps(9)
    with MixedRanks(sources, ranks, 8, threads=depth[0], prefetch=depth[1]) as other:
        assert other.steps(9) == expected


runs = st.lists(
    st.tuples(rank_counts, st.sampled_from([4, 8, 12]), st.integers(0, 9), st.booleans()), min_size=2, max_size=4
)


@given(sources=all_sources(), runs=runs, epoch_size=st.sampled_from([None, 30]))
@examples(20)
def test_resumable_the_rest_of_the_rows_is_equal_on_any_ranks_and_batch_size(
    sources: Sources, runs: list[tuple[int, int, int, bool]], epoch_size: int | None
) -> None:
    """With the states of all ranks merged, or with that of rank 0 alone, which reads more again."""
    assume(all(lanes_of(sources) % ranks == 0 for ranks, *_ in runs))
    got, states, merged = [], list[dict[str, object]](), True
    for ranks, rows, steps, together in runs:
        with MixedRanks(sources, ranks, rows, epoch_size=epoch_size) as run:
            if states:
                run.load(states, merged=merged)
                assert run.states()[0]["sample"] == states[0]["sample"]
            got += run.steps(steps)
            states, merged = run.states(), together
    with MixedRanks(sources, 1, 1, epoch_size=epoch_size) as whole:
        assert got == whole.steps(len(got))


changes = st.lists(
    st.tuples(st.integers(1, 6), st.sets(st.sampled_from(["web", "news", "books"]))), min_size=2, max_size=4
)


@given(sources=all_sources(), changes=changes, weight=st.sampled_from([1.0, 5.0]))
@examples(20)
def test_weights_and_sources_that_change_repeat_and_lose_nothing(
    sources: Sources, changes: list[tuple[int, set[str]]], weight: float
) -> None:
    """Also when a source is left out for a while: it goes on where it stood."""
    found, states = [], list[dict[str, object]]()
    lanes = lanes_of({"web": sources["web"]})
    assume(lanes_of(sources) == lanes)
    for number, (steps, kept) in enumerate(changes):
        now = {name: source for name, source in sources.items() if name == "web" or name in kept}
        now["web"] = replace(sources["web"], weight=weight + number)
        with MixedRanks(now, 1, 7) as run:
            if states:
                run.load(states, merged=True)
            found += run.steps(steps)
            states = run.states()

    assert [row.sample for row in found] == list(range(len(found)))
    check_sources(found, sources, lanes)


@given(sources=all_sources(), rows=st.integers(1, 12), epoch_size=st.sampled_from([None, 40]))
@examples(16)
def test_explainable_rows_name_their_records_and_documents_their_steps(
    sources: Sources, rows: int, epoch_size: int | None
) -> None:
    with mixed(sources, batch_size=rows, epoch_size=epoch_size) as loader:
        batches = [loader.next() for _ in range(6)]
        used: dict[tuple[str, int], set[int]] = {}
        for step, batch in enumerate(batches):
            origins = loader.explain(step)
            assert [origin.row for origin in origins] == list(range(batch.metadata["rows"]))
            for origin, name, inputs in zip(origins, batch.metadata["source"], batch.input_ids.tolist(), strict=True):
                assert origin.source == name and {span.source for span in origin.spans} == {name}
                assert origin.text == TOKENIZER.decode(inputs)
                assert sum(span.stop - span.start for span in origin.spans) == len(inputs)
                assert all(isinstance(span, StreamSpan) == sources[name].streaming for span in origin.spans)
                if batch.metadata["epoch"] == loader.epoch:
                    for span in origin.spans:
                        used.setdefault((name, span.document), set()).add(step)
        for (name, document), steps in used.items():
            assert set(loader.steps_of(document, name)) & set(range(6)) == steps
