"""The order of units: each once, files that are read from their fronts in order, and each file's share everywhere."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chance import as_even_as_chance
from laws import examples
from loaders.corpora import LENGTH, TOKENIZER, corpus, stream
from millstream.sources import Reading
from millstream.streams import STREAM_ORDER, WINDOW_UNITS, StreamPlan, Units
from millstream.streams.plan import ENDLESS_UNITS, EXPANSION, FIRST_WINDOWS, TOGETHER
from streams.files import OBJECTS, found, sized

SIZE = 100
FRONT = ("jsonl.gz", "csv", "tar", "json", "jsonl.xz")
kinds = st.sampled_from(["jsonl", "txt", "parquet", *FRONT])
sizes = st.integers(0, 50) | st.integers(0, 3000) | st.sampled_from([0, SIZE - 1, SIZE, SIZE + 1])
files = st.lists(st.tuples(kinds, sizes), min_size=1, max_size=90)
shuffles = st.sampled_from(["global", "local", "none"])


def units_of(sizes: Any, **how: Any) -> Units:
    return Units(sized(sizes), Reading(chunk_bytes=SIZE, **how))


def plan_of(units: Units, *, shuffle: Any = "global", seed: int = 0, name: str = "data") -> StreamPlan:
    return StreamPlan(units, shuffle=shuffle, seed=seed, name=name)


def order_of(plan: StreamPlan) -> list[int]:
    return [unit for window in range(plan.windows) for unit in plan.units_of(window)]


def front_files(units: Units, order: list[int]) -> list[tuple[int, int]]:
    """The first and the last place of each file that is made of several units and is read from its front."""
    places = np.empty(len(order), int)
    places[order] = np.arange(len(order))
    return [(int(places[run.start]), int(places[run.stop - 1])) for run in units.from_front]


@given(sizes=files, shuffle=shuffles, seed=st.integers(0, 9))
@examples(40)
def test_every_unit_comes_once_and_windows_have_their_sizes(sizes: Any, shuffle: str, seed: int) -> None:
    units = units_of(sizes)
    plan = plan_of(units, shuffle=shuffle, seed=seed)
    order = order_of(plan)
    assert sorted(order) == list(range(units.count))
    assert shuffle != "none" or order == sorted(order)
    counts = [len(plan.units_of(window)) for window in range(plan.windows)]
    full = [*FIRST_WINDOWS, *[WINDOW_UNITS] * plan.windows][: plan.windows]
    assert counts[:-1] == full[:-1] and 0 < counts[-1] <= full[-1]
    assert [plan.window_of(unit) for unit in order] == [w for w, count in enumerate(counts) for _ in range(count)]


@given(sizes=files)
@examples(40)
def test_the_units_are_made_of_all_pieces_of_all_files_each_once(sizes: Any) -> None:
    units = units_of(sizes)
    slots = [slot for unit in range(units.count) for slot in units.slots(unit)]
    assert len(set(slots)) == len(slots)
    pieces = Counter(slot.file for slot in slots)
    for place, file in enumerate(units.files):
        bytes_of_text = file.bytes * (EXPANSION if file.path.suffix in (".gz", ".xz") else 1)
        assert pieces[place] == max(1, -(-bytes_of_text // SIZE))
        assert {slot.of for slot in slots if slot.file == place} == {pieces[place]}
    assert [slot.file for slot in slots] == sorted(slot.file for slot in slots)


@given(sizes=st.lists(st.integers(0, SIZE), min_size=1, max_size=200))
@examples(40)
def test_small_files_are_grouped_to_about_the_size_of_a_unit(sizes: list[int]) -> None:
    units = units_of([("jsonl", size) for size in sizes])
    held = [sum(sizes[slot.file] for slot in units.slots(unit)) for unit in range(units.count)]
    assert max(held) <= SIZE
    assert all(one + other > SIZE for one, other in pairwise(held)), "no two neighbours would have fitted into one"


def test_files_without_a_byte_are_units_too_and_cost_none() -> None:
    units = units_of([("jsonl", 0)] * 500)
    assert units.count == 1 and len(units.slots(0)) == 500
    assert order_of(plan_of(units)) == [0]


@pytest.mark.parametrize("kind", OBJECTS)
def test_objects_are_units_as_files_are(kind: str) -> None:
    """One that does not say how large it is may be of any size."""
    file, _ = found(kind)
    units = Units([file], Reading(chunk_bytes=SIZE))
    assert units.count == ENDLESS_UNITS if kind == "endless dataset" else 5 < units.count < 100
    assert units.from_front == [range(units.count)]


@given(sizes=files, shuffle=st.sampled_from(["global", "local"]), seed=st.integers(0, 9))
@examples(40)
def test_files_that_are_read_from_their_fronts_come_in_order(sizes: Any, shuffle: str, seed: int) -> None:
    units = units_of(sizes)
    order = order_of(plan_of(units, shuffle=shuffle, seed=seed))
    for run in units.from_front:
        assert [unit for unit in order if unit in run] == list(run)
    fronts = {units.slots(run.start)[0].file for run in units.from_front}
    several = {slot.file for unit in range(units.count) for slot in units.slots(unit) if slot.of > 1}
    assert fronts == {file for file in several if units.files[file].format not in ("jsonl", "text", "parquet")} | {
        file for file in several if units.files[file].path.suffix in (".gz", ".xz")
    } | {file for file in several if units.files[file].format == "text"}


def test_texts_are_cut_by_their_bytes_unless_a_file_is_a_document() -> None:
    """Nor where the separator may begin in itself."""
    for how, fronts in (
        ({}, 1),
        ({"documents": "line"}, 0),
        ({"separator": "<end>"}, 0),
        ({"separator": "\n\n"}, 1),
    ):
        assert len(units_of([("txt", 1000)], **how).from_front) == fronts


@pytest.mark.parametrize("seed", range(3))
def test_so_many_files_are_read_from_their_fronts_at_a_time_and_no_more(seed: int) -> None:
    units = units_of([("csv", 100 + 20 * place) for place in range(300)] + [("jsonl", 90_000)])
    order = order_of(plan_of(units, seed=seed))
    spans = front_files(units, order)
    assert len(spans) == 299  # the smallest is one unit
    begun, ended = Counter(first for first, _ in spans), Counter(last + 1 for _, last in spans)
    together = np.cumsum([begun[place] - ended[place] for place in range(len(order))])
    assert together.max() == TOGETHER
    assert np.median(together) > TOGETHER // 2, "and nearly as many all the time"


@pytest.mark.parametrize("kind", ["jsonl", "csv", "jsonl.gz"])
@pytest.mark.parametrize("seed", range(3))
def test_every_stretch_of_windows_holds_the_share_of_each_file(kind: str, seed: int) -> None:
    """As much as a shuffle of all documents would give it, be a file large or small."""
    counts = np.array([8000, 800, 200, 100])
    per_unit = SIZE // EXPANSION if kind == "jsonl.gz" else SIZE
    units = units_of([(kind, int(count) * per_unit) for count in counts])
    plan = plan_of(units, seed=seed)
    assert units.count == counts.sum()
    owners = np.array([units.slots(unit)[0].file for unit in order_of(plan)])
    stretch = 70 * WINDOW_UNITS
    found = np.array([np.bincount(owners[at : at + stretch], minlength=4) for at in range(0, 4 * stretch, stretch)])
    assert as_even_as_chance(found, stretch * counts / counts.sum(), freedom=9, drawn_from=units.count)
    assert (found > 0).all()


def test_files_of_one_unit_are_shuffled_among_the_others_whatever_their_format() -> None:
    units = units_of([("csv", SIZE)] * 400)
    assert units.from_front == []
    order = np.array(order_of(plan_of(units)))
    assert abs(np.corrcoef(order, np.arange(400))[0, 1]) < 0.25


def test_seeds_and_names_have_orders_of_their_own() -> None:
    units = units_of([("jsonl", 9000), ("csv", 9000)])
    orders = [order_of(plan_of(units, **how)) for how in ({}, {"seed": 1}, {"name": "web"}, {"shuffle": "none"})]
    assert len({tuple(order) for order in orders}) == 4
    assert order_of(plan_of(units)) == orders[0]


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_order_does_not_depend_on_ranks_threads_or_caches(ranks: int, tmp_path: Any) -> None:
    folder = corpus((("jsonl", (3,) * 60), ("jsonl.gz", (5,) * 30)))
    found = []
    for how in (
        {},
        {"rank": ranks - 1, "world_size": ranks, "threads": 3},
        {"cache_dir": tmp_path, "cache_limit": 1, "batch_size": 3},
    ):
        with stream(folder, **how) as loader:
            found.append(order_of(loader._run.growing.sources["data"].windows.plan))  # type: ignore[attr-defined]
    assert found[0] == found[1] == found[2]


GOLDEN_UNITS = [
    [12, 27],
    [13, 1],
    [43, 14, 15, 8],
    [41, 3, 16, 28],
    [17, 29, 18, 2, 19, 20, 39, 21],
    [22, 30, 23, 7, 31, 32, 33, 34],
    [11, 35, 9, 36, 24, 42, 25, 5, 0, 26, 10, 6, 4, 37, 44, 40],
    [38],
]
GOLDEN_ROWS = [
    "ord <|endoftext|>20",
    "19 word",
    "<|endoftext|>33 wor",
    "word <|endoftext|>9",
    "ord wor",
    "d word ",
    "ord wor",
    "d word ",
    " word w",
    "d <|endoftext|>32 w",
    " word w",
    " word w",
    "ord wor",
    "<|endoftext|>21 wor",
    "d word ",
    "ord wor",
]


def test_the_order_of_streams_is_version_2() -> None:
    """A change here is a new version of the order: make one, and keep states of this one from being loaded."""
    units = units_of([("jsonl", 1200), ("csv", 1500), ("jsonl.gz", 300), ("jsonl", 40), ("txt", 30), ("parquet", 500)])
    plan = plan_of(units, seed=7)
    assert STREAM_ORDER == 2
    assert [plan.units_of(window) for window in range(plan.windows)] == GOLDEN_UNITS
    with stream(corpus((("jsonl", (3,) * 40), ("csv", (4,) * 20))), seed=7, batch_size=8) as loader:
        rows = [TOKENIZER.decode(row) for _ in range(2) for row in loader.next().input_ids.tolist()]
    assert LENGTH == 7 and rows == GOLDEN_ROWS
