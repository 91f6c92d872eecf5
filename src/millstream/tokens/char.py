"""One character, one token: the smallest tokenizer there is, learned from the text itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from millstream.errors import TokenizerError
from millstream.tokens.flat import Ends, FlatIds, Text, join_ids, split_texts
from millstream.tokens.tokenizer import Ids, fingerprint_of

FORMAT = "millstream char tokenizer"
EOS = "<|endoftext|>"
UNKNOWN = "<|unknown|>"
_NONE = np.uint32(0xFFFFFFFF)


class CharTokenizer:
    """Ids are the places of the characters in their sorted order, then the end-of-text token.

    What stands for a character outside the vocabulary is `unknown`: "error", or "replace" by one more token.

    >>> tokenizer = CharTokenizer.train(["hello"])
    >>> tokenizer.encode("hole"), tokenizer.decode([1, 0, 2, 2, 3]), tokenizer.eos_id
    ([1, 3, 2, 0], 'hello', 4)
    """

    name = "char"

    def __init__(self, characters: Iterable[str], *, unknown: Literal["error", "replace"] = "error") -> None:
        self.characters = "".join(sorted(set("".join(characters))))
        if unknown not in ("error", "replace"):
            raise TokenizerError(f"unknown={unknown!r} is unknown", hint='choose "error" or "replace"')
        if any(0xD800 <= ord(character) < 0xE000 for character in self.characters):
            raise TokenizerError(
                "half of a surrogate pair is not a character",
                hint="leave it out; text that was decoded with errors='replace' has none",
            )
        self.unknown = unknown
        codes = np.array([ord(character) for character in self.characters], dtype=np.int64)
        self._table = np.full(int(codes[-1]) + 1 if len(codes) else 0, _NONE, dtype=np.uint32)
        self._table[codes] = np.arange(len(codes), dtype=np.uint32)
        self._special = [EOS] if unknown == "error" else [EOS, UNKNOWN]

    @classmethod
    def train(cls, texts: Iterable[str], *, unknown: Literal["error", "replace"] = "error") -> CharTokenizer:
        """Learn the characters of some texts.

        >>> CharTokenizer.train(["mill", "stream"]).characters
        'aeilmrst'
        """
        seen: set[str] = set()
        for text in texts:
            seen.update(text)
        return cls(seen, unknown=unknown)

    @property
    def vocab_size(self) -> int:
        """Characters and special tokens."""
        return len(self.characters) + len(self._special)

    @property
    def eos_id(self) -> int:
        """The id after the last character."""
        return len(self.characters)

    @property
    def pad_id(self) -> None:
        """There is none."""
        return

    @property
    def fingerprint(self) -> str:
        """A hash of the characters and of what happens to others."""
        return fingerprint_of([FORMAT, self.characters, self.unknown])

    def encode(self, text: str) -> list[int]:
        """The ids of one text."""
        ids: list[int] = self._ids(text).tolist()
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of many texts."""
        return [self._ids(text) for text in texts]

    def encode_flat(self, text: Text, ends: Ends) -> FlatIds:
        """The ids of many documents that lie end to end, and where each document ends."""
        try:
            ids = self._ids(text.tobytes().decode())
        except TokenizerError:  # name the place in its document, not in the block
            ids, _ = join_ids(self.encode_batch(split_texts(text, ends)))
        begins = (text & 0xC0) != 0x80  # every byte of UTF-8 but continuation bytes
        return ids, np.concatenate([np.zeros(1, np.int64), np.cumsum(begins, dtype=np.int64)])[ends]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids."""
        return "".join(self._spelling(int(id)) for id in ids)

    def token_id(self, token: str) -> int | None:
        """The id of a character or of a special token."""
        if token in self._special:
            return len(self.characters) + self._special.index(token)
        return self.characters.index(token) if len(token) == 1 and token in self.characters else None

    def save(self, path: str | Path) -> None:
        """Write the tokenizer as a small JSON file; `load_tokenizer` and `load` read it."""
        content = {"format": FORMAT, "version": 1, "characters": self.characters, "unknown": self.unknown}
        Path(path).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> CharTokenizer:
        """Read what `save` wrote."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise TokenizerError(
                f"{path}: cannot be read: {error}",
                hint="look at the path, and whether it was written by CharTokenizer.save",
            ) from error
        return cls.from_content(content, str(path))

    @classmethod
    def from_content(cls, content: Any, path: str) -> CharTokenizer:
        """Build it from what the file at `path` holds."""
        fits = isinstance(content, dict) and content.get("format") == FORMAT and content.get("version") == 1
        if not fits or not isinstance(content.get("characters"), str):
            raise TokenizerError(
                f"{path}: this is not a saved char tokenizer of version 1",
                hint="save one with CharTokenizer.save; other tokenizers are read by load_tokenizer",
            )
        return cls(content["characters"], unknown=content.get("unknown", "error"))

    def _ids(self, text: str) -> Ids:
        try:
            codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
        except UnicodeEncodeError as error:
            raise TokenizerError(
                f"{text[error.start]!r} at place {error.start} is not a character",
                hint="read the text with errors='replace', or leave it out",
            ) from None
        inside = codes < len(self._table)
        ids: Ids = np.full(len(codes), _NONE, dtype=np.uint32)
        ids[inside] = self._table[codes[inside]]
        missing = ids == _NONE
        if missing.any():
            if self.unknown == "error":
                raise self._missing(text, int(missing.argmax()))
            ids[missing] = len(self.characters) + 1
        return ids

    def _missing(self, text: str, place: int) -> TokenizerError:
        return TokenizerError(
            f"character {text[place]!r} (U+{ord(text[place]):04X}) at place {place} is not among "
            f"the {len(self.characters)} known ones",
            hint='train on all texts, or pass unknown="replace"',
        )

    def _spelling(self, id: int) -> str:
        if not 0 <= id < self.vocab_size:
            raise TokenizerError(
                f"id {id} is outside the vocabulary of {self.vocab_size}",
                hint="these ids were made with another tokenizer",
            )
        known = len(self.characters)
        return self.characters[id] if id < known else self._special[id - known]
