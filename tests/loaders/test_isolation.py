"""Packed conversations see only themselves, as far as a model knows how; whether it does is found out by trying."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from loaders.samples import follows_its_hint
from millstream import (
    LoaderError,
    MixedDataLoader,
    PretrainDataLoader,
    TokenStore,
    TokenStoreWriter,
    TrainingBatch,
    check_isolation,
)
from millstream.loaders import ConversationDataLoader

LENGTH = 24
ISOLATING = ("varlen", "block_mask")


class Attention(nn.Module):
    """One layer of causal attention that keeps conversations apart as it is told: by positions, by a mask, or not."""

    def __init__(self, listens_to: str) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.listens_to = listens_to
        self.embed, self.head = nn.Embedding(64, 16), nn.Linear(16, 64)
        self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
        self.seen: set[str] = set()

    def forward(self, input_ids: torch.Tensor, **fields: torch.Tensor) -> dict[str, torch.Tensor]:
        self.seen = {"input_ids", *fields}
        hidden = self.embed(input_ids)
        scores = self.query(hidden) @ self.key(hidden).transpose(1, 2)
        length = input_ids.shape[1]
        allowed = torch.ones(length, length, dtype=torch.bool).tril()
        if self.listens_to == "position_ids":
            segment = (fields["position_ids"] == 0).cumsum(1)
            allowed = allowed & (segment[:, :, None] == segment[:, None, :])
        if self.listens_to == "attention_mask" and "attention_mask" in fields:
            allowed = allowed & fields["attention_mask"][:, 0]
        weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
        return {"loss": hidden.mean(), "logits": self.head(weights @ self.value(hidden))}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    path = tmp_path_factory.mktemp("isolation") / "store"
    rng = np.random.default_rng(1)
    with TokenStoreWriter(path, dtype="weighted") as writer:
        for _ in range(40):
            size = int(rng.integers(3, 12))
            writer.append(rng.integers(1, 64, size), weights=np.ones(size))
    return TokenStore(path)


def packed(store: TokenStore, **how: Any) -> ConversationDataLoader:
    return ConversationDataLoader(store, max_length=LENGTH, packing=True, batch_size=3, **how)


def test_varlen_rows_say_where_segments_are_and_have_no_mask(store: TokenStore) -> None:
    with packed(store) as loader:
        batch = loader.next().validate()

    assert batch.attention_mask is None and set(batch.keys()) == {"input_ids", "labels", "position_ids"}
    assert batch.cu_seqlens.dtype == torch.int32 and type(batch.max_seqlen) is int
    starts = batch.cu_seqlens[:-1]
    assert (batch.position_ids.reshape(-1)[starts.long()] == 0).all()
    assert (batch.position_ids == 0).sum() == len(starts)
    assert (batch.seq_idx[:, 0] == 0).all() and batch.seq_idx.dtype == torch.int32


def test_block_masks_are_dense_and_causal_inside_each_segment(store: TokenStore) -> None:
    with packed(store, isolation="block_mask") as loader:
        batch = loader.next()

    mask, segment = batch.attention_mask, batch.seq_idx
    assert mask.shape == (3, 1, LENGTH, LENGTH) and mask.dtype == torch.bool
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    assert (mask[:, 0] == (causal & (segment[:, :, None] == segment[:, None, :]))).all()
    assert batch.attention_mask is mask  # made once
    for other in (batch.copy(), batch.split(2)[0], batch.to("numpy")):
        assert other.attention_mask.shape[1:] == (1, LENGTH, LENGTH)
    assert batch.attention_mask.any(-1).all()  # padding sees itself: no softmax over nothing


def test_without_isolation_rows_are_one_segment_and_labels_are_the_same(store: TokenStore) -> None:
    with packed(store, isolation="none") as none, packed(store) as varlen:
        batch, other = none.next().validate(), varlen.next()

    assert batch.cu_seqlens is batch.position_ids is batch.max_seqlen is batch.seq_idx is None
    assert batch.attention_mask.shape == (3, LENGTH)
    assert batch.attention_mask.sum().item() == batch.metadata["tokens"]
    assert (batch.input_ids == other.input_ids).all() and (batch.labels == other.labels).all()


@pytest.mark.parametrize(
    ("isolation", "listens_to", "apart"),
    [
        ("varlen", "position_ids", True),
        ("varlen", "attention_mask", False),
        ("varlen", "nothing", False),
        ("block_mask", "attention_mask", True),
        ("block_mask", "nothing", False),
    ],
)
def test_a_model_that_lets_conversations_see_each_other_is_found_out(
    store: TokenStore, isolation: Any, listens_to: str, apart: bool
) -> None:
    model = Attention(listens_to).train()
    with packed(store, isolation=isolation) as loader:
        expected = loader.next().input_ids.tolist()
        loader.reset()
        if apart:
            assert loader.check_isolation(model) < 1e-5
        else:
            with pytest.raises(LoaderError, match=r"differ by up to \d") as caught:
                loader.check_isolation(model)
            hint = follows_its_hint(caught.value)
            assert all(word in hint for word in ("use_cache=False", "attn_implementation", "block_mask"))
        assert model.seen == set(loader.next().keys())
        loader.reset()
        assert loader.next().input_ids.tolist() == expected  # the run did not move
    assert model.training


def test_the_check_leaves_the_run_where_it_is(store: TokenStore) -> None:
    with packed(store) as plain, packed(store) as checked:
        for step in range(6):
            checked.check_isolation(Attention("position_ids"))
            assert checked.next().input_ids.tolist() == plain.next().input_ids.tolist()
            assert checked.state_dict()["step"] == step + 1


def test_a_batch_that_is_only_checked_is_no_loss(tmp_path: Path) -> None:
    with TokenStoreWriter(tmp_path / "long", dtype="weighted") as writer:
        for size in [LENGTH + 30, *[LENGTH // 2] * 20]:
            writer.append(np.arange(1, size + 1) % 64, weights=np.ones(size))
    with packed(TokenStore(tmp_path / "long"), shuffle=False) as loader:
        cut = sum(sum(loader.next().metadata["cut_tokens"]) for _ in range(loader.get_num_batches()))
        assert loader.losses["cut_tokens"] == cut > 0
        loader.reset()
        counted = 0
        while loader.epoch == 0:
            loader.check_isolation(Attention("position_ids"))
            counted += sum(loader.get_batch(1).metadata["cut_tokens"])
            assert loader.losses["cut_tokens"] == counted
        assert counted == cut


def test_a_tolerance_can_be_given(store: TokenStore) -> None:
    with packed(store) as loader:
        batch = loader.next()
    assert check_isolation(Attention("nothing"), batch, tolerance=1e9) > 0.01
    with pytest.raises(LoaderError):
        check_isolation(Attention("position_ids"), batch, tolerance=-1.0)


def test_logits_that_are_no_numbers_are_no_proof(store: TokenStore) -> None:
    class Broken(Attention):
        def forward(self, input_ids: torch.Tensor, **fields: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": super().forward(input_ids, **fields)["logits"] * torch.nan}

    with packed(store) as loader, pytest.raises(LoaderError, match="nan"):
        loader.check_isolation(Broken("position_ids"))


def test_what_cannot_be_checked_says_so(store: TokenStore, tmp_path: Path) -> None:
    model = Attention("position_ids")
    with packed(store, isolation="none") as loader, pytest.raises(LoaderError, match="isolation='none'"):
        loader.check_isolation(model)
    with ConversationDataLoader(store, max_length=LENGTH) as loader:
        with pytest.raises(LoaderError, match="no packing"):
            loader.check_isolation(model)
        with pytest.raises(LoaderError, match="does not say"):
            check_isolation(model, loader.next())
    alone = TrainingBatch(
        np.array([[5, 6]]), np.array([[6, -100]]), position_ids=np.array([[0, 1]]),
        cu_seqlens=np.array([0, 2], np.int32), max_seqlen=2,
    )  # fmt: skip
    with pytest.raises(LoaderError, match="two conversations") as caught:
        check_isolation(model, alone)
    follows_its_hint(caught.value)


def test_a_mixture_isolates_as_its_conversations_do(store: TokenStore, tmp_path: Path) -> None:
    with TokenStoreWriter(tmp_path / "text", dtype="uint16") as writer:
        writer.append(range(1, 4 * LENGTH))
    text = PretrainDataLoader(tmp_path / "text", chunk_size=LENGTH)
    chats = packed(store, isolation="block_mask")
    with MixedDataLoader({"text": (text, 0.5), "chats": (chats, 0.5)}, batch_size=2, mix_block=2) as loader:
        assert loader.next().attention_mask.shape == (2, 1, LENGTH, LENGTH)
