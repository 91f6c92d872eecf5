from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.kinds import KINDS
from loaders.samples import follows_its_hint
from millstream import BatchError, BatchPool, LoaderError, Topology, TrainingBatch, distribute
from millstream.loaders import example_loader
from millstream.tensors import FRAMEWORKS, backend

Segments = list[list[int]]
"""Lengths of the segments of each row; what is missing to the row's length is padding."""


def padded(lengths: list[int], width: int = 5) -> TrainingBatch:
    """Rows of counting ids with the given real lengths."""
    ids = np.arange(len(lengths) * width, dtype=np.int64).reshape(len(lengths), width)
    real = np.arange(width) < np.array(lengths, np.int32)[:, None]
    labels = np.where(real, ids + 1, -100)
    return TrainingBatch(np.where(real, ids, 0), labels, lengths=np.array(lengths, np.int32))


def isolated(rows: Segments, width: int = 6) -> TrainingBatch:
    """Rows of segments; padding is made of segments of one token, as the engine makes it."""
    filled = [[*row, *[1] * (width - sum(row))] for row in rows]
    starts = np.cumsum([0, *(length for row in filled for length in row)]).astype(np.int32)
    positions = [[place for length in row for place in range(length)] for row in filled]
    ids = np.arange(len(rows) * width, dtype=np.int64).reshape(len(rows), width)
    return TrainingBatch(
        ids,
        ids + 1,
        lengths=np.array([sum(row) for row in rows], np.int32),
        position_ids=np.array(positions, np.int64).reshape(len(rows), width),
        cu_seqlens=starts,
        max_seqlen=max((length for row in filled for length in row), default=0),
        metadata={
            "epoch": 3,
            "step": 7,
            "rows": (len(rows) + 1) // 2,
            "sequence_length": width,
            "tokens": sum(sum(row) for row in rows),
            "source": [f"source {i}" for i in range(len(rows))],
            "filler": [i % 2 == 1 for i in range(len(rows))],
            "cut_tokens": [10 * i for i in range(len(rows))],
        },
    )


row_lengths = st.lists(st.integers(0, 5), max_size=7)
row_segments = st.lists(
    st.lists(st.integers(1, 6), max_size=6).filter(lambda row: sum(row) <= 6),
    max_size=6,
)
batches = st.one_of(row_lengths.map(padded), row_segments.map(isolated))


def facts(batch: TrainingBatch) -> dict[str, Any]:
    """Everything that is to be known of a batch, as plain Python."""
    fields = {name: np.asarray(value).tolist() for name, value in dict(batch.to("numpy")).items()}
    lengths = None if batch.lengths is None else batch.lengths.tolist()
    return {**fields, "lengths": lengths, **batch.metadata}


# Masks


def test_masks_are_made_when_somebody_asks_and_only_once() -> None:
    batch = padded([5, 2, 0])
    assert batch._attention_mask is None
    assert batch._loss_mask is None

    assert batch.attention_mask.tolist() == [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]]
    assert batch.loss_mask.tolist() == [[1.0] * 5, [1.0, 1.0, 0.0, 0.0, 0.0], [0.0] * 5]
    assert batch.attention_mask is batch.attention_mask
    assert batch.loss_mask is batch.loss_mask
    assert (batch.attention_mask.dtype, batch.loss_mask.dtype) == (np.int64, np.float32)


def test_isolated_rows_have_no_padding_mask() -> None:
    batch = isolated([[2, 3], [6]])

    assert batch.attention_mask is None
    assert "attention_mask" not in dict(batch)
    assert "attention_mask" not in batch


def test_the_loss_mask_follows_the_labels_and_not_the_padding() -> None:
    batch = TrainingBatch(np.array([[1, 2, 3]]), np.array([[-100, 0, 3]]))

    assert batch.loss_mask.tolist() == [[0.0, 1.0, 1.0]]


def slow_dense_mask(batch: TrainingBatch, rows: Segments | None, lengths: list[int]) -> npt.NDArray[np.bool_]:
    """Ask for each pair of places whether one may see the other."""
    count, width = batch.input_ids.shape
    mask = np.zeros((count, 1, width, width), bool)
    for row in range(count):
        segment = []
        if rows is not None:
            for number, length in enumerate(rows[row]):
                segment += [number] * length
            segment += [-1 - place for place in range(width - len(segment))]  # padding sees itself alone
        for query in range(width):
            for key in range(query + 1):
                seen = segment[query] == segment[key] if rows is not None else key < lengths[row] or key == query
                mask[row, 0, query, key] = seen
    return mask


