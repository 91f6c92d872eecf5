from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch

from loaders.samples import counting_file, counting_loader, ran
from millstream import LoaderError, MillstreamError, MissingExtra, TrainingBatch
from millstream.batches import Columns
from millstream.tensors import FRAMEWORKS, backend, default_framework

SHAPES = [(4, 16), (3, 5), (1, 1), (7, 3), (2, 33)]
"""Rows and lengths; most leave the second column off every boundary that a framework might like."""


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def column_addresses(batch: Any) -> dict[str, int]:
    """Where each column lies, as its own framework says it."""
    where: dict[str, Callable[[Any], int]] = {
        "numpy": address,
        "torch": lambda tensor: int(tensor.data_ptr()),
        "jax": lambda array: int(array.unsafe_buffer_pointer()),
    }
    return {name: where[batch.framework](batch[name]) for name in ("input_ids", "labels")}


def next_boundary(place: int) -> int:
    return (place + 63) // 64 * 64


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
@pytest.mark.parametrize(("rows", "length"), SHAPES)
def test_columns_share_one_buffer_and_each_starts_on_a_boundary(
    tmp_path: Path, framework: str, rows: int, length: int
) -> None:
    id_bytes = backend(framework).ID_BYTES
    with counting_loader(tmp_path, framework=framework, batch_size=rows, chunk_size=length) as loader:
        places = column_addresses(loader.next())

        assert places["input_ids"] % 64 == 0
        assert places["labels"] == next_boundary(places["input_ids"] + id_bytes * rows * length)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_converting_between_numpy_and_torch_copies_nothing(tmp_path: Path, framework: str) -> None:
    other = "torch" if framework == "numpy" else "numpy"
    with counting_loader(tmp_path, framework=framework) as loader:
        batch = loader.next()
        there = batch.to(other)
        there.input_ids[1, 2] = 4321
        there.labels[0, 0] = 1234

        assert column_addresses(there) == column_addresses(batch)
        assert (int(batch.input_ids[1, 2]), int(batch.labels[0, 0])) == (4321, 1234)


@pytest.mark.parametrize(("rows", "length"), SHAPES)
def test_jax_gets_ids_of_32_bits(tmp_path: Path, rows: int, length: int) -> None:
    with counting_loader(tmp_path, framework="jax", batch_size=rows, chunk_size=length, shuffle=False) as loader:
        batch = loader.next()
        inputs, labels = np.asarray(batch.input_ids), np.asarray(batch.labels)

        assert inputs.dtype == labels.dtype == np.int32
        assert inputs.ravel().tolist() == list(range(rows * length))
        assert labels.ravel().tolist() == list(range(1, rows * length + 1))


def test_a_shared_jax_array_looks_at_the_loaders_buffer(tmp_path: Path) -> None:
    with counting_loader(tmp_path, framework="jax", batch_size=4, chunk_size=16, prefetch=4) as loader:
        batch = loader.next()
        pool = loader.get_profiling_results()["memory"]["batches"]
        held = [loader.next().input_ids for _ in range(50)]

        assert loader.get_profiling_results()["memory"]["batches"] > pool
        assert len({int(array.unsafe_buffer_pointer()) for array in (batch.input_ids, *held)}) == 51


def test_jax_computes_with_shared_columns(tmp_path: Path) -> None:
    with counting_loader(tmp_path, framework="jax", batch_size=4, chunk_size=16, shuffle=False) as loader:
        total = jax.jit(lambda ids, labels: (labels - ids).sum())
        answers = [total(batch.input_ids, batch.labels) for batch in (loader.next() for _ in range(10))]

        assert [int(answer) for answer in answers] == [64] * 10


