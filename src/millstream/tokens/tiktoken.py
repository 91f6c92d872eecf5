"""Encodings of OpenAI's `tiktoken`, and the patterns that split their words. The only file that imports it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from millstream.errors import MissingExtra, TokenizerError
from millstream.tokens.fast_engine import EncodingOptions, EngineTokenizer, FastEngine, NoFastEngine
from millstream.tokens.tokenizer import TIKTOKEN_FORMAT, Ids, fingerprint_of

try:
    import tiktoken
except ImportError as error:
    raise MissingExtra.of("tiktoken", "tokenizers") from error

_CASELESS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def encoding_names() -> list[str]:
    """The names that tiktoken knows.

    >>> "cl100k_base" in encoding_names()
    True
    """
    names: list[str] = tiktoken.list_encoding_names()
    return names


class TiktokenTokenizer(EngineTokenizer):
    """A `tiktoken.Encoding`. Special tokens in a text are text, unless asked for as ids."""

    pad_id = None
    reference = "tiktoken"

    def __init__(self, encoding: Any, **how: Unpack[EncodingOptions]) -> None:
        super().__init__(**how)
        self._encoding = encoding
        self.name: str = encoding.name
        self.vocab_size: int = encoding.n_vocab
        try:
            self.eos_id: int | None = encoding.eot_token
        except KeyError:
            self.eos_id = None

    def _vocabulary(self) -> str:
        own = self._encoding
        ranks = {token.hex(): rank for token, rank in own._mergeable_ranks.items()}
        return fingerprint_of([own._pat_str, ranks, own._special_tokens])

    @classmethod
    def from_name(cls, name: str, **how: Unpack[EncodingOptions]) -> TiktokenTokenizer:
        """Load an encoding by name; tiktoken fetches its vocabulary at the first use."""
        try:
            return cls(tiktoken.get_encoding(name), **how)
        except ValueError as error:
            known = ", ".join(encoding_names())
            raise TokenizerError(f"tiktoken has no encoding {name!r}", hint=f"it has {known}") from error
        except OSError as error:
            raise TokenizerError(
                f"tiktoken could not fetch the vocabulary of {name!r}: {type(error).__name__}",
                hint="go online once, set TIKTOKEN_CACHE_DIR to a filled cache, or use a tokenizer.json file",
            ) from error

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        pattern: str | None = None,
        *,
        special_tokens: Mapping[str, int] | None = None,
        **how: Unpack[EncodingOptions],
    ) -> TiktokenTokenizer:
        """Read a file of mergeable ranks. `pattern` is how it splits words: a name, or else the file is named so.

        Such files carry no special tokens; without `special_tokens`, "<|endoftext|>" follows the last rank.
        """
        path = Path(path)
        regex = pattern_named(path.stem if pattern is None else pattern).regex
        try:
            lines = [line.split() for line in path.read_bytes().splitlines() if line]
            ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in lines}
        except ValueError as error:
            raise TokenizerError(
                f"{path}: not a file of mergeable ranks: {error}", hint="each line holds a token in base64 and its rank"
            ) from error
        special = {"<|endoftext|>": 1 + max(ranks.values(), default=-1)} if special_tokens is None else special_tokens
        return cls(_encoding(path.stem, regex, ranks, special), **how)

    @classmethod
    def from_content(cls, content: Mapping[str, Any], **how: Unpack[EncodingOptions]) -> TiktokenTokenizer:
        """Build it from what `save` wrote."""
        ranks = {base64.b64decode(token): rank for token, rank in content["ranks"].items()}
        how.setdefault("special_in_text", content.get("special_in_text", "text"))
        encoding = _encoding(content["name"], content["pattern"], ranks, content["special_tokens"])
        return cls(encoding, **how)

    def save(self, path: str | Path) -> None:
        """Write it as a JSON file that `load_tokenizer` reads."""
        encoding = self._encoding
        content = {
            "format": TIKTOKEN_FORMAT,
            "version": 1,
            "name": self.name,
            "pattern": encoding._pat_str,
            "special_tokens": encoding._special_tokens,
            "special_in_text": self.special_in_text,
            "ranks": {base64.b64encode(token).decode(): rank for token, rank in encoding._mergeable_ranks.items()},
        }
        Path(path).write_text(json.dumps(content), encoding="utf-8")

    @property
    def encoding(self) -> Any:
        """The `tiktoken.Encoding`."""
        return self._encoding

    def encode(self, text: str) -> list[int]:
        """The ids of one text."""
        ids: list[int] = self._encode(text).tolist()
        return ids

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

    def _reference_batch(self, texts: Sequence[str]) -> list[Ids]:
        return [self._encode(text) for text in texts]

    def _fast_engine(self) -> FastEngine:
        from millstream.tokens import gigatoken

        scheme = scheme_of(self._encoding._pat_str)
        if scheme is None:
            raise NoFastEngine("gigatoken does not know the pattern that splits words here")
        special = self._encoding._special_tokens if self.special_in_text == "ids" else {}
        return gigatoken.from_ranks(self._encoding._mergeable_ranks, scheme, special)

    def _probe_tokens(self) -> list[str]:
        return list(self._encoding._special_tokens)

    def _encode(self, text: str) -> Ids:
        found: Any = "all" if self.special_in_text == "ids" else set()
        try:
            ids: Ids = self._encoding.encode_to_numpy(text, allowed_special=found, disallowed_special=())
        except BaseException as error:
            # A panic of its Rust core is not an Exception; a run of spaces too long for its stack is a ValueError.
            if type(error).__name__ != "PanicException" and not isinstance(error, ValueError):
                raise
            raise TokenizerError(
                f"tiktoken gave up on a text of {len(text):,} characters: {error}",
                hint="long runs without a word are too much for it; install gigatoken, or use a tokenizer.json instead",
            ) from error
        return ids


def _encoding(name: str, regex: str, ranks: dict[bytes, int], special: Mapping[str, int]) -> Any:
    return tiktoken.Encoding(name, pat_str=regex, mergeable_ranks=ranks, special_tokens=dict(special))


class SplitPattern(NamedTuple):
    """A regular expression, and what gigatoken calls the scheme."""

    regex: str
    scheme: str


_PATTERNS = {
    "gpt2": SplitPattern(r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", "gpt2"),
    "cl100k": SplitPattern(
        rf"{_CASELESS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}", "gpt4"
    ),
    "qwen2": SplitPattern(
        rf"{_CASELESS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}", "qwen2"
    ),
    "qwen3.5": SplitPattern(
        rf"{_CASELESS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_TAIL}",
        "qwen35",
    ),
    "o200k": SplitPattern(
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CASELESS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CASELESS}?"
        rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_TAIL}",
        "o200k",
    ),
}
_NAMES = {"r50k": "gpt2", "llama3": "cl100k", "qwen": "qwen2"}


def pattern_named(name: str) -> SplitPattern:
    """The pattern of a family of vocabularies, e.g. "cl100k" (also "cl100k_base"), "llama3" or "qwen2".

    >>> pattern_named("r50k_base") == pattern_named("gpt2")
    True
    """
    plain = name.removesuffix("_base")
    found = _PATTERNS.get(_NAMES.get(plain, plain))
    if found is None:
        known = ", ".join(sorted([*_PATTERNS, *_NAMES]))
        raise TokenizerError(f"there is no pattern {name!r} to split words by", hint=f"choose one of {known}")
    return found


def scheme_of(regex: str) -> str | None:
    """What gigatoken calls this way of splitting, if it is one of the known ones in any spelling.

    >>> scheme_of(r"'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s")
    'gpt2'
    """
    spelled = {_canonical_regex(pattern.regex): pattern.scheme for pattern in _PATTERNS.values()}
    return spelled.get(_canonical_regex(regex))


def _canonical_regex(regex: str) -> str:
    """One spelling for all that match alike: possessive or not, contractions in either order, shortcuts left out."""
    plain = re.sub(r"(?<=[+*?])\+|(?<=\d\})\+", "", regex)
    plain = plain.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)", "'(?i:[sdmt]|ll|ve|re)")
    plain = plain.replace("'s|'t|'re|'ve|'m|'ll|'d", "'(?:[sdmt]|ll|ve|re)")
    plain = plain.replace(r"|\s+$", "").replace(r"\s*[\r\n]|", r"\s*[\r\n]+|")
    return f"{plain}+" if plain.endswith(r"|\s") else plain
