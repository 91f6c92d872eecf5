"""A batch as trainers treat it: a mapping that they move, take apart, put together and send to other processes."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data._utils.pin_memory import pin_memory

from loaders.kinds import KINDS
from loaders.samples import counting_loader
from millstream import BatchError, BatchPool, BatchQueue, LoaderError, SelfPlayBatch, TrainingBatch
from millstream.batches import Columns
from millstream.batches.batch import REPLACED
from millstream.tensors import FRAMEWORKS, backend
from millstream.tensors import torch as torch_backend

AnyBatch = TrainingBatch | SelfPlayBatch


def plain(value: Any) -> Any:
    """Anything that a batch holds, as numbers and lists that can be compared."""
    if isinstance(value, TrainingBatch):
        return {name: plain(getattr(value, name)) for name in (*REPLACED, "attention_mask", "loss_mask", "seq_idx")}
    if isinstance(value, SelfPlayBatch):
        return plain([value.planes, value.policy, value.values, value.metadata])
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if hasattr(value, "shape"):
        return str(value.dtype), repr(np.asarray(value).tolist())  # NaN equals NaN
    return value


def remade(batch: Any, change: Any = copy.copy) -> Any:
    """As Accelerate and the Trainer of Hugging Face rebuild a mapping."""
    return type(batch)({name: change(tensor) for name, tensor in batch.items()})


def rich(framework: str = "torch", rows: int = 3) -> TrainingBatch:
    """A batch with everything that is not an input of a model."""
    ids = np.arange(rows * 4, dtype=np.int64).reshape(rows, 4)
    return TrainingBatch(
        ids,
        ids + 1,
        lengths=np.array([4, 2, 3][:rows], np.int32),
        loss_weights=np.linspace(0, 1, rows * 4, dtype=np.float32).reshape(rows, 4),
        metadata={"step": 7, "source": [f"s{row}" for row in range(rows)], "advantages": (ids / 8).astype(np.float32)},
        columns=Columns(tokens=("advantages",)),
        kl=TrainingBatch(ids + 2, ids + 3, metadata={"step": 7}),
    ).to(framework)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "self-play"])
def test_a_batch_that_is_put_together_anew_knows_what_it_knew(kind: str) -> None:
    with KINDS[kind](batch_size=4) as loader:
        batch = loader.next().to("torch")
        again = remade(remade(batch, torch.clone))
        assert type(again) is type(batch)
        assert plain(again) == plain(batch)
        assert type(batch)(batch).metadata["step"] == batch.metadata["step"]
        stop = int(batch._first().shape[0])
        start = stop // 4 * 2  # pairs stay together
        assert plain(remade(batch, lambda tensor: tensor[start:stop])) == plain(batch.rows_between(start, stop))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_mapping_has_as_many_items_as_it_says(framework: str) -> None:
    batch = rich(framework)
    assert isinstance(batch, Mapping)
    assert [*batch] == [*batch.keys()] == [*dict(batch)] == ["input_ids", "attention_mask", "labels"]
    assert len(batch) == len(batch.items()) == len([*batch.values()]) == 3
    assert all(type(name) is str for name in batch)
    assert (batch.get("labels") is batch.labels, batch.get("nothing", 5)) == (True, 5)
    assert plain(remade(batch)) == plain(batch)
    released = batch.copy()
    released.release()
    assert (len(released), bool(released), bool(batch)) == (0, True, True)


def test_a_batch_equals_itself_alone_and_can_be_a_key() -> None:
    one, other = rich(), rich()
    assert one == one and one != other
    assert {one: 1, other: 2}[other] == 2


def devices(batch: TrainingBatch) -> set[str]:
    named = ["input_ids", "labels", "loss_weights", "attention_mask", "loss_mask", "advantages"]
    tensors = [batch[name] for name in named] + [batch["kl_input_ids"], batch["kl_attention_mask"]]
    return {tensor.device.type for tensor in tensors}


def test_all_tensors_go_to_the_device_and_masks_are_made_there() -> None:
    batch = rich()
    assert devices(batch) == {"cpu"}
    for moved in (
        batch.to("meta"),
        batch.to(torch.device("meta"), non_blocking=True),
        batch.to(device="meta", dtype=torch.float16),
        remade(batch, lambda tensor: tensor.to("meta")),
    ):
        assert devices(moved) == {"meta"}
        assert (moved.metadata["step"], moved.metadata["source"]) == (7, ["s0", "s1", "s2"])
        assert devices(moved.copy()) == {"meta"}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_dtype_is_that_of_floating_point_numbers_alone(framework: str) -> None:
    whole = rich(framework)
    float16 = {"torch": torch.float16, "mlx": backend("mlx").mx.float16}
    half = whole.to(dtype=float16.get(framework, np.float16))
    assert half.input_ids.dtype == whole.input_ids.dtype
    assert str(half.loss_weights.dtype).endswith("float16") and str(half.metadata["advantages"].dtype).endswith(
        "float16"
    )
    merged = TrainingBatch.merge(half.split(2))
    assert merged.loss_weights.dtype == half.loss_weights.dtype
    assert plain(merged.loss_weights) == plain(half.loss_weights)


INT32 = {"torch": torch.int32, "numpy": np.int32, "jax": jax.numpy.int32, "mlx": backend("mlx").mx.int32}
INT16 = {"torch": torch.int16, "numpy": np.dtype("int16"), "jax": np.int16, "mlx": backend("mlx").mx.int16}
HALF = {"torch": torch.float16, "numpy": np.float16, "jax": jax.numpy.float16, "mlx": backend("mlx").mx.float16}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_dtype_may_come_first_as_torch_takes_it(framework: str) -> None:
    whole = rich(framework)
    for narrow in (whole.to(INT16[framework]), whole.to(INT32[framework]).to(dtype=INT16[framework])):
        for tensor in (narrow.input_ids, narrow.labels, narrow.attention_mask, narrow["kl_input_ids"]):
            assert str(tensor.dtype).endswith("int16")
        assert narrow.input_ids.tolist() == whole.input_ids.tolist()
        assert narrow.loss_weights.dtype == whole.loss_weights.dtype
        assert plain(TrainingBatch.merge(narrow.split(2))) == plain(narrow)
    half = whole.to(HALF[framework], True)
    assert str(half.loss_weights.dtype).endswith("float16") and half.input_ids.dtype == whole.input_ids.dtype
    assert plain(rich("numpy").to(framework, HALF[framework])) == plain(half)


def test_ids_that_do_not_fit_into_a_dtype_are_refused_and_segments_stay() -> None:
    ids = torch.tensor([[5, 70_000]])
    packed = TrainingBatch(ids, ids, cu_seqlens=torch.tensor([0, 2], dtype=torch.int32), max_seqlen=2)
    with pytest.raises(BatchError, match=r"input_ids hold 70000, which torch.int16 cannot") as refused:
        packed.to(torch.int16)
    assert refused.value.hint
    with pytest.raises(BatchError, match=r"labels hold -100, which torch.uint8 cannot"):
        TrainingBatch.empty(1, 2, framework="torch").to(torch.uint8)
    moved = packed.to("meta", torch.int32)
    assert (moved.input_ids.dtype, moved.input_ids.device.type) == (torch.int32, "meta")
    assert moved.to(torch.int64).cu_seqlens.dtype == torch.int32


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_is_no_framework_device_or_dtype_is_refused_with_a_hint(framework: str) -> None:
    batch = rich(framework)
    others = [each[other] for other in FRAMEWORKS for each in (INT32, HALF)]
    foreign = [each for each in others if backend(framework).dtype_of(each) is None]
    assert framework in ("numpy", "jax") or np.float16 in foreign
    wrong = [*foreign, True, "no device", object(), [1], bool, np.bool_, list, np.zeros(2), ("cpu", "cpu"), 2.5]
    for thing in wrong:
        with pytest.raises((BatchError, LoaderError)) as refused:
            batch.to(thing)
        assert refused.value.hint
    with pytest.raises(BatchError, match="'no dtype' is no dtype of"):
        batch.to(framework, "no dtype")
    with pytest.raises(BatchError, match="cannot go to"):
        batch.to("cpu", device="meta")
    assert batch.to(framework) is batch


@pytest.mark.parametrize("asked", [0, slice(1, 3), (0, 1), None, np.array([0, 1])])
def test_rows_that_are_asked_for_by_number_are_told_of_split(asked: Any) -> None:
    positions = SelfPlayBatch(*(np.zeros((2, *shape), np.float32) for shape in ((112, 8, 8), (1858,), (6, 3))))
    for batch in (rich(), positions):
        with pytest.raises(BatchError, match="its tensors have names") as refused:
            batch[asked]
        assert "batch.split(n)" in str(refused.value.hint) and "rows_between(start, stop)" in str(refused.value.hint)


@pytest.mark.parametrize("parts", [0, -1, True, 1.5, "2", None])
def test_a_batch_is_split_into_a_whole_number_of_parts(parts: Any) -> None:
    positions = SelfPlayBatch(*(np.zeros((2, *shape), np.float32) for shape in ((112, 8, 8), (1858,), (6, 3))))
    for batch in (rich(), positions):
        with pytest.raises(BatchError, match="at least 1 part"):
            batch.split(parts)
        assert [int(piece._first().shape[0]) for piece in batch.split(np.int64(2))] in ([2, 1], [1, 1])  # type: ignore[arg-type]
        batch.release()
        with pytest.raises(BatchError, match="was released"):
            batch.rows_between(0, 1)


def test_a_framework_and_a_device_go_together() -> None:
    assert rich("numpy").to("torch", device="meta").input_ids.device.type == "meta"


def test_positions_of_games_have_no_whole_numbers() -> None:
    batch = SelfPlayBatch(*(np.zeros((2, *shape), np.float32) for shape in ((112, 8, 8), (1858,), (6, 3))))
    with pytest.raises(BatchError, match="float32 do not become") as refused:
        batch.to(np.int32)
    assert "floating-point" in str(refused.value.hint)
    assert batch.to(np.float16).planes.dtype == np.float16


def test_numbers_that_numpy_does_not_know_are_copied_and_merged_as_they_are() -> None:
    half = rich().to(torch.bfloat16)
    for same in (half.copy(), TrainingBatch.merge(half.split(3)), pickle.loads(pickle.dumps(half))):
        assert same.loss_weights.dtype == torch.bfloat16
        assert torch.equal(same.loss_weights, half.loss_weights)


def test_tensors_of_rows_that_nothing_names_leave_nothing_behind_in_silence() -> None:
    def twice(tensor: torch.Tensor) -> torch.Tensor:
        return torch.cat([tensor, tensor])

    with pytest.raises(BatchError, match=r"shape \(6, 4\) .* loss_weights, kl, source, advantages cannot go") as caught:
        remade(rich(), twice)
    assert "batch.split(n)" in str(caught.value.hint)
    simple = TrainingBatch(*torch.arange(16).reshape(2, 2, 4), metadata={"step": 7})
    joined = remade(simple, twice)
    assert (joined.metadata["step"], joined.metadata["rows"], joined.metadata["tokens"]) == (7, 4, 16)


def facts_of(batch: TrainingBatch, row: int) -> Any:
    """Everything that a batch knows of one row, its tokens too."""
    one = plain(batch.rows_between(row, row + 1))
    one["metadata"] = {name: fact for name, fact in one["metadata"].items() if name != "loss_tokens"}
    return one


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "self-play"])
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_rows_in_another_order_take_along_what_they_have_or_are_refused(kind: str, framework: str) -> None:
    with KINDS[kind](batch_size=4) as loader:
        batch = loader.next().to(framework)
    rows = int(batch._first().shape[0])
    orders = [[*range(rows)][::-1], [0] * rows, [*range(1, rows), 0]]
    for order in [each for each in orders if each != [*range(rows)]]:
        try:
            again = remade(batch, lambda tensor, order=order: tensor[np.array(order)])
        except BatchError as refused:
            assert "nothing says which rows they are" in str(refused)
            continue
        assert batch.columns == Columns() and "source" not in batch.metadata
        for place, row in enumerate(order):
            assert facts_of(again, place)["input_ids"] == facts_of(batch, row)["input_ids"]
            assert facts_of(again, place)["metadata"] == facts_of(batch, row)["metadata"]
            assert plain(again.attention_mask)[1] == plain(np.asarray(batch.attention_mask)[order])[1]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_rows_that_were_permuted_do_not_keep_the_facts_of_others(framework: str) -> None:
    batch = rich("numpy")
    with pytest.raises(BatchError, match=r"nothing says which rows they are, so loss_weights, kl, source, adv") as told:
        TrainingBatch({name: backend(framework).from_numpy(tensor[[1, 0, 2]].copy()) for name, tensor in batch.items()})
    assert "batch.split(n)" in str(told.value.hint)
    with pytest.raises(BatchError, match="lengths cannot go with them"):
        short = TrainingBatch(batch.input_ids, batch.labels, lengths=batch.lengths)
        TrainingBatch({name: short[name][::-1] for name in short if name != "attention_mask"})
    pairs = TrainingBatch(batch.input_ids[:2], batch.labels[:2], metadata={"answers": "preference"})
    with pytest.raises(BatchError, match="pairs cannot go with them"):
        remade(pairs, lambda tensor: tensor[::-1])


def test_rows_that_stay_in_their_places_may_have_other_ids_or_other_labels() -> None:
    batch = rich("numpy")
    for name in ("input_ids", "labels"):
        other = TrainingBatch({**batch, name: np.full_like(batch[name], 7)})
        assert (other.metadata["source"], other.metadata["step"]) == (["s0", "s1", "s2"], 7)
        assert other[name].tolist() == [[7] * 4] * 3
    with pytest.raises(BatchError, match="nothing says which rows") as told:
        TrainingBatch({**batch, "input_ids": batch.input_ids * 2, "labels": batch.labels * 2})
    assert "dataclasses.replace(batch" in str(told.value.hint)
    both = replace(batch, input_ids=batch.input_ids * 2, labels=batch.labels * 2)
    assert both.metadata["source"] == ["s0", "s1", "s2"]


def test_labels_that_several_rows_share_do_not_name_them() -> None:
    ids = np.arange(8).reshape(2, 4)
    batch = TrainingBatch(ids, np.full_like(ids, -100), metadata={"source": ["a", "b"]})
    assert remade(batch).metadata["source"] == ["a", "b"]
    with pytest.raises(BatchError, match="so source cannot go"):
        remade(batch, lambda tensor: tensor[::-1])


def test_a_mapping_of_ones_own_becomes_a_batch_or_is_told_what_it_lacks() -> None:
    ids = np.arange(6).reshape(2, 3)
    mask = np.array([[1, 1, 0], [1, 1, 1]])
    batch = TrainingBatch({"input_ids": ids, "labels": ids, "attention_mask": mask}, metadata={"mine": 7})
    assert batch.lengths is not None and batch.lengths.tolist() == [2, 3]
    assert (batch.metadata["mine"], batch.metadata["tokens"]) == (7, 5)
    for given, told in [
        ({"input_ids": ids}, "there is no 'labels'"),
        ({"input_ids": ids, "labels": ids, "pixels": ids}, "a batch has no 'pixels'"),
        ({"input_ids": [1], "labels": ids}, "input_ids are of list"),
        ({**batch, "pixels": ids}, "a batch has no 'pixels'"),
    ]:
        with pytest.raises(BatchError, match=told):
            TrainingBatch(given)
    with pytest.raises(BatchError, match="in a mapping and beside it"):
        TrainingBatch({"input_ids": ids, "labels": ids}, ids)


def test_torchs_collation_is_told_that_batches_are_whole(tmp_path: Path) -> None:
    with counting_loader(tmp_path, framework="torch") as loader:
        wrapped: Any = TorchDataLoader(loader)  # type: ignore[arg-type]
        with pytest.raises(BatchError, match="batch_size=None"):
            next(iter(wrapped))


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("how", [lambda batch: pickle.loads(pickle.dumps(batch)), copy.deepcopy])
def test_a_pickle_holds_everything_and_nothing_else(framework: str, how: Any) -> None:
    batch = rich(framework)
    again = how(batch)
    assert plain(again) == plain(batch)
    assert again.framework == framework
    again.metadata["source"][0] = "changed"
    assert batch.metadata["source"][0] == "s0"


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_every_loader_are_pickled_without_their_buffer(kind: str) -> None:
    with KINDS[kind](batch_size=4) as loader:
        batch = loader.next()
        expected, texts = plain(batch), [pickle.dumps(batch), pickle.dumps(batch.to("torch"))]
        batch.release()
        loader.next()
    assert [plain(pickle.loads(text).to("numpy")) for text in texts] == [expected, expected]


def test_a_pickle_of_a_view_holds_its_rows_alone_and_one_of_a_pool_leaves_the_pool() -> None:
    pool = BatchPool(capacity=1, framework="torch")
    batch = pool.allocate(512, 64)
    text = pickle.dumps(batch.rows_between(3, 5))
    assert len(text) < 20_000
    pool.release(batch)
    again = pickle.loads(text)
    assert type(again) is TrainingBatch and again.metadata["rows"] == 2
    assert pool.try_allocate(1, 1) is not None


def test_pinned_batches_keep_what_they_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_backend, "pin", lambda tensor, device: tensor.clone())  # needs no accelerator
    batch = rich()
    pinned: Any = pin_memory(batch)  # type: ignore[no-untyped-call]
    assert plain(pinned) == plain(batch)
    assert pinned.loss_weights is not batch.loss_weights
    assert rich("numpy").pin_memory().framework == "numpy"


def test_labels_that_are_taken_out_are_no_input_any_more() -> None:
    batch = rich()
    labels = batch.labels
    assert batch.pop("labels") is labels
    assert [*batch] == ["input_ids", "attention_mask"]
    with pytest.raises(BatchError, match="cannot be taken out"):
        batch.pop("input_ids")


def test_a_queue_counts_the_bytes_of_a_pools_batches() -> None:
    queue = BatchQueue(capacity=2)
    queue.enqueue(BatchPool(capacity=1).allocate(4, 8))
    assert queue.stats().bytes == 2 * 4 * 8 * 8


def test_a_trainer_sets_entries_of_its_own_and_the_model_gets_them() -> None:
    batch = rich()
    names = list(batch)
    batch["use_cache"] = False
    batch["seen"] = torch.arange(3)

    assert list(batch) == [*names, "use_cache", "seen"]
    assert {**batch}["use_cache"] is False
    assert "use_cache" in batch
    for same in (remade(batch), batch.copy(), copy.copy(batch), batch.to("numpy"), pickle.loads(pickle.dumps(batch))):
        assert list(same) == list(batch)
        assert (same["use_cache"], same["seen"].tolist()) == (False, [0, 1, 2])
    assert [piece["seen"].tolist() for piece in batch.split(3)] == [[0], [1], [2]]
    assert TrainingBatch.merge(batch.split(3))["seen"].tolist() == [0, 1, 2]
    assert batch.copy().pop("use_cache") is False
    batch["use_cache"] = True
    assert batch["use_cache"] is True
    copied = batch.copy()
    copied["mine"] = 1
    assert "mine" not in batch


@pytest.mark.parametrize("name", ["input_ids", "labels", "attention_mask", "cu_seqlens", "advantages", "kl_labels"])
def test_the_columns_of_a_batch_are_not_set_by_their_names(name: str) -> None:
    batch: Any = rich()

    with pytest.raises(BatchError, match=f"{name!r} of a batch cannot be set") as told:
        batch[name] = batch["labels"]
    assert "dict(batch)" in str(told.value.hint)
    with pytest.raises(BatchError, match="its tensors have names"):
        batch[0] = batch["labels"]