@given(rows=row_segments)
@settings(max_examples=50)
def test_the_dense_mask_of_isolated_rows_is_causal_within_segments(rows: Segments) -> None:
    batch = isolated(rows)

    assert np.array_equal(batch.dense_attention_mask(), slow_dense_mask(batch, rows, []))


@given(lengths=row_lengths)
@settings(max_examples=50)
def test_the_dense_mask_of_padded_rows_is_causal_over_real_tokens_and_every_place_sees_itself(
    lengths: list[int],
) -> None:
    batch = padded(lengths)

    assert np.array_equal(batch.dense_attention_mask(), slow_dense_mask(batch, None, lengths))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_masks_are_tensors_of_the_batchs_framework(framework: str) -> None:
    for batch in (padded([5, 2]).to(framework), isolated([[2, 3], [6]]).to(framework)):
        same_kind = type(batch.input_ids)
        assert isinstance(batch.loss_mask, same_kind)
        assert isinstance(batch.dense_attention_mask(), same_kind)
        assert tuple(batch.dense_attention_mask().shape) == (2, 1, *(2 * [batch.metadata["sequence_length"]]))


# Copy, split, merge


@given(batch=batches, parts=st.integers(1, 8))
@settings(max_examples=100)
def test_merging_what_was_split_gives_the_batch_back(batch: TrainingBatch, parts: int) -> None:
    pieces = batch.split(parts)
    rows = [len(piece.input_ids) for piece in pieces]

    assert len(pieces) == parts
    assert max(rows) - min(rows) <= 1
    assert facts(TrainingBatch.merge(pieces)) == facts(batch)
    for piece in pieces:
        filler = sum(piece.metadata.get("filler", []))
        shape = (piece.metadata["rows"] + filler, batch.metadata["sequence_length"])
        assert piece.validate().input_ids.shape == shape
        assert piece.metadata["tokens"] == (0 if piece.lengths is None else int(piece.lengths.sum()))


@given(batch=batches, parts=st.integers(1, 8))
@settings(max_examples=50)
def test_each_piece_counts_its_own_targets(batch: TrainingBatch, parts: int) -> None:
    batch.metadata["loss_tokens"] = int((np.asarray(batch.labels) != -100).sum())
    pieces = batch.split(parts)
    for piece in pieces:
        assert piece.metadata["loss_tokens"] == int((np.asarray(piece.labels) != -100).sum())
    assert TrainingBatch.merge(pieces).metadata["loss_tokens"] == batch.metadata["loss_tokens"]


@given(batch=batches)
@settings(max_examples=50)
def test_a_copy_is_equal_and_shares_nothing(batch: TrainingBatch) -> None:
    before = facts(batch)
    copy = batch.copy()
    assert facts(copy) == before

    copy.input_ids[...] = -1
    copy.labels[...] = -1
    for name in ("position_ids", "cu_seqlens", "lengths"):
        if getattr(copy, name) is not None:
            getattr(copy, name)[...] = -1
    for value in copy.metadata.values():
        if isinstance(value, list):
            value.clear()
    assert facts(batch) == before


def test_pieces_are_views_and_merged_batches_are_not() -> None:
    batch = padded([5, 5, 5])
    first, second = batch.split(2)
    merged = TrainingBatch.merge([first, second])
    batch.input_ids[...] = 77

    assert first.input_ids[0, 0] == second.input_ids[0, 0] == 77
    assert merged.input_ids[0, 0] == 0


def test_metadata_of_rows_is_cut_and_joined_along() -> None:
    first, second = isolated([[1], [2], [3]]).split(2)

    assert first.metadata["source"] == ["source 0", "source 1"]
    assert second.metadata["filler"] == [False]
    assert (second.metadata["step"], second.metadata["epoch"]) == (7, 3)
    assert TrainingBatch.merge([second, first]).metadata["source"] == ["source 2", "source 0", "source 1"]


