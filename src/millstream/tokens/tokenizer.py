"""The protocol of a tokenizer, and the fingerprint of plain data.

Special tokens that are spelled out in a text are plain text, unless asked for as ids: a document that contains
"<|endoftext|>" must not end there. Special ids only get into a row when Millstream puts them there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from millstream.errors import TokenizerError

Ids = NDArray[np.uint32]
TIKTOKEN_FORMAT = "millstream tiktoken"
SENTENCEPIECE_FORMAT = "millstream sentencepiece"
HUGGINGFACE_FORMAT = "millstream huggingface"
"""The value of "format" in a saved tokenizer; here, so that a file is recognized without its library."""


@runtime_checkable
class Tokenizer(Protocol):
    """Text to ids and back. `encode` serves people, `encode_batch` machines: it may use several threads."""

    @property
    def name(self) -> str:
        """A short name for reports, e.g. "gpt2"."""
        ...

    @property
    def vocab_size(self) -> int:
        """One more than the largest id that can come out."""
        ...

    @property
    def eos_id(self) -> int | None:
        """The id that ends a document, if there is one."""
        ...

    @property
    def pad_id(self) -> int | None:
        """The id that fills short rows, if there is one."""
        ...

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits: equal when two tokenizers give the same ids."""
        ...

    def encode(self, text: str) -> list[int]:
        """The ids of one text, nothing added."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of many texts."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids; special ones by their names."""
        ...

    def token_id(self, token: str) -> int | None:
        """The id of one token by its spelling, e.g. "<|endoftext|>"."""
        ...


def fingerprint_of(parts: object) -> str:
    """A stable hash of plain data.

    >>> fingerprint_of({"b": 1, "a": [2]}) == fingerprint_of({"a": [2], "b": 1})
    True
    """
    return digest_of(canonical(parts))


def canonical(parts: object) -> str:
    """The one text of plain data.

    >>> canonical({"b": "é", "a": [2]})
    '{"a":[2],"b":"\\\\u00e9"}'
    """
    return json.dumps(parts, sort_keys=True, separators=(",", ":"))


def digest_of(text: str) -> str:
    """A stable hash of a text.

    >>> digest_of("[]") == fingerprint_of([])
    True
    """
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def resolve_eos(tokenizer: Tokenizer, eos: str | int | None) -> int | None:
    """The id that ends each document: "auto" asks the tokenizer, None means none, or say which.

    >>> from millstream.tokens.char import CharTokenizer
    >>> resolve_eos(CharTokenizer("ab"), "auto"), resolve_eos(CharTokenizer("ab"), None)
    (2, None)
    """
    if eos is None:
        return None
    if eos == "auto":
        return tokenizer.eos_id
    found = tokenizer.token_id(eos) if isinstance(eos, str) else eos
    if found is None or isinstance(eos, bool) or not 0 <= found < tokenizer.vocab_size:
        raise TokenizerError(
            f"{tokenizer.name} has no token {eos!r} (its vocabulary has {tokenizer.vocab_size} ids)",
            hint='pass a token of the vocabulary or its id, eos="auto", or eos=None for no token at all',
        )
    return found
