from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from loaders.samples import counting_loader, follows_its_hint, inputs
from millstream import CharTokenizer, LoaderError, MixedDataLoader, PretrainDataLoader, StoreError
from millstream.loaders.settings import ModelLimits
from store.samples import write_store

GPT2 = {"vocab_size": 50257, "n_positions": 1024, "eos_token_id": 50256}


class Config:
    """What a Hugging Face config looks like to us."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def to_dict(self) -> dict[str, Any]:
        return self.values


def test_a_config_is_an_object_a_dict_a_file_or_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GPT2))
    wanted = ModelLimits(vocab_size=50257, longest_row=1024, eos_id=50256)

    for config in (GPT2, Config(GPT2), path, str(path), tmp_path, str(tmp_path)):
        assert ModelLimits.of(config) == wanted
    assert ModelLimits.of(None) == ModelLimits()
    assert ModelLimits.of({}) == ModelLimits()


@pytest.mark.parametrize("key", ["max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length"])
def test_the_longest_row_has_many_names(key: str) -> None:
    assert ModelLimits.of({key: 77}).longest_row == 77


def test_the_language_model_inside_a_multimodal_one_is_meant() -> None:
    config = {"vocab_size": 5, "text_config": {"vocab_size": 32000, "max_position_embeddings": 4096}}

    assert ModelLimits.of(config) == ModelLimits(vocab_size=32000, longest_row=4096)


def test_the_first_of_several_end_tokens_counts() -> None:
    assert ModelLimits.of({"eos_token_id": [7, 8]}).eos_id == 7


@pytest.mark.parametrize(
    "config",
    [
        {"vocab_size": "many"},
        {"vocab_size": 0},
        {"vocab_size": -5},
        {"vocab_size": True},
        {"vocab_size": 1.5},
        {"n_positions": "long"},
        {"n_positions": 0},
        {"max_position_embeddings": 1e4},
        {"eos_token_id": "</s>"},
        {"eos_token_id": -1},
        {"eos_token_id": []},
        {"pad_token_id": {"id": 5}},
        {"vocab_size": 10, "eos_token_id": 10},
        {"vocab_size": 10, "pad_token_id": 11},
        7,
        ["vocab_size"],
        Config([]),  # type: ignore[arg-type]
        SimpleNamespace(vocab_size=5),
    ],
)
def test_a_config_that_cannot_be_is_refused_with_a_hint(config: object) -> None:
    with pytest.raises(LoaderError, match="model_config") as caught:
        ModelLimits.of(config)
    follows_its_hint(caught.value)


def test_a_file_that_is_no_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff{")
    (tmp_path / "list.json").write_text("[]")
    for path in (tmp_path, tmp_path / "list.json", tmp_path / "missing.json"):
        with pytest.raises(LoaderError, match="model_config") as caught:
            ModelLimits.of(path)
        follows_its_hint(caught.value)


# What a loader does with it


def test_the_model_supplies_the_length_and_the_padding(tmp_path: Path) -> None:
    config = {"vocab_size": 2000, "n_positions": 30, "pad_token_id": 1999}
    with counting_loader(
        tmp_path, tokens=50, chunk_size=None, tail="pad", shuffle=False, model_config=config
    ) as loader:
        last = inputs(loader)[-1]

    assert last == [*range(30, 50), *[1999] * 10]


def test_a_row_that_is_too_long_for_the_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoaderError, match="longest row") as caught:
        counting_loader(tmp_path, chunk_size=31, model_config={"n_positions": 30})
    assert "chunk_size=30" in follows_its_hint(caught.value)


def test_padding_that_the_model_has_no_embedding_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoaderError, match="pad_id=5000") as caught:
        counting_loader(tmp_path, pad_id=5000, model_config={"vocab_size": 5000})
    assert "4999" in follows_its_hint(caught.value)


def test_a_store_that_knows_its_ids_is_checked_when_it_is_opened(tmp_path: Path) -> None:
    path = write_store(tmp_path / "store", [range(100)])
    with pytest.raises(LoaderError, match="holds the id 99") as caught:
        PretrainDataLoader(path, chunk_size=10, model_config={"vocab_size": 99})
    assert "prepare" in follows_its_hint(caught.value)

    PretrainDataLoader(path, chunk_size=10, model_config={"vocab_size": 100}).close()


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "int32"])
def test_a_bare_file_is_checked_row_by_row(tmp_path: Path, dtype: str) -> None:
    with counting_loader(tmp_path, shuffle=False, dtype=dtype, model_config={"vocab_size": 85}) as loader:
        assert inputs([loader.next(), loader.next()])[-1][-1] == 79
        with pytest.raises(
            StoreError, match=r"counting\.bin: holds the id \d+, but the vocabulary ends at 84"
        ) as caught:
            loader.next()
        follows_its_hint(caught.value)
    with counting_loader(tmp_path, dtype=dtype, model_config={"vocab_size": 1001}) as loader:
        assert len(inputs(loader)) == 100


def test_the_last_target_is_checked_too(tmp_path: Path) -> None:
    with counting_loader(tmp_path, tokens=11, model_config={"vocab_size": 10}) as loader, pytest.raises(StoreError):
        loader.next()


@pytest.mark.parametrize("config", [None, {"vocab_size": 1000}])
def test_negative_ids_are_found_before_the_embedding_finds_them(tmp_path: Path, config: Any) -> None:
    path = tmp_path / "negative.bin"
    np.array([1, 2, 3, -5, 4, 6, 7], np.int32).tofile(path)
    loader = PretrainDataLoader(path, chunk_size=3, dtype="int32", framework="numpy", model_config=config)
    with loader, pytest.raises(StoreError, match=r"negative\.bin"):
        loader.next()


@pytest.mark.parametrize("framework", ["numpy", "jax"])
def test_ids_that_do_not_fit_31_bits_are_found(tmp_path: Path, framework: str) -> None:
    path = tmp_path / "huge.bin"
    np.array([1, 2, 2**31, 4, 5], np.uint32).tofile(path)
    loader = PretrainDataLoader(path, chunk_size=2, dtype="uint32", framework=framework)
    with loader, pytest.raises(StoreError, match="2147483648"):
        loader.next()


def test_the_tokenizers_vocabulary_counts_where_no_model_is_given(tmp_path: Path) -> None:
    path = write_store(tmp_path / "store", [range(100)])
    letters = write_store(tmp_path / "letters", [[1, 2, 3, 1, 2, 3]])
    tokenizer = CharTokenizer.train(["abc"])
    with pytest.raises(LoaderError, match="holds the id 99"):
        PretrainDataLoader(path, chunk_size=10, tokenizer=tokenizer)
    with PretrainDataLoader(letters, chunk_size=2, tokenizer=tokenizer, framework="numpy") as loader:
        assert all(row.text for row in loader.explain(0))


def test_a_mixture_checks_its_model_too(tmp_path: Path) -> None:
    path = write_store(tmp_path / "store", [range(100)])
    web = PretrainDataLoader(path, chunk_size=10, framework="numpy")
    bare = counting_loader(tmp_path)
    with pytest.raises(LoaderError, match="holds the id 99"):
        MixedDataLoader({"web": (web, 1)}, model_config={"vocab_size": 99})
    with pytest.raises(LoaderError, match="longest row"):
        MixedDataLoader({"web": (web, 1)}, model_config={"n_positions": 9})
    with (
        MixedDataLoader(
            {"web": (web, 0.5), "bare": (bare, 0.5)}, model_config={"vocab_size": 100}, framework="numpy"
        ) as loader,
        pytest.raises(StoreError, match="vocabulary ends at 99"),
    ):
        inputs(loader)


def test_rows_have_the_usual_length_where_nobody_names_one(tmp_path: Path) -> None:
    with counting_loader(tmp_path, tokens=5000, chunk_size=None, model_config={"vocab_size": 5000}) as loader:
        assert loader.next().metadata["sequence_length"] == 2048
    with counting_loader(tmp_path, tokens=5000, chunk_size=None, model_config={"n_positions": 30}) as loader:
        assert loader.next().metadata["sequence_length"] == 30