def test_rows_that_carry_facts_and_rows_that_do_not_cannot_be_merged_in_silence() -> None:
    with_lengths, without = padded([5]), TrainingBatch(np.zeros((1, 5), np.int64), np.zeros((1, 5), np.int64))
    for pair in ([with_lengths, without], [without, with_lengths]):
        merged = TrainingBatch.merge(pair)
        assert merged.attention_mask.tolist() == [[1] * 5] * 2
        assert merged.metadata["tokens"] == 10
    segments = TrainingBatch(
        with_lengths.input_ids, with_lengths.labels, cu_seqlens=np.array([0, 5], np.int32), max_seqlen=5
    )
    for pair in ([segments, without], [without, segments]):
        with pytest.raises(BatchError, match="differ"):
            TrainingBatch.merge(pair)
    named = padded([5])
    named.metadata["source"] = ["web"]
    with pytest.raises(BatchError, match="differ"):
        TrainingBatch.merge([named, without])
    with pytest.raises(BatchError, match="differ"):
        TrainingBatch.merge([without, named])


def test_unequal_batches_and_no_batches_cannot_be_merged() -> None:
    wrong: list[list[TrainingBatch]] = [
        [TrainingBatch.empty(2, 3), TrainingBatch.empty(2, 4)],
        [TrainingBatch.empty(2, 3), TrainingBatch.empty(2, 3, framework="torch")],
        [isolated([[6]]), TrainingBatch.empty(1, 6)],
    ]
    for pair in wrong:
        with pytest.raises(BatchError) as caught:
            TrainingBatch.merge(pair)
        assert "merge" in follows_its_hint(caught.value)
    with pytest.raises(BatchError, match="no batches"):
        TrainingBatch.merge([])


@pytest.mark.parametrize("parts", [0, -1])
def test_a_batch_is_split_into_at_least_one_part(parts: int) -> None:
    with pytest.raises(BatchError, match="at least 1"):
        TrainingBatch.empty(2, 3).split(parts)


# Validation


def damaged(change: Callable[[TrainingBatch], None]) -> TrainingBatch:
    batch = isolated([[2, 3], [6]]).copy()
    change(batch)
    return batch


def set_field(name: str, value: object) -> Callable[[TrainingBatch], None]:
    return lambda batch: setattr(batch, name, value)


def put(name: str, place: object, value: int) -> Callable[[TrainingBatch], None]:
    def change(batch: TrainingBatch) -> None:
        getattr(batch, name)[place] = value

    return change


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (set_field("input_ids", np.zeros(12, np.int64)), r"not \(rows, length\)"),
        (set_field("labels", np.zeros((2, 5), np.int64)), "labels have shape"),
        (put("input_ids", (1, 2), -1), "negative ids"),
        (put("labels", (1, 2), -1), "negative but not -100"),
        (set_field("position_ids", np.zeros((1, 6), np.int64)), "position_ids have shape"),
        (put("cu_seqlens", 0, 1), "cu_seqlens go from 1"),
        (put("cu_seqlens", -1, 11), "not from 0 to 12"),
        (put("cu_seqlens", 1, 5), "do not rise"),
        (set_field("cu_seqlens", np.zeros(0, np.int32)), "cu_seqlens"),
        (set_field("cu_seqlens", np.array([0, 8, 12], np.int32)), "crosses"),
        (set_field("max_seqlen", 5), "the longest segment"),
        (put("lengths", 0, 7), "lengths"),
        (put("lengths", 0, -1), "lengths"),
        (set_field("input_ids", np.zeros((2, 6))), "not integers"),
        (TrainingBatch.release, "released"),
    ],
)  # fmt: skip
def test_validate_finds_damage(change: Callable[[TrainingBatch], None], complaint: str) -> None:
    batch = damaged(change)

    with pytest.raises(BatchError, match=complaint):
        batch.validate()


def test_validate_finds_lengths_of_other_rows() -> None:
    ids = np.zeros((2, 5), np.int64)

    with pytest.raises(BatchError, match="lengths"):
        TrainingBatch(ids, ids, lengths=np.array([5, 5, 5], np.int32)).validate()


@given(batch=batches)
@settings(max_examples=30)
def test_whole_batches_are_valid_in_every_framework(batch: TrainingBatch) -> None:
    assert batch.validate() is batch
    for framework in FRAMEWORKS:
        assert batch.to(framework).validate().framework == framework


# Fields


def test_a_batch_reads_like_a_dict_of_its_fields() -> None:
    batch = padded([5, 3])

    assert batch["input_ids"] is batch.input_ids
    assert sorted(dict(batch)) == ["attention_mask", "input_ids", "labels"]  # what a model takes
    assert sorted(dict(isolated([[6]]))) == ["input_ids", "labels", "position_ids"]
    assert "loss_mask" in batch and "cu_seqlens" in isolated([[6]])
    assert (lambda **fields: sorted(fields))(**batch) == sorted(batch.keys())
    for name in ("tokens", "framework", "_numpy", "metadata", ""):
        with pytest.raises(KeyError):
            batch[name]
        assert name not in batch
    nothing: Any = 5
    assert nothing not in batch


