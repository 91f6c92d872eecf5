"""A name, a path or an object -> a Tokenizer."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import TokenizerError
from millstream.settings import local_path
from millstream.tokens.bpe import BPETokenizer
from millstream.tokens.char import FORMAT as CHAR_FORMAT
from millstream.tokens.char import CharTokenizer
from millstream.tokens.tokenizer import HUGGINGFACE_FORMAT, SENTENCEPIECE_FORMAT, TIKTOKEN_FORMAT, Tokenizer

if TYPE_CHECKING:
    from millstream.tokens.fast_engine import EncodingOptions, EngineChoice, SpecialInText

_BPE_SIZE = 8192
_OURS = re.compile(rb'\s*\{\s*"format"')


def load_tokenizer(
    tokenizer: object, *, engine: EngineChoice = "auto", special_tokens: SpecialInText | None = None
) -> Tokenizer:
    """Make a Tokenizer of a path, a name or an object.

    * a path: a `tokenizer.json` (Hugging Face, or saved by one of ours) or its folder, or a SentencePiece `.model`
    * "ranks.tiktoken:cl100k": a file of tiktoken's ranks and the name of the pattern that splits its words
    * the name of a tiktoken encoding, e.g. "gpt2" or "cl100k_base"
    * an object: one of ours, `tokenizers.Tokenizer`, a tokenizer of transformers, `tiktoken.Encoding`,
      `SentencePieceProcessor`, or any object with the methods of `millstream.tokens.Tokenizer`

    Documents are encoded by the fastest engine that is proven to give the same ids: `engine="reference"` keeps to
    the tokenizer's own library, `engine="gigatoken"` refuses what cannot be encoded fast.

    Special tokens that are spelled out in a text are text. With `special_tokens="ids"` they become their ids, so that
    "<|endoftext|>" ends what is before it: only for texts from a trusted author. It is part of the fingerprint,
    and a saved tokenizer keeps it.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "tokenizer.json"
    >>> CharTokenizer("abc").save(path)
    >>> load_tokenizer(path).encode("cab")
    [2, 0, 1]
    """
    how: EncodingOptions = {"engine": engine}
    if special_tokens is not None:
        how["special_in_text"] = special_tokens
    if isinstance(tokenizer, str | os.PathLike):
        loaded = _by_name(os.fspath(tokenizer), how)
    elif isinstance(tokenizer, Tokenizer):
        loaded = tokenizer
    else:
        loaded = _from_object(tokenizer, how)
    if special_tokens is not None and special_in_text(loaded) != special_tokens:
        raise TokenizerError(
            f"{loaded.name}: its special tokens in a text are {special_in_text(loaded)}, not {special_tokens}",
            hint=f"load it from its file, or from the object of its library, with special_tokens={special_tokens!r}",
        )
    return loaded


def special_in_text(tokenizer: Tokenizer) -> SpecialInText:
    """What a tokenizer makes of special tokens in a text.

    >>> special_in_text(CharTokenizer("abc"))
    'text'
    """
    found: SpecialInText = getattr(tokenizer, "special_in_text", "text")
    return found


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


def may_be_learned(wanted: str, name: str) -> bool:
    """Whether a tokenizer of this name may be what `learn_tokenizer` learns, from texts that are not looked at.

    >>> may_be_learned("char", "char"), may_be_learned("bpe:300", "bpe-272"), may_be_learned("bpe:300", "bpe-4096")
    (True, True, False)
    """
    kind, _, size = name.partition("-")
    if wanted == "char" or kind != "bpe" or not size.isdecimal():
        return wanted == name
    return int(size) <= _size(wanted)


def _size(wanted: str) -> int:
    _, colon, size = wanted.partition(":")
    if not colon:
        return _BPE_SIZE
    if not size.isdecimal():
        raise TokenizerError(f"{wanted!r}: {size!r} is not a vocabulary size", hint='write, e.g., "bpe:4096"')
    return int(size)


def _from_object(tokenizer: object, how: EncodingOptions) -> Tokenizer:
    if hasattr(tokenizer, "encode_ordinary") and hasattr(tokenizer, "n_vocab"):
        from millstream.tokens.tiktoken import TiktokenTokenizer

        return TiktokenTokenizer(tokenizer, **how)
    if hasattr(tokenizer, "serialized_model_proto"):
        from millstream.tokens.sentencepiece import SentencePieceTokenizer

        return SentencePieceTokenizer.from_object(tokenizer, **how)
    if any(hasattr(tokenizer, name) for name in ("encode_batch", "backend_tokenizer", "convert_ids_to_tokens")):
        from millstream.tokens.huggingface import HuggingFaceTokenizer

        return HuggingFaceTokenizer.from_object(tokenizer, **how)
    kind = type(tokenizer).__name__
    raise TokenizerError(
        f"an object of type {kind} is not a tokenizer that is known here",
        hint="pass a path, a tiktoken name, or an object with the methods of millstream.tokens.Tokenizer",
    )


def _by_name(name: str, how: EncodingOptions) -> Tokenizer:
    path = Path(name)
    if path.is_dir():
        path = _in_folder(path)
    if path.is_file():
        return _from_file(path, how)
    if is_learned(name):
        raise TokenizerError(
            f"{name!r} has to be learned from texts first",
            hint="prepare() does that; or CharTokenizer.train(texts), BPETokenizer.train(texts)",
        )
    ranks, colon, pattern = name.rpartition(":")
    if colon and Path(ranks).is_file():
        return _from_ranks(Path(ranks), pattern, how)
    local_path(name if "://" in name else path, "a tokenizer", TokenizerError)
    if path.suffix or len(path.parts) > 1:
        raise TokenizerError(
            f"{name}: there is no such file", hint="Hugging Face models: download their tokenizer.json first"
        )
    from millstream.tokens.tiktoken import TiktokenTokenizer

    return TiktokenTokenizer.from_name(name, **how)


def _in_folder(folder: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer.model"):
        if (folder / name).is_file():
            return folder / name
    raise TokenizerError(
        f"{folder}: this folder has no tokenizer.json and no tokenizer.model",
        hint="name the folder of a Hugging Face model with its tokenizer.json, or of a store",
    )


def _from_ranks(path: Path, pattern: str | None, how: EncodingOptions) -> Tokenizer:
    from millstream.tokens.tiktoken import TiktokenTokenizer

    return TiktokenTokenizer.from_file(path, pattern, **how)


def _from_file(path: Path, how: EncodingOptions) -> Tokenizer:
    if path.suffix == ".tiktoken":
        return _from_ranks(path, None, how)
    if path.suffix == ".model":
        from millstream.tokens.sentencepiece import SentencePieceTokenizer

        return SentencePieceTokenizer.from_file(path, **how)
    try:
        with path.open("rb") as file:
            is_ours = _OURS.match(file.read(64))
        if not is_ours:  # most are of another library, and it takes a while to parse them twice
            with suppress(TokenizerError):
                return _huggingface(path, how)
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TokenizerError(
            f"{path}: cannot be read: {error.strerror}", hint="look at the permissions of the file"
        ) from error
    except ValueError as error:
        raise TokenizerError(
            f"{path}: not JSON: {error}",
            hint="a tokenizer file is a Hugging Face tokenizer.json, a SentencePiece .model, or one of ours",
        ) from error
    kind = content.get("format") if isinstance(content, dict) else None
    if kind == CHAR_FORMAT:
        return CharTokenizer.from_content(content, str(path))
    if kind is not None:
        return _saved(content, path, how)
    return _huggingface(path, how)


def _huggingface(path: Path, how: EncodingOptions) -> Tokenizer:
    from millstream.tokens.huggingface import HuggingFaceTokenizer

    return HuggingFaceTokenizer.from_file(path, **how)


def _saved(content: dict[str, Any], path: Path, how: EncodingOptions) -> Tokenizer:
    """A tokenizer of another library, as its adapter saved it."""
    try:
        if content["format"] == TIKTOKEN_FORMAT and content["version"] == 1:
            from millstream.tokens.tiktoken import TiktokenTokenizer

            return TiktokenTokenizer.from_content(content, **how)
        if content["format"] == SENTENCEPIECE_FORMAT and content["version"] == 1:
            from millstream.tokens.sentencepiece import SentencePieceTokenizer

            return SentencePieceTokenizer.from_content(content, **how)
        if content["format"] == HUGGINGFACE_FORMAT and content["version"] == 1:
            from millstream.tokens.huggingface import HuggingFaceTokenizer

            return HuggingFaceTokenizer.from_content(content, **how)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TokenizerError(
            f"{path}: this saved tokenizer is damaged: {error}", hint="copy it again, or prepare the store again"
        ) from error
    raise TokenizerError(
        f"{path}: not a tokenizer that is known here (format {content['format']!r})",
        hint="a newer Millstream may have written it: upgrade",
    )
