"""Encodings of OpenAI's `tiktoken`. The only file that imports it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.errors import MissingExtra, TokenizerError
from millstream.tokens.tokenizer import Ids, fingerprint_of

try:
    import tiktoken
except ImportError as error:
    raise MissingExtra.of("tiktoken", "tokenizers") from error


def encoding_names() -> list[str]:
    """The names that tiktoken knows.

    >>> "cl100k_base" in encoding_names()
    True
    """
    names: list[str] = tiktoken.list_encoding_names()
    return names


class TiktokenTokenizer:
    """A `tiktoken.Encoding`. Special tokens in a text are text."""

    pad_id = None

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding
        self.name: str = encoding.name
        self.vocab_size: int = encoding.n_vocab
        try:
            self.eos_id: int | None = encoding.eot_token
        except KeyError:
            self.eos_id = None
        ranks = {token.hex(): rank for token, rank in encoding._mergeable_ranks.items()}
        self.fingerprint = fingerprint_of([encoding._pat_str, ranks, encoding._special_tokens])

    @classmethod
    def from_name(cls, name: str) -> TiktokenTokenizer:
        """Load an encoding by name; tiktoken fetches its vocabulary at the first use."""
        try:
            return cls(tiktoken.get_encoding(name))
        except ValueError as error:
            known = ", ".join(encoding_names())
            raise TokenizerError(f"tiktoken has no encoding {name!r}", hint=f"it has {known}") from error
        except OSError as error:
            raise TokenizerError(
                f"tiktoken could not fetch the vocabulary of {name!r}: {type(error).__name__}",
                hint="go online once, set TIKTOKEN_CACHE_DIR to a filled cache, or use a tokenizer.json file",
            ) from error

    def encode(self, text: str) -> list[int]:
        """The ids of one text."""
        ids: list[int] = self._encode(text).tolist()
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of many texts."""
        return [self._encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids; bytes that are no character become U+FFFD."""
        try:
            text: str = self._encoding.decode([int(id) for id in ids])
        except (KeyError, OverflowError) as error:
            raise TokenizerError(
                f"{self.name} cannot decode these ids: {error}", hint="these ids were made with another tokenizer"
            ) from error
        return text

    def token_id(self, token: str) -> int | None:
        """The id of a token by its spelling."""
        try:
            id: int = self._encoding.encode_single_token(token)
        except KeyError:
            return None
        return id

    def _encode(self, text: str) -> Ids:
        try:
            ids: Ids = self._encoding.encode_to_numpy(text, disallowed_special=())
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # a panic of its Rust core, not an Exception
                raise
            raise TokenizerError(
                f"tiktoken gave up on a text of {len(text):,} characters: {error}",
                hint="long runs without spaces are too much for it; use a tokenizer.json instead",
            ) from error
        return ids