def test_an_empty_batch_has_no_loss() -> None:
    batch = TrainingBatch.empty(2, 3)

    assert batch.validate().loss_mask.sum() == 0
    assert (batch.metadata["rows"], batch.metadata["sequence_length"], batch.metadata["tokens"]) == (2, 3, 6)
    assert repr(batch) == "TrainingBatch(numpy, epoch=0, step=0, rows=2, sequence_length=3)"


def test_a_released_batch_has_let_go_of_everything_and_says_so() -> None:
    batch = isolated([[2, 3], [6]])
    batch.loss_mask  # noqa: B018 - makes it
    batch.release()

    assert [name for name in ("input_ids", "labels", "position_ids", "cu_seqlens") if batch[name] is not None] == []
    assert batch.metadata["rows"] == 1
    for use in (batch.copy, lambda: batch.split(2), lambda: batch.to("torch"), lambda: batch.loss_mask):
        with pytest.raises(BatchError, match="released") as caught:
            use()
        assert "copy" in follows_its_hint(caught.value)
    assert "released" in repr(batch)
    batch.release()


# Frameworks


@pytest.mark.parametrize("source", FRAMEWORKS)
@pytest.mark.parametrize("target", FRAMEWORKS)
def test_a_batch_is_the_same_in_every_framework(source: str, target: str) -> None:
    for batch in (padded([5, 2, 0]), isolated([[2, 3], [6]]), padded([]), isolated([])):
        there = batch.to(source).to(target)
        assert there.framework == target
        assert facts(there) == facts(batch)
        assert facts(there.copy()) == facts(batch)
        assert facts(TrainingBatch.merge(there.split(2))) == facts(batch)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_batch_can_be_moved_to_the_processor_and_to_nothing_unknown(framework: str) -> None:
    batch = padded([5, 2]).to(framework)

    assert facts(batch.to("cpu")) == facts(batch)
    with pytest.raises((LoaderError, RuntimeError)):
        batch.to("toaster")


def test_a_loaders_batch_survives_the_round_trip_through_all_frameworks() -> None:
    with example_loader(batch_size=3) as loader:
        batch = loader.next()
        there = batch
        for framework in (*FRAMEWORKS, "numpy"):
            there = there.to(framework)

        assert facts(there) == facts(batch)


# Batches of one's own


ALWAYS = ("epoch", "step", "rows", "sequence_length", "tokens")
frameworks = pytest.mark.parametrize("framework", FRAMEWORKS)


def by_hand(framework: str, **given: Any) -> TrainingBatch:
    """Two rows, the first with a token of padding at its front."""
    make = backend(framework).from_numpy
    ids = make(np.array([[0, 5, 6], [7, 8, 9]], np.int32))
    labels = make(np.array([[-100, 6, 1], [8, 9, -100]], np.int32))
    attention = make(np.array([[0, 1, 1], [1, 1, 1]], np.int32))
    loss = make(np.array([[0, 0, 1], [1, 1, 0]], np.float32))
    return TrainingBatch(input_ids=ids, attention_mask=attention, labels=labels, loss_mask=loss, **given)


@frameworks
def test_a_batch_is_made_of_its_promised_fields_and_says_what_can_be_known(framework: str) -> None:
    batch = by_hand(framework, metadata={"mine": [1, 2], "step": 7}).validate()
    assert batch.framework == framework
    assert [batch.metadata[key] for key in ALWAYS] == [0, 7, 2, 3, 5]
    assert batch.metadata["mine"] == [1, 2]
    assert batch.lengths is not None
    assert batch.lengths.tolist() == [2, 3]
    assert repr(batch) == f"TrainingBatch({framework}, epoch=0, step=7, rows=2, sequence_length=3)"


@pytest.mark.parametrize("metadata", [{}, {"mine": 1}, {"rows": 9}])
def test_metadata_of_ones_own_never_hides_what_every_batch_says(metadata: dict[str, Any]) -> None:
    batch = padded([5, 2])
    batch.metadata["step"] = 4
    batch.metadata = metadata
    assert {key: batch.metadata[key] for key in ALWAYS} == {
        "epoch": 0,
        "step": 4,
        "rows": 2,
        "sequence_length": 5,
        "tokens": 7,
        **{key: value for key, value in metadata.items() if key in ALWAYS},
    }
    assert set(batch.metadata) == {*ALWAYS, *metadata}
    batch.metadata.clear()
    assert repr(batch) == "TrainingBatch(numpy)"


