from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.samples import counting_loader, follows_its_hint
from millstream import LoaderError, MillstreamError, OrderError, PretrainDataLoader
from millstream.loaders import parse_bytes
from millstream.loaders.settings import RANK_VARIABLES, SharedKeywords, default_threads, ranks, resolve

COUNTS = ("batch_size", "threads", "prefetch", "chunk_size", "seq_len", "memory_budget")
NO_COUNTS: tuple[object, ...] = (0, -1, 2.5, "eight", True, [], np.array([1, 2]))
VARIABLES = [name for pair in RANK_VARIABLES for name in pair]


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


# Bad values


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in COUNTS for value in NO_COUNTS),
        ("batch_size", None),
        ("threads", 10**6), ("prefetch", 10**12), ("chunk_size", 2**31), ("batch_size", 2**40),
        ("seed", 1.5), ("seed", "0"), ("seed", True), ("seed", None), ("seed", 2**64), ("seed", -(2**63) - 1),
        ("shuffle", "none"), ("shuffle", 1), ("shuffle", []), ("shuffle", None), ("shuffle", "GLOBAL"),
        ("framework", "tensorflow"), ("framework", ""), ("framework", 3), ("framework", []),
        ("labels", "previous"), ("labels", None), ("labels", []),
        ("drop_last", "no"), ("drop_last", 1), ("pad_last", None),
        ("memory_budget", "much"), ("memory_budget", "-2GB"), ("memory_budget", "2PB"), ("memory_budget", "0GB"),
        ("memory_budget", "1e9"), ("memory_budget", ""), ("memory_budget", 1e9),
        ("cache_dir", 5), ("cache_dir", ""), ("cache_dir", b""),
        ("transforms", len), ("transforms", [5]), ("transforms", "abc"), ("transforms", None),
        ("callbacks", 5), ("callbacks", [object()]), ("callbacks", "abc"),
        ("model_config", 5), ("model_config", "no/such/config.json"),
        ("documents", "join"), ("documents", None), ("tail", "keep"),
        ("pad_id", -1), ("pad_id", 2**31), ("pad_id", "x"), ("pad_id", True),
        ("dtype", "float32"), ("dtype", "uint8"),
        ("tokenizer", 5), ("tokenizer", "no/such/tokenizer.json"),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_by_name_and_with_a_hint(tmp_path: Path, name: str, value: object) -> None:
    path = tmp_path / "x.bin"
    np.arange(101, dtype=np.uint16).tofile(path)
    given: dict[str, Any] = {"dtype": "uint16", "framework": "numpy", name: value}
    if name != "seq_len":
        given.setdefault("chunk_size", 10)
    with pytest.raises(MillstreamError) as caught:
        PretrainDataLoader(path, **given)

    known_as = {"seq_len": "chunk_size", "batch_size": "batch"}.get(name, name)
    assert known_as in str(caught.value)
    follows_its_hint(caught.value)


def test_an_unknown_keyword_is_named_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"'batchsize'.*batch_size"):
        counting_loader(tmp_path, batchsize=4)


def test_settings_that_exclude_each_other_say_so(tmp_path: Path) -> None:
    for wrong in ({"drop_last": True, "pad_last": True}, {"chunk_size": 10, "seq_len": 11}):
        with pytest.raises(LoaderError) as caught:
            counting_loader(tmp_path, **wrong)
        follows_its_hint(caught.value)


def test_a_global_batch_that_drop_last_would_always_drop_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OrderError, match="100 samples") as caught:
        counting_loader(tmp_path, batch_size=101, drop_last=True)
    assert "drop_last" in follows_its_hint(caught.value)

    with counting_loader(tmp_path, batch_size=4, drop_last=True) as loader:
        before = loader.state_dict()
        with pytest.raises(OrderError):
            loader.get_batch(101)
        with pytest.raises(LoaderError, match=r"2\*\*31"):
            loader.get_batch(2**40)
        assert loader.state_dict() == before
        assert loader.next().metadata["step"] == 0


@pytest.mark.parametrize("value", [0, -1, "4", True, 2.0])
def test_get_batch_and_prefetch_refuse_what_is_no_count(tmp_path: Path, value: Any) -> None:
    with counting_loader(tmp_path) as loader:
        for call in (loader.get_batch, loader.prefetch):
            with pytest.raises(LoaderError, match="at least 1"):
                call(value)
        assert loader.next().metadata["step"] == 0


