from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from millstream.order import SampleOrder
from millstream.preparation import Mixing, Part
from millstream.preparation.mixing import WaitingPart, mixed

lengths = st.lists(st.lists(st.integers(0, 6), max_size=8), min_size=1, max_size=6)


def held(parts: list[list[int]]) -> list[WaitingPart]:
    """Parts of documents of these lengths; every token is its own number."""
    found, token = [], 0
    for number, sizes in enumerate(parts):
        tokens = np.arange(token, token + sum(sizes), dtype=np.uint32)
        origins = np.array([[row, 0, 0] for row in range(len(sizes))], np.int64).reshape(-1, 3)
        ends = np.cumsum(sizes, dtype=np.int64)
        found.append(WaitingPart(Part(tokens, ends, origins, len(sizes), 0, 0, 0), file=number, rows_before=10))
        token += sum(sizes)
    return found


@given(parts=lengths, seed=st.one_of(st.none(), st.integers(0, 5)), number=st.integers(1, 64))
@examples(60)
def test_documents_stay_whole_and_keep_their_origins_in_a_keyed_order(
    parts: list[list[int]], seed: int | None, number: int
) -> None:
    texts, token = [], 0
    for file, sizes in enumerate(parts):
        for row, size in enumerate(sizes):
            texts.append((list(range(token, token + size)), [file << 40 | 10 + row, 0, 0]))
            token += size
    if seed is not None and texts:
        order = SampleOrder(len(texts), seed=seed, name="\0mixing").at(np.arange(len(texts)), epoch=number)
        texts = [texts[int(place)] for place in order]

    groups = list(mixed(held(parts), Mixing(seed), number))

    found = [group.tokens[a:b].tolist() for group in groups for a, b in pairwise([0, *group.ends.tolist()])]
    assert found == [text for text, _ in texts]
    assert [origin for group in groups for origin in group.origins.tolist()] == [origin for _, origin in texts]