@frameworks
def test_masks_that_were_given_go_where_their_rows_go(framework: str) -> None:
    batch = by_hand(framework)

    def masks(each: TrainingBatch) -> list[Any]:
        return [np.asarray(each["attention_mask"]).tolist(), np.asarray(each["loss_mask"]).tolist()]

    given = [[[0, 1, 1], [1, 1, 1]], [[0, 0, 1], [1, 1, 0]]]
    assert masks(batch) == given
    first, second = batch.split(2)
    assert [masks(first), masks(second)] == [[[column[row]] for column in given] for row in (0, 1)]
    assert first.metadata["tokens"] == 2
    turned = TrainingBatch.merge([second, first])
    assert masks(turned) == [column[::-1] for column in given]
    for same in (batch.copy(), batch.to("numpy"), replace(batch), copy.copy(batch), TrainingBatch.merge([batch])):
        assert masks(same.validate()) == given
    assert np.asarray(batch.dense_attention_mask())[0, 0].tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
    pairs = by_hand(framework, metadata={"answers": "preference"})
    assert masks(pairs.rejected) == [[column[1]] for column in given]


@given(batch=batches, framework=st.sampled_from(FRAMEWORKS), made=st.booleans())
@settings(max_examples=40)
def test_a_replaced_batch_differs_in_what_was_replaced_and_shares_the_rest(
    batch: TrainingBatch, framework: str, made: bool
) -> None:
    batch = batch.to(framework)
    if made:
        _ = batch.loss_mask, batch.attention_mask
    same, shallow = replace(batch), copy.copy(batch)
    for each in (same, shallow):
        assert each._attention_mask is None
        assert each.input_ids is batch.input_ids
        assert facts(each) == facts(batch)
        assert each.metadata is not batch.metadata
    other = replace(batch, labels=backend(framework).from_numpy(np.full(batch.input_ids.shape, -100, np.int32)))
    assert not np.asarray(other.loss_mask).any()
    assert replace(batch, metadata={"step": 9}).metadata["step"] == 9
    before = facts(shallow)
    batch.release()
    assert facts(shallow) == before
    with pytest.raises(BatchError, match="released"):
        replace(batch)
    with pytest.raises(BatchError, match="released"):
        copy.copy(batch)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "self-play"])
def test_batches_of_every_loader_can_be_replaced_and_copied(kind: str) -> None:
    with KINDS[kind](batch_size=3) as loader:
        batch = loader.next()
        for each in (replace(batch), copy.copy(batch)):
            each.validate()
            assert str(facts(each)) == str(facts(batch))
            assert (each.kl is None) == (batch.kl is None)
            assert each.columns == batch.columns
            each.release()
        batch.validate()


def test_a_batch_of_a_pool_can_be_replaced_and_its_buffer_comes_back_with_the_last() -> None:
    pool = BatchPool(capacity=1)
    batch = pool.allocate(2, 3)
    other = replace(batch, metadata={"mine": 1})
    batch.release()
    assert pool.try_allocate(2, 3) is None
    other.release()
    assert pool.try_allocate(2, 3) is not None


@pytest.mark.parametrize(
    "given, told",
    [
        (([[1, 2]], [[1, 2]]), "list"),
        ((np.zeros(3, np.int64), np.zeros(3, np.int64)), r"shape \(3,\)"),
        ((np.zeros((1, 3), np.int64), [[1, 2, 3]]), "of numpy, labels list"),
        ((np.zeros((1, 3), np.int64), torch.zeros(1, 3)), "of numpy, labels torch"),
    ],
)
def test_what_is_no_batch_is_refused_with_a_hint(given: tuple[Any, Any], told: str) -> None:
    with pytest.raises(BatchError, match=told) as caught:
        TrainingBatch(*given)
    assert "pass" in follows_its_hint(caught.value)


