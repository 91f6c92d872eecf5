"""Each chunk goes to one part, for ever the same, whatever else there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64

from games.archives import write_games
from millstream.errors import LoaderError
from millstream.games import ChunkSource, open_chunk_source
from millstream.selfplay import FileRemoved, ScanComplete
from millstream.selfplay.chunk_feed import ChunkSourceFeed, Discovery, Sourced
from millstream.selfplay.splitter import Splitter, part_of_each
from millstream.stages import Pipeline, Queue

_WEIGHTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=5).map(
    lambda weights: {f"part {i}": weight for i, weight in enumerate(weights)}
)


def _split(items: list[Sourced], weights: dict[str, float], threads: int = 1) -> dict[str, list[Sourced]]:
    queue: Queue[Sourced] = Queue(capacity=1000)
    splitter = Splitter(queue, weights=weights, threads=threads, capacity=1000)
    splitter.start()
    with queue.producer() as producer:
        producer.put_many(items)
    return {name: list(splitter.output(name)) for name in weights}


def _validation(name: str) -> list[int]:
    return np.flatnonzero(part_of_each(name, range(100), {"train": 0.9, "validation": 0.1})).tolist()


def test_the_split_is_pinned() -> None:
    """A changed split would let a model train on what it is validated with: it must never change."""
    assert _validation("training-run1-test80-20260115-0017.tar") == [1, 11, 19, 20, 32, 44, 46, 55, 57, 58, 69, 75]
    assert _validation("世界.gz") == [0, 3, 8, 17, 38, 46, 68, 69, 76, 79]


@given(st.text(max_size=20), st.integers(0, 2**32 - 1), _WEIGHTS)
def test_a_chunk_goes_where_its_own_hash_says(name: str, number: int, weights: dict[str, float]) -> None:
    """The hash of its number, seeded by that of the name, is a point of [0, 1), in which each part has its stretch."""
    point = xxh64(number.to_bytes(8, "little"), xxh64(name.encode()).intdigest()).intdigest() / 2**64
    (part,) = part_of_each(name, [number], weights)
    ends = np.cumsum(list(weights.values())) / sum(weights.values())
    assert part == min(np.searchsorted(ends, point, side="right"), len(weights) - 1) or np.isclose(point, ends).any()


def test_parts_have_the_sizes_of_their_weights() -> None:
    parts = part_of_each("a.tar", range(100_000), {"a": 6, "b": 3, "c": 1})
    assert np.allclose(np.bincount(parts) / 100_000, [0.6, 0.3, 0.1], atol=0.01)


def test_a_larger_part_keeps_what_it_had() -> None:
    before = part_of_each("a.tar", range(1000), {"train": 80, "validation": 20})
    after = part_of_each("a.tar", range(1000), {"train": 90, "validation": 10})
    assert set(np.flatnonzero(after == 1)) < set(np.flatnonzero(before == 1))


@pytest.mark.parametrize("threads", [1, 3])
def test_every_chunk_of_a_source_is_in_one_output_and_sentinels_in_all(tmp_path: Path, threads: int) -> None:
    source = open_chunk_source(write_games(tmp_path / "a.tar", 40))
    outputs = _split([source, ScanComplete(), FileRemoved("a.tar")], {"train": 3, "validation": 1}, threads)
    views = []
    for items in outputs.values():
        view, *others = items
        assert isinstance(view, ChunkSource)
        assert others == [ScanComplete(), FileRemoved("a.tar")]
        views.append(view)
    assert sorted(number for view in views for number in view.numbers.tolist()) == list(range(40))
    for view in views:
        assert [view.read(i).fields["rule50_count"][0] for i in range(len(view))] == view.numbers.tolist()


def test_an_output_that_gets_nothing_of_a_source_is_not_told(tmp_path: Path) -> None:
    source = open_chunk_source(write_games(tmp_path / "a.tar", 1))
    outputs = _split([source], {"train": 1, "validation": 1})
    assert sorted(map(len, outputs.values())) == [0, 1]


def test_a_folder_is_split_by_a_pipeline(tmp_path: Path) -> None:
    for i in range(3):
        write_games(tmp_path / f"{i}.tar", 10)
    files = Discovery(tmp_path)
    games = ChunkSourceFeed(files, threads=2)
    split = Splitter(games, weights={"train": 1, "validation": 1})
    ends = ["split.train", "split.validation"]
    with Pipeline({"files": files, "games": games, "split": split}, output=ends) as pipeline:
        numbers: dict[str, list[int]] = {f"{i}.tar": [] for i in range(3)}
        for end in ends:
            while isinstance(view := pipeline.get(end), ChunkSource):
                numbers[view.name] += view.numbers.tolist()
            assert view == ScanComplete()
    assert all(sorted(each) == list(range(10)) for each in numbers.values())


@pytest.mark.parametrize("weights", [{}, {"a": 0.0}, {"a": 1.0, "b": -1.0}, {"a": float("nan")}])
def test_weights_that_split_nothing_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(LoaderError, match="split nothing"):
        Splitter(Queue(), weights=weights)


def test_a_splitter_says_how_many_games_each_output_was_given(tmp_path: Path) -> None:
    queue: Queue[Sourced] = Queue()
    splitter = Splitter(queue, weights={"train": 3, "validation": 1}, threads=3)
    splitter.start()
    with queue.producer() as producer:
        for number in range(5):
            producer.put(open_chunk_source(write_games(tmp_path / f"{number}.tar", 20)))
    given = {
        name: sum(len(view) for view in splitter.output(name) if isinstance(view, ChunkSource))
        for name in ("train", "validation")
    }
    assert sum(given.values()) == 100
    assert splitter.gauges() == {f"chunks_{name}": count for name, count in given.items()}
