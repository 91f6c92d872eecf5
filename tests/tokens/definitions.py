"""How often the `tokenizers` library reads a definition, and one that is worth counting."""

from __future__ import annotations

from typing import Any

import pytest
import tokenizers

from millstream.tokens import huggingface as adapter
from tokens.vocabularies import gpt2_json

CONTROLS = ["<|im_start|>", "<|im_end|>"]


def gpt2() -> Any:
    """GPT-2 with two control tokens, as the library has it."""
    made = tokenizers.Tokenizer.from_str(gpt2_json())
    made.add_special_tokens(CONTROLS)
    return made


def count_readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the definitions that the library has read, from now on."""
    lengths: list[int] = []
    library = adapter._read

    def counted(definition: str) -> Any:
        lengths.append(len(definition))
        return library(definition)

    monkeypatch.setattr(adapter, "_read", counted)
    return lengths
