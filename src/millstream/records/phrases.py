"""Phrases that must not occur: blocklists, and the n-grams of evaluation sets.

Texts are compared folded: words only, lower case, without diacritics, every number the same. All phrases are looked up
in one native pass over the text, whatever their number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream import _core
from millstream.errors import RecipeError
from millstream.records.processor import BlockProcessor, ProcessedBlock
from millstream.sources import RecordBlock


def fold(text: str) -> str:
    """A text as it is compared with others.

    >>> fold("Das Café, 1.250 Gäste!")
    'das cafe 0 0 gaste'
    """
    return _core.fold(text)


class _Phrases:
    """Sets of texts, indexed; the native index cannot be pickled, so it is built again from the texts."""

    def __init__(self, sets: list[list[str]], words: int) -> None:
        self.sets, self.words = sets, words
        self.index = _core.PhraseIndex()
        for label, texts in enumerate(sets):
            for text in texts:
                self.index.add(text, words, label)
        self.digest = _digest([text for texts in sets for text in texts])

    def __reduce__(self) -> tuple[Any, ...]:
        return _Phrases, (self.sets, self.words)

    def found(self, block: RecordBlock) -> NDArray[np.int64]:
        """1 + the number of the first set that each record shares a phrase with, or 0."""
        found = np.zeros(len(block), np.int64)
        self.index.find(block.text, block.ends, found)
        return found + 1


@dataclass(frozen=True)
class Blocklist(BlockProcessor):
    """Drop records that contain a word or phrase of the list; a file has one phrase per line.

    >>> from millstream.sources import Record
    >>> Blocklist(phrases=("secret word",)).process(Record("The SECRET, word.", "a.txt", 0, 0, 17))
    Reject(reason='blocked phrase')
    """

    name = "blocklist"

    phrases: tuple[str, ...] = ()
    file: str | None = None
    _phrases: _Phrases = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        phrases = [*self.phrases, *(_lines(self.name, self.file) if self.file is not None else ())]
        if not phrases:
            raise RecipeError("blocklist: the list is empty", hint="give phrases=, or file= with one per line")
        for phrase in phrases:
            if not fold(phrase):
                raise RecipeError(f"blocklist: {phrase!r} has no word", hint="only letters and numbers are compared")
        object.__setattr__(self, "_phrases", _Phrases([phrases], 0))

    def process_block(self, block: RecordBlock) -> ProcessedBlock:
        """Look for the phrases in each record."""
        return ProcessedBlock.judged(block, self._phrases.found(block), ("", "blocked phrase"))

    def identity(self) -> dict[str, Any]:
        """The content of the list, whatever its file is called."""
        return {"version": self.version, "content": self._phrases.digest}


@dataclass(frozen=True)
class Decontaminate(BlockProcessor):
    """Drop records that share `words` neighbouring words with a text of an evaluation set.

    `files` are evaluation sets: the lines of a text file, or every string in the lines of a .jsonl file. Texts shorter
    than `words` cannot be told from chance and are passed over.

    >>> from millstream.sources import Record
    >>> step = Decontaminate(texts=("what is the capital of France",), words=5)
    >>> step.process(Record("Quiz: What is the capital of Peru?", "a.txt", 0, 0, 34))
    Reject(reason='overlaps the given texts')
    """

    name = "decontaminate"

    files: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    words: int = 13
    _phrases: _Phrases = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.words < 1:
            raise RecipeError(f"decontaminate: words={self.words} is impossible", hint="the usual number is 13")
        sets = [list(self.texts), *([*_texts(file)] for file in self.files)]
        object.__setattr__(self, "_phrases", _Phrases(sets, self.words))
        if not len(self._phrases.index):
            raise RecipeError(
                f"decontaminate: no text has {self.words} words", hint="give files= or texts= of evaluation sets"
            )

    def process_block(self, block: RecordBlock) -> ProcessedBlock:
        """Look for shared runs of words in each record."""
        reasons = ("", "overlaps the given texts", *(f"overlaps {Path(file).name}" for file in self.files))
        return ProcessedBlock.judged(block, self._phrases.found(block), reasons)

    def identity(self) -> dict[str, Any]:
        """The content of the sets; their names appear in reasons."""
        return {"version": self.version, **self.settings(), "content": self._phrases.digest}


def _lines(step: str, file: str) -> list[str]:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(
            f"{step}: {file} cannot be read: {error}", hint="paths are relative to where the command is run"
        ) from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def _texts(file: str) -> Iterator[str]:
    lines = _lines("decontaminate", file)
    if not file.endswith(".jsonl"):
        yield from lines
        return
    for number, line in enumerate(lines, 1):
        try:
            yield from _strings(json.loads(line))
        except ValueError as error:
            raise RecipeError(
                f"decontaminate: {file}, record {number}: not JSON: {error}",
                hint="each line of a .jsonl file is one value",
            ) from None


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


def _digest(texts: list[str]) -> str:
    return hashlib.blake2b(json.dumps(texts).encode(), digest_size=16).hexdigest()
