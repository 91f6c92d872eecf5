from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.samples import counting_file, counting_loader, follows_its_hint, take
from millstream import LoaderError, MixedDataLoader, PretrainDataLoader, TrainingBatch, per_row
from millstream.loaders.hooks import Row

SAMPLES = 37
Noise = dict[tuple[int, int], list[int]]
"""Epoch and first token of a row -> what chance made of its labels."""


@per_row
def scramble(row: Row, rng: np.random.Generator) -> Row:
    row["labels"][...] = rng.integers(0, 2**31, row["labels"].shape)
    return row


@per_row
def add_dice(row: Row, rng: np.random.Generator) -> Row:
    return {**row, "labels": row["labels"] + rng.integers(0, 6, row["labels"].shape)}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return counting_file(tmp_path_factory.mktemp("rows") / "c.bin", 3 * SAMPLES + 1)


def open_noisy(path: Path, **given: Any) -> PretrainDataLoader:
    chosen: dict[str, Any] = {"transforms": [scramble, add_dice], "seed": 5, "framework": "numpy", **given}
    return PretrainDataLoader(path, chunk_size=3, dtype="uint16", **chosen)


def noise_of(batch: TrainingBatch) -> Noise:
    epoch = batch.metadata["epoch"]
    return {
        (epoch, row[0]): labels for row, labels in zip(batch.input_ids.tolist(), batch.labels.tolist(), strict=True)
    }


@pytest.fixture(scope="module")
def expected(path: Path) -> Noise:
    with open_noisy(path, batch_size=1, threads=1) as loader:
        return {key: labels for _ in range(2 * SAMPLES) for key, labels in noise_of(loader.next()).items()}


@given(
    world_size=st.integers(1, 4), batch_size=st.integers(1, 9), threads=st.integers(1, 3),
    steps=st.integers(0, 30), later_size=st.integers(1, 9), later_world=st.integers(1, 3),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_the_chance_of_a_row_depends_on_its_place_alone(
    path: Path,
    expected: Noise,
    world_size: int,
    batch_size: int,
    threads: int,
    steps: int,
    later_size: int,
    later_world: int,
) -> None:
    got: Noise = {}
    state: dict[str, Any] = {}
    for rank in range(world_size):
        given: dict[str, Any] = {"rank": rank, "world_size": world_size, "batch_size": batch_size, "threads": threads}
        with open_noisy(path, **given) as loader:
            while loader.step < steps and loader.epoch < 2:
                got.update(noise_of(loader.next()))
            state = loader.state_dict()
    for rank in range(later_world):
        with open_noisy(path, rank=rank, world_size=later_world, batch_size=later_size) as loader:
            loader.load_state_dict(state)
            while loader.epoch < 2:
                got.update(noise_of(loader.next()))

    assert got == expected


def test_chance_differs_between_rows_epochs_transforms_and_seeds(path: Path, expected: Noise) -> None:
    assert len(set(map(tuple, expected.values()))) == 2 * SAMPLES
    with open_noisy(path, seed=6, shuffle=False) as other:
        assert all(expected[key] != labels for key, labels in noise_of(other.next()).items())

    @per_row
    def draw(row: Row, rng: np.random.Generator) -> Row:
        row["labels"][0] = row["labels"][1]
        row["labels"][1] = rng.integers(0, 2**31)
        return row

    with open_noisy(path, transforms=[draw, draw]) as loader:
        labels = loader.next().labels
        assert (labels[:, 0] != labels[:, 1]).all()


def test_filler_rows_are_left_alone(path: Path) -> None:
    with open_noisy(path, batch_size=30, pad_last=True, shuffle=False) as loader:
        loader.next()
        batch = loader.next()

    assert batch.metadata["filler"] == [False] * 7 + [True] * 23
    assert (batch.labels[7:] == -100).all()
    assert (batch.labels[:7] >= 0).all()


def test_rows_see_their_positions_where_documents_are_isolated(path: Path) -> None:
    seen: list[set[str]] = []

    @per_row
    def look(row: Row, rng: np.random.Generator) -> Row:
        seen.append(set(row))
        return row

    with open_noisy(path, transforms=[look], documents="isolate", batch_size=1) as loader:
        loader.next()
    with open_noisy(path, transforms=[look], batch_size=1) as loader:
        loader.next()

    assert seen == [{"input_ids", "labels", "length", "position_ids"}, {"input_ids", "labels", "length"}]


def test_a_mixture_transforms_its_rows_too(path: Path) -> None:
    plain = open_noisy(path, transforms=[])
    given: dict[str, Any] = {"mix_block": 2, "framework": "numpy", "transforms": [scramble]}
    with MixedDataLoader({"a": (plain, 1), "b": (plain, 1)}, batch_size=4, **given) as loader:
        whole = noise_of(loader.next())
        loader.get_batch(3)
    halves: Noise = {}
    for rank in range(2):
        ranks: dict[str, Any] = {"rank": rank, "world_size": 2, **given}
        with MixedDataLoader({"a": (plain, 1), "b": (plain, 1)}, batch_size=2, **ranks) as loader:
            halves.update(noise_of(loader.next()))

    assert halves == whole


@pytest.mark.parametrize("framework", ["torch", "jax", "mlx", "numpy"])
def test_batches_of_every_framework_can_be_transformed(tmp_path: Path, framework: str) -> None:
    @per_row
    def clear(row: Row, rng: np.random.Generator) -> Row:
        row["labels"][:] = -100
        return row

    def mark(batch: TrainingBatch) -> TrainingBatch:
        batch.metadata["marked"] = True
        return batch

    with counting_loader(tmp_path, framework=framework, transforms=[clear, mark]) as loader:
        batch = loader.next()

    assert batch.metadata["marked"]
    assert float(batch.loss_mask.sum()) == 0


# What a transform must not do


@pytest.mark.parametrize(
    "change",
    [
        lambda row: None,
        lambda row: {},
        lambda row: {"input_ids": row["input_ids"]},
        lambda row: {**row, "weights": row["labels"]},
        lambda row: {**row, "labels": row["labels"][:-1]},
        lambda row: {**row, "labels": 5},
        lambda row: {**row, "labels": row["labels"][None]},
        lambda row: {**row, "labels": row["labels"] * 0.5},
        lambda row: {**row, "labels": [str(label) for label in row["labels"]]},
        lambda row: (row["input_ids"], row["labels"]),
    ],
)
def test_a_row_of_another_kind_is_refused(tmp_path: Path, change: Any) -> None:
    wrong = per_row(lambda row, rng: change(row))
    with counting_loader(tmp_path, transforms=[wrong]) as loader:
        with pytest.raises(LoaderError, match="row transform") as caught:
            loader.next()
        follows_its_hint(caught.value)


@pytest.mark.parametrize("result", [None, {}, 5, "batch"])
def test_a_batch_transform_that_returns_no_batch_is_refused(tmp_path: Path, result: object) -> None:
    with counting_loader(tmp_path, transforms=[lambda batch: result]) as loader:
        with pytest.raises(LoaderError, match="TrainingBatch") as caught:
            loader.next()
        follows_its_hint(caught.value)
        assert loader.step == 0


def test_a_transform_that_is_an_object_is_a_transform(tmp_path: Path) -> None:
    class AddOne:
        def __call__(self, batch: TrainingBatch) -> TrainingBatch:
            batch.input_ids += 1
            return batch

    with counting_loader(tmp_path, shuffle=False, transforms=[AddOne(), AddOne()]) as loader:
        assert take(loader, 1)[0] == list(range(2, 12))
