"""The tokenizer of a store: described in its manifest, saved beside its tokens, and loaded from there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.errors import MillstreamError, TokenizerError
from millstream.tokens.load import load_tokenizer, special_in_text
from millstream.tokens.tokenizer import Tokenizer


def smallest_dtype(tokenizer: Tokenizer) -> str:
    """The narrowest token type that holds every id.

    >>> from millstream.tokens.char import CharTokenizer
    >>> smallest_dtype(CharTokenizer("abc"))
    'uint16'
    """
    return "uint16" if tokenizer.vocab_size <= 1 << 16 else "uint32"


def describe_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """What a manifest says about a tokenizer.

    >>> from millstream.tokens.char import CharTokenizer
    >>> sorted(describe_tokenizer(CharTokenizer("abc")))
    ['eos', 'fingerprint', 'name', 'vocab_size']
    """
    described = {
        "name": tokenizer.name,
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "eos": tokenizer.eos_id,
    }
    engine = getattr(tokenizer, "adapted", tokenizer)
    vocabulary, extends = getattr(engine, "vocabulary", tokenizer.fingerprint), getattr(engine, "extends", None)
    if vocabulary != tokenizer.fingerprint:
        described["vocabulary"] = vocabulary
    if extends is not None:
        described["extends"] = extends
    return described if special_in_text(tokenizer) == "text" else described | {"special_in_text": "ids"}


def share_ids(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether an id means the same to two tokenizers, by what manifests say of them.

    They have one vocabulary, or one has that of the other and more control tokens after it. Two different extensions
    do not share ids.

    >>> chatml, llama = {"fingerprint": "b", "extends": "a"}, {"fingerprint": "c", "extends": "a"}
    >>> share_ids({"fingerprint": "a"}, chatml), share_ids(chatml, llama)
    (True, False)
    """
    first, second = (each.get("vocabulary", each.get("fingerprint")) for each in (one, other))
    return bool(first == second or first == other.get("extends") or second == one.get("extends"))


def tokenizer_path(store: str | os.PathLike[str]) -> Path:
    """Where the tokenizer of a store lies.

    >>> tokenizer_path("data.bin").as_posix(), tokenizer_path("corpus").as_posix()
    ('data.tokenizer.json', 'corpus/tokenizer.json')
    """
    path = Path(store)
    return path.with_suffix(".tokenizer.json") if path.suffix == ".bin" else path / "tokenizer.json"


def keep_tokenizer(tokenizer: Tokenizer, store: str | os.PathLike[str]) -> bool:
    """Save the tokenizer beside the tokens, if it can be saved."""
    save = getattr(tokenizer, "save", None)
    if save is None:
        return False
    save(tokenizer_path(store))
    return True


def find_tokenizer(store: str | os.PathLike[str], description: Mapping[str, Any] | None) -> Tokenizer | None:
    """The tokenizer that a store was made with, or None if it is not at hand; never another one."""
    try:
        return kept_tokenizer(store, description)
    except MillstreamError:
        return None


def kept_tokenizer(store: str | os.PathLike[str], description: Mapping[str, Any] | None) -> Tokenizer:
    """The tokenizer that a store was made with, or an error that says why it is not at hand."""
    if description is not None:
        path = tokenizer_path(store)
        kept = description.get("special_in_text")
        tokenizer = load_tokenizer(path if path.is_file() else str(description.get("name")), special_tokens=kept)
        if tokenizer.fingerprint == description.get("fingerprint"):
            return tokenizer
    raise TokenizerError(f"{store}: there is no tokenizer to show its text with", hint="pass tokenizer=")


def check_tokenizer(tokenizer: Tokenizer, store: str, description: Mapping[str, Any] | None) -> None:
    """Refuse a tokenizer that is not the one a store was made with."""
    if description is not None and tokenizer.fingerprint != description.get("fingerprint"):
        raise TokenizerError(
            f"{store}: was made with the tokenizer {description.get('name')!r}, not with {tokenizer.name!r}",
            hint="its ids would be read as other words; pass the tokenizer it was made with",
        )
