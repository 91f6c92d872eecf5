"""A Llama of transformers: what keeps packed conversations apart in it, what does not, and that the check tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from millstream import LoaderError, TokenStoreWriter
from millstream.loaders import ConversationDataLoader
from millstream.loaders.rows import Isolation
from oracles.asked import asked

pytestmark = pytest.mark.oracle
transformers = asked("transformers")


def llama(attention: str, *, use_cache: bool) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=128, use_cache=use_cache, initializer_range=0.2, attn_implementation=attention,
    )  # fmt: skip
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(config)


class WithMask(torch.nn.Module):
    """A trainer that adds a padding mask of its own, as many do."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, **fields: Any) -> Any:
        return self.model(**fields, attention_mask=torch.ones_like(fields["input_ids"]))


def packed(path: Path, isolation: Isolation) -> ConversationDataLoader:
    rng = np.random.default_rng(1)
    if not path.exists():
        with TokenStoreWriter(path, dtype="weighted") as writer:
            for _ in range(40):
                size = int(rng.integers(3, 12))
                writer.append(rng.integers(1, 64, size), weights=np.ones(size))
    return ConversationDataLoader(path, max_length=32, packing=True, batch_size=2, isolation=isolation, labels="same")


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_positions_isolate_without_a_cache(tmp_path: Path, attention: str) -> None:
    with packed(tmp_path / "store", "varlen") as loader:
        assert loader.check_isolation(llama(attention, use_cache=False)) < 1e-4


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_cache_or_a_mask_of_ones_undoes_it_and_is_found_out(tmp_path: Path, attention: str) -> None:
    contaminated = [llama(attention, use_cache=True), WithMask(llama(attention, use_cache=False))]
    with packed(tmp_path / "store", "varlen") as loader:
        for model in contaminated:
            with pytest.raises(LoaderError, match="see each other"):
                loader.check_isolation(model)


@pytest.mark.parametrize("use_cache", [True, False])
def test_the_dense_mask_isolates_under_sdpa(tmp_path: Path, use_cache: bool) -> None:
    with packed(tmp_path / "store", "block_mask") as loader:
        assert loader.check_isolation(llama("sdpa", use_cache=use_cache)) < 1e-4
        loss = llama("sdpa", use_cache=use_cache)(**loader.next()).loss
        assert torch.isfinite(loss)


def test_eager_attention_adds_the_dense_mask_and_is_found_out(tmp_path: Path) -> None:
    with (
        packed(tmp_path / "store", "block_mask") as loader,
        pytest.raises(LoaderError, match="see each other") as caught,
    ):
        loader.check_isolation(llama("eager", use_cache=False))
    assert "eager" in str(caught.value.hint)
