"""Small tokenizers of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from millstream.tokens import BPETokenizer

TEXTS = ["the mill by the stream grinds the grain", "def stream(mill): return mill.grind()", "日本語 ünï"] * 4


@pytest.fixture(scope="session")
def bpe() -> BPETokenizer:
    return BPETokenizer.train(TEXTS, vocab_size=300)


@pytest.fixture(scope="session")
def tokenizer_json(tmp_path_factory: pytest.TempPathFactory, bpe: BPETokenizer) -> Path:
    """A folder as Hugging Face models have it, with settings that would cut and pad documents silently."""
    folder = tmp_path_factory.mktemp("model")
    bpe.save(folder / "tokenizer.json")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens(["<|im_end|>", "[PAD]"])
    tokenizer.enable_truncation(max_length=4)
    tokenizer.enable_padding(length=16)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": {"content": "<|im_end|>"}, "pad_token": "[PAD]"})
    )
    return folder


@pytest.fixture(scope="session")
def encoding() -> Any:
    """A tiktoken encoding without a download: the 256 bytes and one merge."""
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"th": 256}
    return tiktoken.Encoding("bytes", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 257})
