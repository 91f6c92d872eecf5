"""Batches of rollouts: what is said of a token lies where its label is, and losses add up whatever the batches are."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches.rollout_samples import all_places, block_of, random_blocks
from batches.test_batch import facts
from forks import in_child
from laws import examples
from loaders.samples import follows_its_hint
from millstream import BatchError, BudgetError, StoreError, TrainingBatch
from millstream.batches import MeanOf, RolloutFormat, RolloutRows, RolloutStep, RowBuffers
from millstream.order import MicroBatchRule, StepPlan
from millstream.rollouts import RolloutBlock
from millstream.tensors import FRAMEWORKS
from rollouts.samples import random_rollouts

Array = npt.NDArray[Any]
LEARNED = ("sampling_logprobs", "ref_logprobs", "advantages", "returns")
SAID = ("values", "policy_version", "done")
frameworks = pytest.mark.parametrize("framework", FRAMEWORKS)


def array(tensor: Any) -> Array:
    return np.asarray(tensor)


CONSTANT = 7.0
"""What sums of tokens are divided by, where anything but their number is."""


def step_of(blocks: list[RolloutBlock], mean_of: MeanOf = "token", **format: Any) -> RolloutStep:
    return RolloutRows(blocks, RolloutFormat(**format)).step(all_places(blocks), mean_of=mean_of, constant=CONSTANT)


def stretches(batch: TrainingBatch, counts: list[int], lengths: list[int]) -> list[tuple[int, int, int]]:
    """Row, first and last place of each rollout of a batch."""
    places, next_length = [], iter(lengths)
    for row, count in enumerate(counts):
        start = 0
        for _ in range(count):
            length = next(next_length)
            places.append((row, start, start + length))
            start += length
    return places


def check_rollout(batch: TrainingBatch, block: RolloutBlock, row: int, at: tuple[int, int, int], labels: str) -> None:
    """Compare with the columns of the block, token by token."""
    number, start, stop = at
    ids, mask = block.of(row, "token_ids").astype(np.int64), block.of(row, "loss_mask")
    assert array(batch.input_ids)[number, start:stop].tolist() == ids.tolist()
    about = np.arange(stop - start) + (labels == "next")
    said = about < len(ids)
    about = np.where(said, about, 0)
    learned = said & mask[about] & (about > 0)
    assert array(batch.labels)[number, start:stop].tolist() == np.where(learned, ids[about], -100).tolist()
    for names, where in ((LEARNED, learned), (SAID, said)):
        for name in names:
            if name in block.tokens:
                expected = np.where(where, block.of(row, name)[about], 0)
            else:
                expected = np.where(where, block.rows[name][row], 0)
            found = array(batch.metadata[name])[number, start:stop]
            assert np.array_equal(found, expected.astype(found.dtype)), name
    experts = array(batch.metadata["routed_experts"])[number, start:stop]
    assert np.array_equal(experts, block.of(row, "routed_experts"))


@given(
    seed=st.integers(0, 1000),
    labels=st.sampled_from(["next", "same"]),
    packed=st.booleans(),
    per_token=st.booleans(),
    unit=st.sampled_from([1, 8]),
)
@examples(60)
def test_what_is_said_of_a_token_lies_where_its_label_is(
    seed: int, labels: str, packed: bool, per_token: bool, unit: int
) -> None:
    blocks = random_blocks(seed, per_token=per_token, groups=2, size=3)
    step = step_of(blocks, labels=labels, packed=packed, pad_to_multiple_of=unit, pad_id=3)
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(step.places))[:7]
    ends = [*np.sort(rng.integers(0, 8, 2)).tolist(), len(chosen)] if packed else None
    batch = step.batch(chosen, row_ends=ends).validate()

    counts = [1] * len(chosen) if ends is None else np.diff(ends, prepend=0).tolist()
    at = stretches(batch, counts, step.lengths[chosen].tolist())
    for (block, row), place in zip(step.places[chosen].tolist(), at, strict=True):
        check_rollout(batch, blocks[block], row, place, labels)
    padding = np.ones(array(batch.input_ids).shape, bool)
    for row, start, stop in at:
        padding[row, start:stop] = False
    assert (array(batch.input_ids)[padding] == 3).all()
    assert (array(batch.labels)[padding] == -100).all()
    assert not any(array(batch.metadata[name])[padding].any() for name in batch.columns.tokens)
    assert array(batch.input_ids).shape[1] % unit == 0
    assert batch.metadata["rollout_id"] == [blocks[block]["rollout_id"][row] for block, row in step.places[chosen]]
    if packed:
        starts = [row * array(batch.input_ids).shape[1] + start for row, start, _ in at]
        assert set(starts) <= set(array(batch.cu_seqlens).tolist())
        assert batch.metadata["segments"] == counts


def cut_somehow(step: RolloutStep, rng: np.random.Generator) -> list[TrainingBatch]:
    """A random partition of the step into batches, filler included, some of which are split once more."""
    ranks = int(rng.integers(1, 4))
    unit = step.rows.format.pad_to_multiple_of
    cap = int(step.lengths.max() + unit + rng.integers(0, 60))
    rule = MicroBatchRule(cap, packed=step.rows.format.packed, unit=unit)
    plan = StepPlan.of(step.lengths, ranks=ranks, rule=rule, multiple=int(rng.integers(1, 3)))
    batches = [step.batch(rows) for rank in plan.micro_batches for rows in rank]
    assert max(batch.input_ids.size for batch in batches) <= cap
    return [piece for batch in batches for piece in (batch.split(2) if rng.random() < 0.3 else [batch])]


@given(
    seed=st.integers(0, 1000),
    mean_of=st.sampled_from(get_args(MeanOf)),
    weights=st.booleans(),
    packed=st.booleans(),
    labels=st.sampled_from(["next", "same"]),
)
@examples(40)
def test_scaled_losses_add_up_to_the_same_whatever_the_batches_are(
    seed: int, mean_of: MeanOf, weights: bool, packed: bool, labels: str
) -> None:
    blocks = random_blocks(seed, weights=weights, groups=2, size=3)
    for block in blocks:
        block["rollout_id"][:3] = block["rollout_id"][0]  # one rollout in several rows
    step = step_of(blocks, mean_of, packed=packed, labels=labels, pad_to_multiple_of=int(seed % 3 * 4 + 1))
    rng = np.random.default_rng(seed)

    def loss(batches: list[TrainingBatch]) -> float:
        total = 0.0
        for batch in batches:
            weighed = batch.loss_mask if batch.loss_weights is None else batch.loss_weights
            losses = np.sin(array(batch.metadata["values"]).astype(np.float64)) + 2
            total += float((weighed.astype(np.float64) * losses).sum()) / batch.metadata["loss_denominator"]
        return total

    rows, whole = [], 0.0
    for (block, row), weight in zip(step.places.tolist(), step.loss.weights.astype(np.float32), strict=True):
        losses = np.sin(blocks[block].of(row, "values").astype(np.float64)) + 2
        learned = blocks[block].of(row, "loss_mask").copy()
        learned[0] = False
        rows.append((blocks[block]["rollout_id"][row], blocks[block]["weight"][row], losses[learned]))
        whole += float(weight) * losses[learned].sum() / step.loss.totals["loss_denominator"]
    assert loss(cut_somehow(step, rng)) == pytest.approx(whole, rel=1e-12)
    assert loss(cut_somehow(step, rng)) == pytest.approx(whole, rel=1e-12)
    assert whole == pytest.approx(mean_as_it_is_told(rows, mean_of), rel=1e-6)


def mean_as_it_is_told(rows: list[tuple[str, float, Array]], mean_of: MeanOf) -> float:
    """The weighted mean of all tokens, of the means or sums of rows, or of the means of rollouts; or only a sum."""
    if mean_of in ("constant", "sequence_sum"):
        total = sum(weight * row.sum() for _, weight, row in rows) / CONSTANT
        return float(total if mean_of == "constant" else total / sum(weight for _, weight, row in rows if len(row)))
    if mean_of == "token":
        parts = [(weight, each) for _, weight, row in rows for each in row]
        return float(sum(weight * each for weight, each in parts) / sum(weight for weight, _ in parts))
    keys = [number if mean_of == "sequence" else name for number, (name, _, _) in enumerate(rows)]
    sums, weights = 0.0, 0.0
    for key in dict.fromkeys(keys):
        own = [(weight, row) for each, (_, weight, row) in zip(keys, rows, strict=True) if each == key]
        tokens = sum(len(row) for _, row in own)
        sums += sum(weight * row.sum() for weight, row in own) / tokens
        weights += sum(weight * len(row) for weight, row in own) / tokens
    return float(sums / weights)


def test_a_step_of_nothing_has_only_filler() -> None:
    step = RolloutRows(random_blocks(0)).step([])
    assert step.batch([]).metadata["num_rollouts"] == 0
    assert [len(rank) for rank in StepPlan.of(step.lengths, ranks=3, rule=MicroBatchRule(8)).micro_batches] == [1] * 3


def test_every_batch_says_what_the_whole_step_weighs() -> None:
    blocks = random_blocks(3)
    blocks[0]["rollout_id"][:2] = "twice"
    step = step_of(blocks)
    masks = [blocks[block].of(row, "loss_mask")[1:] for block, row in step.places]
    for rows in ([0, 5], [1], []):
        metadata = step.batch(rows).metadata
        assert metadata["num_loss_tokens"] == metadata["loss_denominator"] == sum(mask.sum() for mask in masks)
        assert metadata["num_sequences"] == len(masks) == metadata["num_rollouts"] + 1
    both = int(masks[0].sum() + masks[1].sum())
    assert step.batch([0, 5, 1]).metadata["rollout_loss_tokens"] == [both, int(masks[5].sum()), both]


def test_weights_are_there_where_some_weigh_other_than_1() -> None:
    assert step_of(random_blocks(0)).batch([0]).loss_weights is None
    blocks = random_blocks(0)
    blocks[1]["weight"][:] = 2.5
    step = step_of(blocks)
    batch = step.batch([0, len(blocks[0])])
    assert np.array_equal(batch.loss_weights, batch.loss_mask * np.array([[1], [2.5]], np.float32))
    assert step.loss.totals["loss_denominator"] == (step.loss.weights * step.loss.targets).sum()


# Filler


@frameworks
@pytest.mark.parametrize("packed", [False, True])
def test_a_batch_of_nothing_is_a_row_of_padding_that_a_model_can_see(framework: str, packed: bool) -> None:
    step = step_of(random_blocks(1), framework=framework, packed=packed, pad_to_multiple_of=8, pad_id=2)
    batch = step.batch([]).validate()
    assert array(batch.input_ids).tolist() == [[2] * 8]
    assert array(batch.labels).tolist() == [[-100] * 8]
    if not packed:
        assert array(batch.attention_mask).tolist() == [[1] * 8]
    assert (batch.metadata["filler"], batch.metadata["rows"], batch.metadata["tokens"]) == ([True], 0, 0)
    assert batch.metadata["rollout_id"] == []
    assert not any(array(batch.metadata[name]).any() for name in batch.columns.tokens)
    merged = TrainingBatch.merge([step.batch([0], length=64), step.batch([], length=64)]).validate()
    assert merged.metadata["rollout_id"] == step.column("rollout_id")[:1].tolist()
    first, second = merged.split(2)
    assert (first.metadata["filler"], second.metadata["filler"]) == ([False], [True])
    assert first.metadata["tokens"] == step.lengths[0] == merged.metadata["tokens"]
    assert second.metadata["reward"] == []


# Batches that are cut, joined, moved, copied


def everything(batch: TrainingBatch) -> dict[str, Any]:
    found = facts(batch)
    return {**found, **{name: array(found[name]).tolist() for name in batch.columns.tokens}}


@frameworks
@pytest.mark.parametrize("packed", [False, True])
def test_columns_are_cut_joined_copied_and_moved_with_their_rows(framework: str, packed: bool) -> None:
    step = step_of(random_blocks(5), framework=framework, packed=packed)
    batch = step.batch(range(9), row_ends=[2, 5, 6, 9] if packed else None)
    pieces = batch.split(3)
    assert everything(TrainingBatch.merge(pieces).validate()) == everything(batch)
    assert [name for piece in pieces for name in piece.metadata["rollout_id"]] == batch.metadata["rollout_id"]
    assert everything(batch.copy()) == everything(batch)
    for other in FRAMEWORKS:
        assert everything(batch.to(other)) == everything(batch)
        assert type(batch.to(other).metadata["advantages"]) is type(batch.to(other).input_ids)
    first = batch["advantages"]
    assert (
        array(pieces[0].metadata["advantages"]).tolist() == array(first)[: array(pieces[0].input_ids).shape[0]].tolist()
    )
    batch.release()
    assert batch.metadata["advantages"] is None
    with pytest.raises(BatchError, match="released"):
        batch.copy()


def test_batches_with_other_columns_are_not_merged() -> None:
    plain = [block_of(random_rollouts(0, full=False))]
    one, other = step_of(plain).batch([0], length=64), step_of(random_blocks(0)).batch([0], length=64)
    with pytest.raises(BatchError, match="differ"):
        TrainingBatch.merge([one, other])


# Memory


def test_tensors_share_the_buffer_and_bring_it_back() -> None:
    torch = pytest.importorskip("torch")
    buffers = RowBuffers()
    blocks = random_blocks(2)
    rows = RolloutRows(blocks, RolloutFormat(framework="torch"), buffers)
    step = rows.step(all_places(blocks))
    batch = step.batch([0, 1, 2])
    used, at = buffers.used_bytes, batch.input_ids.data_ptr()
    assert at % 64 == 0
    assert all(batch.metadata[name].data_ptr() % 64 == 0 for name in batch.columns.tokens)
    kept = batch.metadata["advantages"]
    batch.release()
    other = step.batch([0, 1, 2])
    assert other.input_ids.data_ptr() != at  # somebody still looks at it
    del kept
    assert step.batch([0, 1, 2]).input_ids.data_ptr() == at
    assert buffers.used_bytes == 2 * used
    assert isinstance(batch.metadata["reward"][0], float)
    assert torch.is_tensor(step.batch([1]).metadata["values"])


def test_a_budget_in_the_users_hands_is_an_error() -> None:
    blocks = random_blocks(2)
    rows = RolloutRows(blocks, buffers=RowBuffers(memory_budget=50_000))
    step = rows.step(all_places(blocks))
    held: list[TrainingBatch] = []
    with pytest.raises(BudgetError, match="does not fit") as caught:
        held.extend(step.batch([0, 1]) for _ in range(100))
    follows_its_hint(caught.value)
    assert len(held) > 1
    held.clear()
    assert step.batch([0, 1]).metadata["rows"] == 2


def test_columns_may_be_read_only_and_mapped(tmp_path: Path) -> None:
    blocks = random_blocks(4)
    mapped = []
    for number, block in enumerate(blocks):
        tokens = {}
        for name, column in block.tokens.items():
            np.save(tmp_path / f"{number}-{name}.npy", column)
            tokens[name] = np.load(tmp_path / f"{number}-{name}.npy", mmap_mode="r")
        mapped.append(RolloutBlock(block.ends, block.rows, tokens))
    assert everything(step_of(mapped).batch(range(6))) == everything(step_of(blocks).batch(range(6)))


def test_any_number_of_threads_may_make_batches() -> None:
    step = step_of(random_blocks(6, groups=8, mean_length=200), packed=True)
    chosen = np.array_split(np.random.default_rng(0).permutation(len(step.places)), 12)
    expected = [everything(step.batch(rows)) for rows in chosen]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(3):
            assert [everything(batch) for batch in threads.map(step.batch, chosen)] == expected


def test_a_file_that_is_cut_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    block = random_blocks(4, mean_length=3000)[0]
    np.save(tmp_path / "values.npy", block["values"])
    values = np.load(tmp_path / "values.npy", mmap_mode="r")
    step = step_of([block.with_columns(values=values)])
    step.batch([0])
    os.truncate(tmp_path / "values.npy", 4096)
    with pytest.raises(StoreError, match="was cut"):
        step.batch(range(len(block)))


# What cannot be


def test_numbers_that_do_not_fit_are_an_error_and_not_wrapped() -> None:
    for name in ("token_ids", "policy_version"):
        block = random_blocks(0)[0]
        column = block[name].copy()
        column[3] = 2**31
        large = block.with_columns(**{name: column})
        RolloutRows([large], RolloutFormat(framework="torch"))
        with pytest.raises(BatchError, match=f"{name} has a value of 2147483648"):
            RolloutRows([large], RolloutFormat(framework="jax"))


def test_what_cannot_be_is_refused() -> None:
    blocks = random_blocks(0)
    step = step_of(blocks)
    with pytest.raises(BatchError, match="rows of 3 tokens"):
        step.batch([0], length=3)
    with pytest.raises(BatchError, match="multiple of 0"):
        RolloutFormat(pad_to_multiple_of=0)
    with pytest.raises(BatchError, match="no ends to choose"):
        step.batch([0], row_ends=[1])
    for place in ((2, 0), (0, 99), (-1, 0), (0, -1)):
        with pytest.raises(BatchError, match=f"no rollout {place[1]} in block {place[0]}"):
            step.rows.step([(0, 0), place])
    for rows in ([-1], [0, 99]):
        with pytest.raises(BatchError, match="the step has rollouts 0 to"):
            step.batch(rows)
    packed = step_of(blocks, packed=True)
    for ends in ([1], [3], [1, 0, 2], [-1, 2], []):
        with pytest.raises(BatchError, match="do not hold 2 rollouts"):
            packed.batch([0, 1], row_ends=ends)
    other = [blocks[0], block_of(random_rollouts(1, full=False))]
    with pytest.raises(BatchError, match="blocks 0 and 1 do not both have done") as caught:
        RolloutRows(other)
    follows_its_hint(caught.value)
    with pytest.raises(BatchError, match="advantages, one value per token or one per rollout"):
        RolloutRows([blocks[0], random_blocks(0, per_token=False)[1]])


@pytest.mark.parametrize(
    ("ends", "columns"),
    [
        ([1, 1], {}),
        ([2, 4], {}),
        ([-1, 3], {}),
        ([2, 3], {"loss_mask": np.ones(2, bool)}),
        ([2, 3], {"values": np.ones(4, np.float32)}),
        ([2, 3], {"values": np.ones((3, 2, 0), np.float32)}),
        ([2, 3], {"sampling_logprobs": np.ones((3, 2), np.float32)}),
    ],
)
def test_blocks_that_do_not_hang_together_are_refused(ends: list[int], columns: dict[str, Array]) -> None:
    tokens = {"token_ids": np.arange(3, dtype=np.uint32), "loss_mask": np.ones(3, bool), **columns}
    block = RolloutBlock(np.array(ends), {"rollout_id": np.array(["a", "b"], object)}, tokens)
    with pytest.raises(BatchError):
        RolloutRows([block])


def test_ids_that_top_p_kept_go_with_their_rollouts() -> None:
    """Of three tokens, the first rollout's have 1 and 2 kept ids, the second's none."""
    block = RolloutBlock(
        np.array([2, 3]),
        {"rollout_id": np.array(["a", "b"], object)},
        {
            "token_ids": np.array([5, 6, 7], np.uint32),
            "loss_mask": np.ones(3, bool),
            "kept_count": np.array([1, 2, 0], np.uint32),
        },
        np.array([5, 6, 9], np.uint32),
    )
    batch = RolloutRows([block]).step([(0, 1), (0, 0)]).batch([0, 1])
    assert [ids.tolist() for ids in batch.metadata["kept_ids"]] == [[], [5, 6, 9]]
    assert [offsets.tolist() for offsets in batch.metadata["kept_offsets"]] == [[0, 0], [0, 1, 3]]
    assert [ids.tolist() for ids in batch.split(2)[1].metadata["kept_ids"]] == [[5, 6, 9]]


def test_a_forked_child_has_buffers_of_its_own_and_never_waits_for_a_thread_that_is_not_there() -> None:
    """Threads make batches all the time, so one of them holds the lock at many a fork."""
    step = step_of(random_blocks(3))
    rows = np.arange(min(8, len(step.places)))
    expected, native = step.batch(rows).input_ids.tolist(), step.rows.buffers.native
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            step.batch(rows)

    with ThreadPoolExecutor(2) as threads:
        try:
            working = [threads.submit(work) for _ in range(2)]
            for _ in range(25):
                child = in_child(
                    lambda: (step.batch(rows).input_ids.tolist() == expected, step.rows.buffers.native is native)
                )
                assert child() == (True, False)
        finally:
            ended.set()
        for each in working:
            each.result()
    assert step.rows.buffers.native is native
