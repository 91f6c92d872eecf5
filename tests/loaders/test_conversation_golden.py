"""Values that pin the order of conversations: whoever changes one of them changes what resumed runs deliver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loaders.conversations import Chats, small
from millstream.batches import packing_of
from millstream.order import PhaseSettings, Schedule, Share, Windows
from millstream.store import TokenStore, TokenStoreWriter

BINS = [
    [[2, 3], [4, 1], [7, 6], [0, 5], [14, 12], [8, 9], [11, 15, 13], [10]],
    [[11, 0], [6, 1, 10], [3, 9, 5], [14, 13], [2, 12], [8], [4], [7, 15]],
]
SHUFFLED = [
    [17, 19, 18, 16, 9, 8, 34, 32, 33, 24, 1, 0, 2],
    [8, 9, 24, 16, 18, 17, 19, 0, 2, 1, 34, 32, 33],
    [8, 9, 32, 33, 34, 24, 18, 17, 19, 16, 0, 1, 2],
]
IN_ORDER = [[1, 0, 2, 9, 8, 17, 19, 18, 16, 24, 34, 32, 33], *SHUFFLED[1:]]
USER, ASSISTANT = [345, 301, 199], [346, 199, 345, 343, 199]
BATCHES: dict[bool, Any] = {
    False: [
        {
            "ids": [*USER, 20, *ASSISTANT, 264, 221, 346, 199],
            "labels": {8: 264, 9: 221, 10: 346},
            "weights": [2.5] * 3,
            "cu_seqlens": None,
        },
        {
            "ids": [*USER, 17, *ASSISTANT, 264, 221, 346, 199],
            "labels": {8: 264, 9: 221, 10: 346},
            "weights": [1.0] * 3,
            "cu_seqlens": None,
        },
    ],
    True: [
        {
            "ids": [*USER, 17, *ASSISTANT, 264, 221, 346, 199, *USER, 20, *ASSISTANT, 264, 221, 346, 199],
            "labels": {8: 264, 9: 221, 10: 346, 21: 264, 22: 221, 23: 346},
            "weights": [*[1.0] * 3, *[2.5] * 3],
            "cu_seqlens": [0, 13, 26],
        },
        {
            "ids": [
                *(*USER, 18, *ASSISTANT, 264, 274, 274, 274, 221, 346, 199),
                *(*USER, 19, *ASSISTANT, 264, 274, 274, 221, 346, 199),
            ],
            "labels": {
                8: 264,
                9: 274,
                10: 274,
                11: 274,
                12: 221,
                13: 346,
                24: 264,
                25: 274,
                26: 274,
                27: 221,
                28: 346,
            },
            "weights": [*[0.5] * 6, *[1.0] * 5],
            "cu_seqlens": [0, 16, 31],
        },
    ],
}
LENGTHS = [5, 3, 8, 2, 7, 1, 4, 6, 8, 2, 3, 5, 1, 1, 9, 4]


def store_of(folder: Path) -> TokenStore:
    with TokenStoreWriter(folder / "store", dtype="weighted") as writer:
        for number, length in enumerate(LENGTHS):
            writer.append([100 * number + place for place in range(length)])
    return TokenStore(folder / "store")


def test_bins_of_a_packing(tmp_path: Path) -> None:
    """Best fit decreasing in windows of eight, as the documents lie and in a keyed order."""
    store = store_of(tmp_path)
    found = []
    for key in (None, 12345):
        packing = packing_of(store.layout, 8, 10, key)
        bins = list(packing.bins)
        samples = [window * 8 + number for window, count in enumerate(bins) for number in range(count)]
        found.append([list(packing.documents(sample)) for sample in samples])
    assert found == BINS


def test_first_positions_of_a_windowed_order() -> None:
    for first_in_order, expected in ((False, SHUFFLED), (True, IN_ORDER)):
        known = {"data": Windows((3, 2, 4, 1, 3), rows=8, capacity=64, first_in_order=first_in_order)}
        recipe = PhaseSettings(7, 64, 13, {"data": Share(13, packed=True)})
        schedule = Schedule.start(recipe, known)
        got = [schedule.rows(step, None)[1].tolist() for step in range(3)]
        assert got == expected


@pytest.mark.parametrize("packing", [False, True])
def test_first_batches_of_a_small_chat_file(packing: bool, tmp_path: Path) -> None:
    chats = Chats((2, 1, 4, 3, 1, 2), "made", packing, tmp_path / "cache")
    with small(), chats.loader(batch_size=1, max_length=40) as loader:
        got = [shown(loader.next()) for _ in range(2)]
    assert got == BATCHES[packing]


def shown(batch: Any) -> dict[str, Any]:
    """The row of a batch without its padding: ids; where labels are, and what they weigh; where conversations begin."""
    real = int(batch.lengths[0])
    starts = None if batch.cu_seqlens is None else [int(start) for start in batch.cu_seqlens if start <= real]
    weights = batch.loss_mask if batch.loss_weights is None else batch.loss_weights
    labels = {place: int(batch.labels[0, place]) for place in range(real) if batch.labels[0, place] >= 0}
    return {
        "ids": batch.input_ids[0][:real].tolist(),
        "labels": labels,
        "weights": [float(weights[0, place]) for place in labels],
        "cu_seqlens": starts,
    }
