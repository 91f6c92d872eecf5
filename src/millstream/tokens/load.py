"""A name, a path or an object -> a Tokenizer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from millstream.errors import TokenizerError
from millstream.tokens.bpe import BPETokenizer
from millstream.tokens.char import FORMAT as CHAR_FORMAT
from millstream.tokens.char import CharTokenizer
from millstream.tokens.tokenizer import Tokenizer

_BPE_SIZE = 8192


def load_tokenizer(tokenizer: object) -> Tokenizer:
    """Make a Tokenizer of what people have at hand.

    * a path: a `tokenizer.json` (Hugging Face, or saved by `BPETokenizer` or `CharTokenizer`), or its folder
    * the name of a tiktoken encoding, e.g. "gpt2" or "cl100k_base"
    * an object: one of ours, `tokenizers.Tokenizer`, a fast tokenizer of transformers, `tiktoken.Encoding`

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "tokenizer.json"
    >>> CharTokenizer("abc").save(path)
    >>> load_tokenizer(path).encode("cab")
    [2, 0, 1]
    """
    if isinstance(tokenizer, str | os.PathLike):
        return _by_name(os.fspath(tokenizer))
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    if hasattr(tokenizer, "encode_ordinary") and hasattr(tokenizer, "n_vocab"):
        from millstream.tokens.tiktoken import TiktokenTokenizer

        return TiktokenTokenizer(tokenizer)
    if hasattr(tokenizer, "backend_tokenizer") or hasattr(tokenizer, "encode_batch"):
        from millstream.tokens.huggingface import HuggingFaceTokenizer

        return HuggingFaceTokenizer.from_object(tokenizer)
    kind = type(tokenizer).__name__
    raise TokenizerError(
        f"an object of type {kind} is not a tokenizer that is known here",
        hint="pass a path, a tiktoken name, or an object with the methods of millstream.tokens.Tokenizer",
    )


def learn_tokenizer(wanted: str, texts: Iterable[str]) -> Tokenizer:
    """Learn the tokenizer that "char", "bpe" or "bpe:4096" asks for.

    >>> learn_tokenizer("char", ["mill"]).vocab_size
    4
    """
    if wanted == "char":
        return CharTokenizer.train(texts)
    if wanted.partition(":")[0] == "bpe":
        return BPETokenizer.train(texts, vocab_size=_size(wanted))
    raise TokenizerError(f"{wanted!r} cannot be learned", hint='choose "char", "bpe" or, e.g., "bpe:4096"')


def is_learned(wanted: object) -> bool:
    """Whether `learn_tokenizer` would learn from the texts.

    >>> is_learned("bpe:4096"), is_learned("gpt2")
    (True, False)
    """
    return isinstance(wanted, str) and wanted.partition(":")[0] in ("char", "bpe")


def _size(wanted: str) -> int:
    _, colon, size = wanted.partition(":")
    if not colon:
        return _BPE_SIZE
    if not size.isdecimal():
        raise TokenizerError(f"{wanted!r}: {size!r} is not a vocabulary size", hint='write, e.g., "bpe:4096"')
    return int(size)


def _by_name(name: str) -> Tokenizer:
    path = Path(name)
    if path.is_dir():
        path = path / "tokenizer.json"
        if not path.is_file():
            raise TokenizerError(
                f"{name}: this folder has no tokenizer.json",
                hint="name the folder of a Hugging Face model with its tokenizer.json, or of a store",
            )
    if path.is_file():
        return _from_file(path)
    if is_learned(name):
        raise TokenizerError(
            f"{name!r} has to be learned from texts first",
            hint="prepare() does that; or CharTokenizer.train(texts), BPETokenizer.train(texts)",
        )
    if path.suffix or len(path.parts) > 1:
        raise TokenizerError(
            f"{name}: there is no such file", hint="Hugging Face models: download their tokenizer.json first"
        )
    from millstream.tokens.tiktoken import TiktokenTokenizer

    return TiktokenTokenizer.from_name(name)


def _from_file(path: Path) -> Tokenizer:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TokenizerError(
            f"{path}: cannot be read: {error.strerror}", hint="look at the permissions of the file"
        ) from error
    except ValueError as error:
        raise TokenizerError(
            f"{path}: not JSON: {error}",
            hint="a tokenizer file is a Hugging Face tokenizer.json, or one of ours",
        ) from error
    if isinstance(content, dict) and content.get("format") == CHAR_FORMAT:
        return CharTokenizer.from_content(content, str(path))
    from millstream.tokens.huggingface import HuggingFaceTokenizer

    return HuggingFaceTokenizer.from_file(path)
