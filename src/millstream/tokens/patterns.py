"""The patterns by which tiktoken vocabularies split text into words: a `.tiktoken` file does not carry its own."""

from __future__ import annotations

import re
from typing import NamedTuple

from millstream.errors import TokenizerError

_CASELESS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


class Pattern(NamedTuple):
    """A regular expression, and what gigatoken calls the scheme."""

    regex: str
    scheme: str


PATTERNS = {
    "gpt2": Pattern(r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", "gpt2"),
    "cl100k": Pattern(
        rf"{_CASELESS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}", "gpt4"
    ),
    "qwen2": Pattern(
        rf"{_CASELESS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_TAIL}", "qwen2"
    ),
    "qwen3.5": Pattern(
        rf"{_CASELESS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_TAIL}",
        "qwen35",
    ),
    "o200k": Pattern(
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CASELESS}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CASELESS}?"
        rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_TAIL}",
        "o200k",
    ),
}
_NAMES = {"r50k": "gpt2", "llama3": "cl100k", "qwen": "qwen2"}


def pattern_named(name: str) -> Pattern:
    """The pattern of a family of vocabularies, e.g. "cl100k" (also "cl100k_base"), "llama3" or "qwen2".

    >>> pattern_named("r50k_base") == pattern_named("gpt2")
    True
    """
    plain = name.removesuffix("_base")
    found = PATTERNS.get(_NAMES.get(plain, plain))
    if found is None:
        known = ", ".join(sorted([*PATTERNS, *_NAMES]))
        raise TokenizerError(f"there is no pattern {name!r} to split words by", hint=f"choose one of {known}")
    return found


def scheme_of(regex: str) -> str | None:
    """What gigatoken calls this way of splitting, if it is one of the known ones in any spelling.

    >>> scheme_of(r"'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s")
    'gpt2'
    """
    spelled = {_canonical(pattern.regex): pattern.scheme for pattern in PATTERNS.values()}
    return spelled.get(_canonical(regex))


def _canonical(regex: str) -> str:
    """One spelling for all that match alike: possessive or not, contractions in either order, shortcuts left out."""
    plain = re.sub(r"(?<=[+*?])\+|(?<=\d\})\+", "", regex)
    plain = plain.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)", "'(?i:[sdmt]|ll|ve|re)")
    plain = plain.replace("'s|'t|'re|'ve|'m|'ll|'d", "'(?:[sdmt]|ll|ve|re)")
    plain = plain.replace(r"|\s+$", "").replace(r"\s*[\r\n]|", r"\s*[\r\n]+|")
    return f"{plain}+" if plain.endswith(r"|\s") else plain
