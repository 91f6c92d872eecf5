"""The ids of a rendered row are those of its text as a whole; texts of the data never become control tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tokenizers

from chats.chatml import END, START, ChatML, bpe, byte_level, metaspace, random_talks
from millstream.chats.encode import Encoder
from millstream.tokens import BPETokenizer, Tokenizer

KINDS: dict[str, Callable[[], Tokenizer]] = {
    "our own": bpe,
    "byte level": byte_level,
    "composing": lambda: byte_level(normalizer="NFC"),
    "lower case": lambda: byte_level(normalizer="Lowercase", normalized=True),
    "strips left": lambda: byte_level(lstrip=True),
    "strips right": lambda: byte_level(rstrip=True),
    "single words": lambda: byte_level(single_word=True),
    "normalized": lambda: byte_level(normalizer="NFC", normalized=True),
    "space first": lambda: metaspace("first"),
    "space always": lambda: metaspace("always"),
    "space prepended": lambda: metaspace("prepend"),
    "no space": lambda: metaspace("never"),
    "without bytes": lambda: metaspace("first", fallback=False),
}


def library(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    """The tokenizer as its own library has it: every control string is found wherever it stands."""
    adapted: Any = tokenizer.adapted if isinstance(tokenizer, BPETokenizer) else tokenizer
    definition = json.loads(adapted.definition)
    return tokenizers.Tokenizer.from_str(json.dumps({**definition, "post_processor": None}))


@pytest.mark.parametrize("kind", KINDS)
def test_the_ids_are_those_of_the_whole_text(kind: str) -> None:
    tokenizer = KINDS[kind]()
    talks = random_talks(300, controls=[])
    rows = [ChatML().render(each) for each in talks]
    found = Encoder(tokenizer).encode_rows(rows)
    reference = library(tokenizer)
    for row, supervised in zip(rows, found, strict=True):
        text = "".join(piece.text for piece in row)
        assert supervised.ids.tolist() == reference.encode(text, add_special_tokens=False).ids, text
        assert len(supervised.ids) == len(supervised.weights) == len(supervised.messages)


@pytest.mark.parametrize("kind", KINDS)
def test_trusted_contents_may_hold_control_tokens(kind: str) -> None:
    tokenizer = KINDS[kind]()
    rows = [ChatML().render(each) for each in random_talks(200, controls=[START, END, "</s>"] * 3)]
    reference = library(tokenizer)
    for row, supervised in zip(rows, Encoder(tokenizer, trust_content=True).encode_rows(rows), strict=True):
        text = "".join(piece.text for piece in row)
        assert supervised.ids.tolist() == reference.encode(text, add_special_tokens=False).ids, text


@pytest.mark.parametrize("boundary", ["whole", "split"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "single words"])
def test_no_text_of_the_data_becomes_a_control_token(kind: str, boundary: str) -> None:
    tokenizer = KINDS[kind]()
    talks = random_talks(200, controls=[START, END, "</s>", "<unk>", "<|endoftext|>"] * 3)
    encoder = Encoder(tokenizer, boundary=boundary)  # type: ignore[arg-type]
    control = [encoder.control_ids[token] for token in (START, END)]
    for each, supervised in zip(talks, encoder.encode_rows([ChatML().render(each) for each in talks]), strict=True):
        assert int(np.isin(supervised.ids, control).sum()) == 2 * len(each.messages)
        others = set(encoder.control_ids.values()) - set(control) - {encoder.control_ids.get("<unk>")}
        assert not np.isin(supervised.ids, list(others)).any()