@pytest.mark.parametrize("step", [-1, 2**62, 2**200, "3", None, 1.5])
def test_a_step_that_cannot_be_is_refused_and_nothing_moves(tmp_path: Path, step: Any) -> None:
    with counting_loader(tmp_path) as loader:
        loader.next()
        for call in (loader.seek, loader.explain):
            with pytest.raises(OrderError) as caught:
                call(step)
            follows_its_hint(caught.value)
        assert loader.next().metadata["step"] == 1


def test_a_step_far_ahead_is_as_good_as_a_near_one(tmp_path: Path) -> None:
    with counting_loader(tmp_path) as loader:
        loader.seek(25 * 10**12 + 3)
        batch = loader.next().validate()

        assert (batch.metadata["epoch"], batch.metadata["step"]) == (10**12, 25 * 10**12 + 3)
        assert [row.spans[0].start for row in loader.explain(25 * 10**12 + 3)] == batch.input_ids[:, 0].tolist()


# Good values


def test_integers_of_any_kind_are_integers(tmp_path: Path) -> None:
    with counting_loader(tmp_path, batch_size=np.int64(3), seed=np.uint8(2), chunk_size=np.int32(5)) as loader:
        assert loader.next().input_ids.shape == (3, 5)
        assert loader.get_batch(cast(int, np.int16(2))).input_ids.shape == (2, 5)


@pytest.mark.parametrize(
    ("text", "size"),
    [(7, 7), ("7", 7), ("7B", 7), ("2kb", 2000), ("1.5 GB", 1_500_000_000), (" 64 MiB ", 2**26), ("1t", 10**12)],
)
def test_sizes_are_bytes_or_numbers_with_a_unit(text: Any, size: int) -> None:
    assert parse_bytes(text) == size


@given(st.text(max_size=8))
def test_no_text_crashes_the_size_parser(text: str) -> None:
    try:
        assert (parse_bytes(text) or 0) > 0
    except LoaderError as error:
        assert error.hint


def test_what_is_left_out_has_a_default() -> None:
    settings = resolve(SharedKeywords())

    assert (settings.batch_size, settings.seed, settings.shuffle, settings.labels) == (8, 0, "global", "next")
    assert (settings.rank, settings.world_size, settings.framework) == (0, 1, "torch")
    assert settings.threads == default_threads() >= 1
    assert resolve({"shuffle": True}).shuffle == "global"
    assert resolve({"shuffle": False}).shuffle == "none"
    assert resolve({"framework": None, "threads": None}).framework == "torch"


# Ranks


LAUNCHERS = [("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")]


@pytest.mark.parametrize(("rank", "size"), LAUNCHERS)
def test_rank_and_world_size_come_from_the_launcher(monkeypatch: pytest.MonkeyPatch, rank: str, size: str) -> None:
    monkeypatch.setenv(rank, "3")
    assert ranks(None, None) == (0, 1)  # half a launcher is none
    monkeypatch.setenv(size, "4")

    assert ranks(None, None) == (3, 4)
    assert ranks(1, 2) == (1, 2)
    assert ranks(1, None) == (1, 4)
    assert ranks(None, 5) == (3, 5)


def test_torchrun_goes_before_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")):
        monkeypatch.setenv(name, value)

    assert ranks(None, None) == (1, 2)


@pytest.mark.parametrize("value", ["", "one", "-1", "1.0", " 1"])
def test_a_launcher_that_says_nonsense_is_named(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("RANK", value)
    monkeypatch.setenv("WORLD_SIZE", "2")

    with pytest.raises(OrderError, match="RANK") as caught:
        ranks(None, None)
    assert "unset RANK" in follows_its_hint(caught.value)


@pytest.mark.parametrize(
    ("rank", "world_size"),
    [
        (2, 2),
        (-1, 2),
        (0, 0),
        (1, None),
        (None, 4),
        (0, -1),
        ("0", 2),
        (0, "2"),
        (0.0, 2),
        (True, 2),
        (0, True),
        (None, True),
        (None, 1.0),
    ],
)
def test_impossible_ranks_are_refused(rank: Any, world_size: Any) -> None:
    with pytest.raises(OrderError) as caught:
        ranks(rank, world_size)
    assert "both rank= and world_size=" in follows_its_hint(caught.value)


def test_one_rank_needs_no_telling() -> None:
    assert ranks(None, None) == ranks(0, None) == ranks(None, 1) == ranks(0, 1) == (0, 1)