def test_mlx_copies_and_gives_the_buffer_back_at_once(tmp_path: Path) -> None:
    with counting_loader(tmp_path, framework="mlx", prefetch=2) as loader:
        kept = [loader.next() for _ in range(3)]
        pool = loader.get_profiling_results()["memory"]["batches"]
        tensors = [batch.input_ids for batch in kept]
        del kept
        tensors += [loader.next().input_ids for _ in range(50)]

        assert loader.get_profiling_results()["memory"]["batches"] <= pool
        assert len(tensors) == 53


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_tensor_outlives_its_batch_and_its_loader(tmp_path: Path, framework: str) -> None:
    loader = counting_loader(tmp_path, framework=framework, batch_size=4, chunk_size=16, shuffle=False)
    tensor, labels = (lambda batch: (batch.input_ids, batch.labels))(loader.next())
    for _ in range(100):
        loader.next()
    loader.close()
    del loader
    gc.collect()
    with counting_loader(tmp_path, framework=framework, batch_size=4, chunk_size=16) as other:
        for _ in range(20):
            other.next()

    assert np.asarray(tensor).ravel().tolist() == list(range(64))
    assert np.asarray(labels).ravel().tolist() == list(range(1, 65))


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("documents", ["attend", "isolate"])
def test_every_framework_gets_the_same_rows(tmp_path: Path, framework: str, documents: str) -> None:
    settings: dict[str, Any] = {"documents": documents, "chunk_size": 7, "batch_size": 3, "tokens": 100}
    with (
        counting_loader(tmp_path, **settings) as plain,
        counting_loader(tmp_path, framework=framework, **settings) as loader,
    ):
        for expected, batch in zip(plain, loader, strict=True):
            assert batch.framework == framework
            for name in ("input_ids", "labels", "loss_mask", "position_ids", "cu_seqlens"):
                if expected[name] is None:
                    assert batch[name] is None
                else:
                    assert np.asarray(batch[name]).tolist() == expected[name].tolist()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_rank_without_rows_gets_a_batch_of_none(tmp_path: Path, framework: str) -> None:
    with counting_loader(tmp_path, tokens=41, rank=2, world_size=3, batch_size=2, framework=framework) as loader:
        batch = loader.next().validate()

        assert tuple(batch.input_ids.shape) == (0, 10)
        assert tuple(batch.loss_mask.shape) == (0, 10)
        assert (batch.metadata["rows"], batch.metadata["tokens"]) == (0, 0)


# Absent frameworks


BLOCK = """
    import sys
    sys.modules.update(dict.fromkeys(BLOCKED))  # None: cannot be imported, as if it were not there
"""


@pytest.mark.parametrize("framework", ["torch", "jax", "mlx"])
def test_an_absent_framework_is_named_with_the_extra_that_brings_it(tmp_path: Path, framework: str) -> None:
    code = f"""
    BLOCKED = {{"{framework}"}}
    {BLOCK}
    from millstream import MissingExtra, PretrainDataLoader, TrainingBatch
    for use in (
        lambda: PretrainDataLoader(sys.argv[1], chunk_size=10, dtype="uint16", framework="{framework}"),
        lambda: TrainingBatch.empty(1, 2).to("{framework}"),
    ):
        try:
            use()
        except MissingExtra as error:
            print(isinstance(error, ImportError), error.hint)
    """
    expected = f"True {MissingExtra.of(framework, framework).hint}"

    assert ran(code, counting_file(tmp_path / "c.bin")) == [expected] * 2


def test_numpy_alone_is_enough(tmp_path: Path) -> None:
    code = f"""
    BLOCKED = {{"torch", "jax", "mlx", "tokenizers", "tiktoken", "rich", "pyarrow", "transformers"}}
    {BLOCK}
    import millstream
    with millstream.load(sys.argv[1], chunk_size=10, dtype="uint16", shuffle=False) as loader:
        batch = loader.next()
        print(batch.framework, batch.input_ids[0].tolist(), batch.attention_mask.shape)
    print([name for name in BLOCKED if sys.modules[name] is not None])
    """
    out = ran(code, counting_file(tmp_path / "c.bin"))

    assert out == ["numpy [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] (8, 10)", "[]"]


def test_importing_millstream_imports_no_framework_and_no_tokenizer() -> None:
    code = """
        import sys, millstream
        heavy = {"torch", "jax", "mlx", "tokenizers", "tiktoken", "rich", "transformers", "pyarrow"}
        print(sorted(heavy & set(sys.modules)))
    """
    assert ran(code) == ["[]"]


def test_a_loader_imports_only_its_own_framework(tmp_path: Path) -> None:
    code = """
        import sys, millstream
        with millstream.load(sys.argv[1], chunk_size=10, dtype="uint16", framework="numpy") as loader:
            loader.next()
        print(sorted({"torch", "jax", "mlx"} & set(sys.modules)))
    """
    assert ran(code, counting_file(tmp_path / "c.bin")) == ["[]"]


