"""Streams beside conversations: rows as each source has them alone, and one denominator for a whole update."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import Row, examples, rows_of
from loaders.conversations import LENGTH, Chats, chats, made_late, sizes
from loaders.corpora import Ranks, corpus
from loaders.mixtures import BLOCK, Source, Sources, mixed

__all__ = ["made_late"]
pytestmark = pytest.mark.usefixtures("made_late")

TEXT = corpus((("jsonl", (5, 40, 3, 60, 20) * 8), ("txt", (300,)), ("csv", (30,) * 9)))
LONG = {"chunk_size": LENGTH}
UPDATE = 24
cuts = st.sampled_from([(r, a) for r in (1, 2, 4) for a in (1, 2, 3) if UPDATE % (r * a) == 0])


def beside(data: Chats) -> Sources:
    return {"web": Source(TEXT, cut=800, beside_chats=True), "chat": Source(data, streaming=False, weight=2.0)}


def alone(name: str, source: Source, rows: int, documents: str) -> list[Row]:
    own = {"documents": documents} if name == "web" else {}
    with source.open(name=name, seed=3, batch_size=1, **LONG, **own) as loader:
        return [rows_of(loader.next(), name)[0] for _ in range(rows)]


def plain(rows: list[Row], *, positions: bool) -> list[Row]:
    """Rows as they are in any batch: positions that only count up are written beside rows that need them."""
    return [replace(row, epoch=0, positions=row.positions if positions else None) for row in rows]


@given(data=chats, ranks=st.sampled_from([1, 2, 3]), documents=st.sampled_from(["attend", "isolate"]))
@examples(10)
def test_conversations_and_streams_keep_their_rows_in_one_batch(data: Chats, ranks: int, documents: str) -> None:
    """Also where the documents of streams are kept apart."""
    sources = beside(data)
    members: dict[str, Any] = {**LONG, "documents": documents}
    with Ranks(partial(mixed, sources, members=members), ranks, 12) as run:
        found: list[Row] = []
        for _ in range(8):
            for loader in run.loaders:
                batch = loader.next().validate()
                assert (batch.cu_seqlens is not None) == (data.packing or documents == "isolate")
                rows = rows_of(batch)
                for row in rows:
                    if row.source == "web":
                        assert row.length == LENGTH
                        if documents == "attend":
                            assert row.weights == (1.0,) * LENGTH
                            assert row.positions == (tuple(range(LENGTH)) if data.packing else None)
                found += rows
    for name, source in sources.items():
        apart = documents == "isolate" if name == "web" else data.packing
        own = [row for row in found if row.source == name]
        assert plain(own, positions=apart) == plain(alone(name, source, len(own), documents), positions=apart)


@given(
    data=st.builds(Chats, sizes, st.just("made"), st.booleans()), cut=cuts, mean=st.sampled_from(["token", "sequence"])
)
@examples(12)
def test_every_batch_of_an_update_has_the_denominator_of_all_of_them(
    data: Chats, cut: tuple[int, int], mean: str
) -> None:
    """Rows of streams are full, so what they weigh is known on all ranks before anybody has read them."""
    ranks, accumulation = cut
    members: dict[str, Any] = {**LONG, "accumulation": accumulation, "loss": mean}
    shared = {"world_size": ranks, "batch_size": UPDATE // (ranks * accumulation)}
    loaders = [mixed(beside(data), members=members, rank=rank, **shared) for rank in range(ranks)]
    for _ in range(3):
        batches = [loader.next() for _ in range(accumulation) for loader in loaders]
        facts = {(batch.metadata["num_loss_tokens"], batch.metadata["loss_denominator"]) for batch in batches}
        ((tokens, denominator),) = facts
        assert tokens == sum(batch.metadata["loss_tokens"] for batch in batches)
        weights = math.fsum(weight for batch in batches for row in rows_of(batch) for weight in row.weights)
        assert weights == pytest.approx(denominator, rel=1e-5)
    for loader in loaders:
        loader.close()


def test_a_growing_loader_is_waited_for_and_a_resumed_run_goes_on_with_it() -> None:
    data = Chats((9,) * 40, "growing", packing=True)
    with mixed(beside(data), members=LONG, batch_size=BLOCK) as loader:
        loader.next()
        state = loader.state_dict()
        expected = [rows_of(loader.next()) for _ in range(5)]
    with mixed(beside(data), members=LONG, batch_size=BLOCK) as loader:
        loader.load_state_dict(state)
        assert [rows_of(loader.next()) for _ in range(5)] == expected
        cut = loader.losses["cut_tokens"]
        assert cut == 0 and loader.get_profiling_results()["memory"]["batches"] > 0
        for _ in range(60):
            loader.next()
        found = {number: loader.steps_of(number, "chat") for number in range(40)}
        assert any(found.values())
        for number, steps in found.items():
            for step in steps:
                chats = [row for row in loader.explain(step) if row.source == "chat"]
                assert number in {span.document for row in chats for span in row.spans}