def test_a_mask_that_does_not_fit_is_found() -> None:
    ids = np.ones((2, 3), np.int64)
    for wrong in (np.ones((2, 2)), np.ones((3, 1, 3, 3))):
        for name in ("attention_mask", "loss_mask"):
            with pytest.raises(BatchError, match=f"{name} has shape"):
                TrainingBatch(ids, ids, lengths=np.array([3, 3], np.int32), masks={name: wrong}).validate()


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({"labels": np.zeros((1, 4), np.int64)}, r"labels have shape \(1, 4\), ids \(2, 4\)"),
    ({"labels": np.zeros((2, 4))}, "labels are float64, not integers"),
    ({"input_ids": np.zeros((2, 4))}, "input_ids are float64, not integers"),
    ({"lengths": np.array([9, 9])}, r"lengths are \[9 9\], ids have shape \(2, 4\)"),
    ({"lengths": np.array([-1, 4])}, r"lengths are \[-1  4\], ids have shape \(2, 4\)"),
    ({"lengths": np.array([4])}, r"lengths have shape \(1,\), ids \(2, 4\)"),
    ({"lengths": [1, 2]}, r"lengths: found \[1, 2\], not an array"),
    ({"position_ids": np.zeros((2, 3), np.int64)}, r"position_ids have shape \(2, 3\), ids \(2, 4\)"),
    ({"loss_weights": np.zeros((1, 4))}, r"loss_weights have shape \(1, 4\), ids \(2, 4\)"),
    ({"masks": {"loss_mask": np.ones((1, 4))}}, r"loss_mask has shape \(1, 4\), ids \(2, 4\)"),
    ({"masks": {"attention_mask": [[1]]}}, r"attention_mask: found \[\[1\]\], not an array"),
    ({"metadata": 5}, "metadata is 5"),
    ({"metadata": [5]}, r"metadata is \[5\]"),
]


@pytest.mark.parametrize("given, told", UNFIT)
def test_no_batch_is_made_of_arrays_that_do_not_fit_together(given: dict[str, Any], told: str) -> None:
    ids = np.zeros((2, 4), np.int64)
    makes: list[Callable[[], TrainingBatch]] = [
        lambda: TrainingBatch(**{"input_ids": ids, "labels": ids, **given}),
        lambda: TrainingBatch(**{"input_ids": ids, "labels": ids, **given}, framework="numpy"),
        lambda: replace(TrainingBatch(ids, ids), **given),
    ]
    for make in makes:
        with pytest.raises(BatchError, match=told) as caught:
            make()
        assert "pass" in follows_its_hint(caught.value)


@frameworks
def test_arrays_of_every_framework_are_fitted_together(framework: str) -> None:
    make, ids = backend(framework).from_numpy, np.zeros((2, 4), np.int32)
    assert TrainingBatch(make(ids), make(ids)).metadata["rows"] == 2
    with pytest.raises(BatchError, match=r"labels have shape \(1, 4\), ids \(2, 4\)"):
        TrainingBatch(make(ids), make(ids[:1]))
    with pytest.raises(BatchError, match=r"input_ids are .*float32, not integers"):
        TrainingBatch(make(ids.astype(np.float32)), make(ids))


def test_metadata_that_is_none_is_refused_when_it_is_set() -> None:
    batch = TrainingBatch.empty(2, 4)
    with pytest.raises(BatchError, match="metadata is 5"):
        batch.metadata = 5  # type: ignore[assignment]
    assert batch.metadata["rows"] == 2


def test_labels_that_were_cut_afterwards_are_found_when_rows_are_dealt_out() -> None:
    batch = TrainingBatch.empty(2, 4)
    batch.labels = batch.labels[:1]
    with pytest.raises(BatchError, match=r"labels have shape \(0, 4\), ids \(1, 4\)"):
        distribute(batch, Topology.flat(2))


def test_tensors_are_asked_for_by_name() -> None:
    batch: Any = TrainingBatch.empty(2, 3)
    with pytest.raises(BatchError, match="its tensors have names"):
        batch[0]
    assert list(batch) == ["input_ids", "attention_mask", "labels"]


@pytest.mark.parametrize("device", ["cuda", "mps", "cuda:3", "nope"])
def test_a_device_that_is_not_there_is_an_error_with_a_hint(device: str) -> None:
    if device == "mps" and torch.backends.mps.is_available():
        device = "nope"
    if device.startswith("cuda") and torch.cuda.is_available():
        device = "nope"
    with pytest.raises(LoaderError, match="cannot be moved to") as caught:
        TrainingBatch.empty(2, 3).to("torch").to(device)
    assert "torch says" in follows_its_hint(caught.value)