def test_a_framework_that_is_broken_says_why() -> None:
    code = """
        import sys
        sys.modules["jax"] = None
        from millstream import MissingExtra, TrainingBatch
        try:
            TrainingBatch.empty(1, 1).to("jax")
        except MissingExtra as error:
            print(type(error.__cause__).__name__)
    """
    assert ran(code) == ["ModuleNotFoundError"]


def test_torch_is_the_default_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_framework() == "torch"
    monkeypatch.setitem(sys.modules, "torch", None)
    assert default_framework() == "numpy"


def test_an_unknown_framework_is_refused_with_the_known_ones() -> None:
    with pytest.raises(LoaderError) as caught:
        backend("tensorflow")

    assert caught.value.hint is not None
    assert all(framework in caught.value.hint for framework in FRAMEWORKS)
    assert issubclass(MissingExtra, MillstreamError)


# Devices


def sharding(*names: str | None, devices: int = 1) -> Any:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("data",))
    spec: Any = jax.sharding.PartitionSpec
    return jax.sharding.NamedSharding(mesh, spec(*names))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_batch_moves_to_objects_of_a_framework(framework: str) -> None:
    ids = np.arange(8).reshape(2, 4)
    starts = np.array([0, 4, 8], np.int32)
    columns = Columns(("scores",))
    batch = TrainingBatch(
        ids,
        ids + 1,
        position_ids=ids % 4,
        cu_seqlens=starts,
        max_seqlen=4,
        metadata={"scores": np.ones((2, 4, 3), np.float32)},
        columns=columns,
    ).to(framework)
    batch.kl = TrainingBatch.empty(2, 3).to(framework)

    for target in (sharding("data"), sharding("data", None), jax.devices()[0]):
        there = batch.to(target).validate()
        assert there.framework == "jax"
        assert there.input_ids.devices() == {jax.devices()[0]}
        assert np.asarray(there.labels).tolist() == (ids + 1).tolist()
        assert np.asarray(there.cu_seqlens).tolist() == starts.tolist()
        assert there.metadata["scores"].shape == (2, 4, 3)
        assert there.kl is not None
        assert there.kl.framework == "jax"
    assert batch.to(sharding("data")).input_ids.sharding == sharding("data")
    there = batch.to(torch.device("cpu"))
    assert (there.framework, there.input_ids.tolist()) == ("torch", ids.tolist())


def test_rows_are_dealt_out_over_the_devices_of_a_mesh_and_segments_go_to_all() -> None:
    code = """
    import jax, numpy as np
    from millstream import LoaderError, TrainingBatch
    from millstream.batches.queue import batch_bytes
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    ids = np.arange(16, dtype=np.int32).reshape(8, 2)
    starts = np.arange(0, 18, 2, dtype=np.int32)
    batch = TrainingBatch(ids, ids, position_ids=ids % 2, cu_seqlens=starts, max_seqlen=2).to(sharding)
    print([shard.data.shape for shard in batch.input_ids.addressable_shards])
    print([shard.data.shape for shard in batch.cu_seqlens.addressable_shards])
    print(batch.validate().to("numpy").input_ids.tolist() == ids.tolist(), batch_bytes(batch))
    try:
        TrainingBatch.empty(3, 2).to(sharding)
    except LoaderError as error:
        print("jax says" in error.hint)
    """
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    assert ran(code, env=env) == ["[(2, 2), (2, 2), (2, 2), (2, 2)]", "[(9,), (9,), (9,), (9,)]", "True 336", "True"]


@pytest.mark.parametrize(
    ("framework", "target"),
    [
        ("jax", "nowhere"),
        ("jax", "cpu:77"),
        ("jax", "cpu:x"),
        ("jax", 3),
        ("torch", "nowhere"),
        ("torch", "cpu:x"),
        ("torch", object()),
        ("numpy", "cuda"),
        ("numpy", 7),
        ("mlx", "cuda"),
        ("mlx", 7),
    ],
)
def test_a_device_that_there_is_not_is_an_error_with_a_hint(framework: str, target: Any) -> None:
    with pytest.raises(LoaderError, match="cannot be moved to") as caught:
        TrainingBatch.empty(2, 3).to(framework).to(target)
    assert caught.value.hint
