"""Duplicates: what shares a key with an earlier document, whatever the memory and however keys are handed in."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import RecipeError
from millstream.records import DuplicateFinder, Duplicates
from millstream.records.dedup import MinhashDedup
from records.blocks import block_of
from records.texts import PLAIN

Keys = Sequence[Sequence[tuple[int, ...]]]  # per document, its keys


def expected(keys: Keys) -> list[tuple[int, int]]:
    """(duplicate, the earliest document that shares a key with it), straight from the definition."""
    first: dict[tuple[int, tuple[int, ...]] | tuple[int, ...], int] = {}
    out = []
    for document, own in enumerate(keys):
        earlier = [first[key] for key in own if key in first]
        if earlier:
            out.append((document, min(earlier)))
        for key in own:
            first.setdefault(key, document)
    return out


def found(folder: Path, keys: Keys, cuts: Sequence[int], words: int = 1, memory_bytes: int = 1 << 20) -> Duplicates:
    finder = DuplicateFinder(folder, key_words=words, memory_bytes=memory_bytes)
    array = np.array(keys, np.uint64).reshape(len(keys), -1)
    for begin, end in zip([0, *cuts], [*cuts, len(keys)], strict=True):
        finder.add(array[begin:end], begin)
    return finder.finish()


def pairs(duplicates: Duplicates) -> list[tuple[int, int]]:
    return list(zip(duplicates.documents.tolist(), duplicates.originals.tolist(), strict=True))


@st.composite
def documents(draw: st.DrawFn) -> tuple[list[list[tuple[int, ...]]], int, list[int]]:
    words = draw(st.integers(1, 2))
    per_document = draw(st.integers(1, 3))
    word = st.sampled_from([0, 1, 2, 1 << 56, (1 << 56) + 1, 255 << 56, (1 << 64) - 1])
    key = st.tuples(*[word] * words)
    keys = draw(st.lists(st.lists(key, min_size=per_document, max_size=per_document), min_size=1, max_size=40))
    cuts = draw(st.lists(st.integers(0, len(keys)), max_size=4).map(sorted))
    return keys, words, cuts


@given(documents())
def test_a_document_is_a_duplicate_iff_an_earlier_one_shares_a_key(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[list[list[tuple[int, ...]]], int, list[int]]
) -> None:
    keys, words, cuts = case

    duplicates = found(tmp_path_factory.mktemp("keys"), keys, cuts, words)

    assert pairs(duplicates) == expected(keys)


@pytest.mark.parametrize("kind", ["spread", "one key", "one prefix"])
def test_little_memory_gives_the_same_answer(tmp_path: Path, kind: str) -> None:
    draw = random.Random(3)
    top = {"spread": 64, "one key": 0, "one prefix": 12}[kind]
    pool = [draw.getrandbits(64) >> (64 - top) if top else 7 for _ in range(2000)]
    keys = [[(draw.choice(pool),), (draw.choice(pool),)] for _ in range(3000)]

    small = found(tmp_path / "small", keys, range(0, 3000, 500), memory_bytes=1)
    large = found(tmp_path / "large", keys, [])

    assert pairs(small) == pairs(large) == expected(keys)
    assert sorted(path.name for path in (tmp_path / "small").iterdir()) == ["documents", "originals"]


@pytest.mark.parametrize("different", [1, 1000, 1 << 40])
def test_memory_does_not_grow_with_the_documents(tmp_path: Path, different: int) -> None:
    budget = 6 << 20
    random_words = np.random.default_rng(5)
    finder = DuplicateFinder(tmp_path / "keys", memory_bytes=budget)
    peaks = []
    tracemalloc.start()
    try:
        for first in range(0, 600_000, 5000):
            words = random_words.integers(0, different, (5000, 1)).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            finder.add(words, first)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.reset_peak()
        finder.finish()
        peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()

    assert max(peaks) < budget


def test_a_mask_says_which_documents_of_a_range_are_duplicates(tmp_path: Path) -> None:
    duplicates = found(tmp_path, [[(1,)], [(2,)], [(1,)], [(3,)], [(2,)]], [])

    assert duplicates.among(1, 5).tolist() == [False, True, False, True]
    assert duplicates.among(0, 2).tolist() == [False, False]


def test_documents_come_in_order_and_nothing_may_be_nothing(tmp_path: Path) -> None:
    finder = DuplicateFinder(tmp_path / "keys")
    finder.add(np.ones((2, 1), np.uint64), 5)
    with pytest.raises(RecipeError, match="in their order"):
        finder.add(np.ones((1, 1), np.uint64), 6)
    assert finder.finish().documents.tolist() == [6]
    assert len(DuplicateFinder(tmp_path / "none").finish()) == 0


def test_similar_texts_share_a_key_as_often_as_theory_says() -> None:
    draw = random.Random(11)
    texts = []
    vocabulary = [a + b for a in PLAIN for b in PLAIN]
    for _ in range(300):
        words = draw.choices(vocabulary, k=200)
        other = list(words)
        for place in draw.sample(range(200), 6):
            other[place] = "changed" + draw.choice(vocabulary)
        texts += [" ".join(words), " ".join(other)]
    keys = MinhashDedup().keys(block_of(texts))

    shared = (keys[0::2] == keys[1::2]).any(axis=1)
    strangers = (keys[0:-2:2] == keys[2::2]).any(axis=1)

    similarity = (196 - 28) / (196 + 28)  # about 28 of 196 shingles differ on each side
    assert abs(shared.mean() - (1 - (1 - similarity**8) ** 14)) < 0.1
    assert not strangers.any()


PINNED = [
    ["0xd1ddb6f0e4e08989", "0x25684c3a33aac24d"],
    ["0x50d37a0672a7593b", "0xa32ebb94b8017e86"],
    ["0xca01c5352cae2743", "0xe27fdda7057c7457"],
]


def test_keys_are_pinned() -> None:
    keys = MinhashDedup(bands=2).keys(block_of(["The old mill by the river grinds grain.", "", "ab"]))

    assert [[hex(key) for key in row] for row in keys.tolist()] == PINNED
