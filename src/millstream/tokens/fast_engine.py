"""The fastest engine that is proven to give the same ids.

A tokenizer's own library is the reference. A faster engine replaces it only after the ids of both were compared
on the texts of `probe.py`; after any difference the reference encodes. The engine is not part of the tokenizer's
fingerprint, since the ids are the same.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, Protocol, TypedDict, get_args

import numpy as np

from millstream.errors import MissingExtra, TokenizerError
from millstream.tokens.flat import (
    STRETCH,
    Ends,
    FlatIds,
    Text,
    cut_documents,
    join_ids,
    join_texts,
    split_ids,
    survives_cuts,
)
from millstream.tokens.probe import probe_texts
from millstream.tokens.screen import ScreenedEngine, misordered_marks
from millstream.tokens.tokenizer import Ids, fingerprint_of

EngineChoice = Literal["auto", "reference", "gigatoken"]
SpecialInText = Literal["text", "ids"]
"""What special tokens that are spelled out in a text become: its letters, or their own ids."""
_log = logging.getLogger("millstream.tokens")
_proving = threading.Lock()


class EncodingOptions(TypedDict, total=False):
    """How texts are encoded: by which engine, and what special tokens in them become."""

    engine: EngineChoice
    special_in_text: SpecialInText


class FastEngine(Protocol):
    """Something that encodes blocks of documents, from several threads at once."""

    @property
    def name(self) -> str:
        """A short name for reports."""
        ...

    def encode_flat(self, text: Text, ends: Ends) -> FlatIds:
        """The ids of all documents end to end, and where each document ends."""
        ...


class NoFastEngine(Exception):  # noqa: N818 - a finding, not a failure
    """There is no faster engine for this tokenizer, and why."""


@dataclass(frozen=True, slots=True)
class ChosenEngine:
    """The engine in use (None: the reference) and the reason for it."""

    fast: FastEngine | None
    reason: str


class EngineTokenizer(ABC):
    """A tokenizer of another library, whose blocks of documents may be encoded by a faster engine."""

    reference: str
    """The name of the library whose ids are right by definition."""
    extends: str | None = None
    """The vocabulary that control tokens were added to, to make this one; its ids are as they were."""

    def __init__(self, engine: EngineChoice = "auto", special_in_text: SpecialInText = "text") -> None:
        if engine not in get_args(EngineChoice):
            raise TokenizerError(f"engine={engine!r} is unknown", hint='choose "auto", "reference" or "gigatoken"')
        if special_in_text not in get_args(SpecialInText):
            raise TokenizerError(f"special_tokens={special_in_text!r} is unknown", hint='choose "text" or "ids"')
        self._wanted = engine
        self.special_in_text = special_in_text
        self._chosen: ChosenEngine | None = None
        self._cuts: bool | None = None

    @abstractmethod
    def _reference_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of some texts by the reference."""

    @abstractmethod
    def _fast_engine(self) -> FastEngine:
        """A faster engine, not yet proven; NoFastEngine if there is none."""

    @abstractmethod
    def _probe_tokens(self) -> list[str]:
        """Tokens with a meaning of their own, special or added."""

    @property
    def engine(self) -> str:
        """The engine of blocks of documents: "gigatoken", or the reference's name."""
        fast = self._choose().fast
        return self.reference if fast is None else fast.name

    @property
    def engine_reason(self) -> str:
        """Why this engine was chosen."""
        return self._choose().reason

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of many texts."""
        return split_ids(*self.encode_flat(*join_texts(texts)))

    def encode_flat(self, text: Text, ends: Ends) -> FlatIds:
        """The ids of many documents that lie end to end, and where each document ends."""
        fast = self._choose().fast
        return self._reference_flat(text, ends) if fast is None else fast.encode_flat(text, ends)

    @cached_property
    def vocabulary(self) -> str:
        """The fingerprint of the vocabulary alone, whatever special tokens in a text become."""
        return self._vocabulary()

    @cached_property
    def fingerprint(self) -> str:
        """Equal when two tokenizers give the same ids: the vocabulary, and what special tokens in a text become."""
        own = self.vocabulary
        return own if self.special_in_text == "text" else fingerprint_of([own, self.special_in_text])

    @abstractmethod
    def _vocabulary(self) -> str:
        """The fingerprint of the vocabulary, computed at the first use."""

    def __getstate__(self) -> dict[str, Any]:
        """An engine is proven again after unpickling."""
        return {**self.__dict__, "_chosen": None}

    def _choose(self) -> ChosenEngine:
        """Look for an engine at the first use: decoding alone does not pay for it."""
        if self._chosen is None:
            with _proving:
                if self._chosen is None:
                    self._chosen = self._prove()
        return self._chosen

    def _prove(self) -> ChosenEngine:
        if self._wanted == "reference":
            return ChosenEngine(None, "asked for")
        try:
            probes = probe_texts(self._probe_tokens())
            fast, difference = self._screened(self._fast_engine(), join_ids(self._reference_batch(probes)), probes)
        except (NoFastEngine, MissingExtra) as error:
            if self._wanted != "auto":
                raise TokenizerError(
                    f"{self._wanted} cannot encode for this tokenizer: {error}", hint='pass engine="auto"'
                ) from error
            return ChosenEngine(None, str(error))
        if difference is None:
            return ChosenEngine(fast, f"gave the ids of {self.reference} on {len(probes):,} texts")
        reason = f"{fast.name} differs from {self.reference}: {difference}"
        if self._wanted != "auto":
            raise TokenizerError(reason, hint='pass engine="auto"')
        _log.warning("%s; %s encodes, more slowly", reason, self.reference)
        return ChosenEngine(None, reason)

    def _screened(self, engine: FastEngine, expected: FlatIds, probes: Sequence[str]) -> tuple[FastEngine, str | None]:
        """The engine without the characters that it may take for others, and what is still different."""
        screened = partial(ScreenedEngine, engine.name, engine.encode_flat, self._reference_flat, may_cut=self._may_cut)
        fast = screened()
        difference = first_difference(fast, expected, probes)
        if difference is not None and (odd := misordered_marks(engine.encode_flat, self._reference_batch)):
            fast = screened(odd=odd)
            difference = first_difference(fast, expected, probes)
        return fast, difference

    def _reference_flat(self, text: Text, ends: Ends) -> FlatIds:
        """Encode by the reference, a stretch at a time: it needs hundreds of bytes of memory for each character."""
        counts = np.zeros(len(ends), np.int64)
        arrays = []
        for group in _groups(cut_documents(text, ends, cut=self._may_cut)):
            encoded = self._reference_batch([piece for _, piece in group])
            for (document, _), ids in zip(group, encoded, strict=True):
                counts[document] += len(ids)
            arrays.append(np.concatenate([np.empty(0, np.uint32), *encoded]))
        ids, _ = join_ids(arrays)
        return ids, np.cumsum(counts)

    def _may_cut(self) -> bool:
        if self._cuts is None:
            self._cuts = survives_cuts(self._reference_batch, self._probe_tokens())
        return self._cuts


def first_difference(fast: FastEngine, expected: FlatIds, texts: Sequence[str]) -> str | None:
    """Describe the first text whose ids differ; None if there is none."""
    ids, ends = fast.encode_flat(*join_texts(texts))
    if np.array_equal(ids, expected[0]) and np.array_equal(ends, expected[1]):
        return None
    triples = zip(texts, split_ids(*expected), split_ids(ids, ends), strict=True)
    text, right, found = next(triple for triple in triples if not np.array_equal(*triple[1:]))
    place = next((place for place, pair in enumerate(zip(right, found, strict=False)) if pair[0] != pair[1]), 0)
    return f"{text[:60]!r} becomes {found[place : place + 4].tolist()}, not {right[place : place + 4].tolist()}"


def _groups(parts: Iterator[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    group: list[tuple[int, str]] = []
    size = 0
    for part in parts:
        group.append(part)
        size += len(part[1])
        if size >= STRETCH:
            yield group
            group, size = [], 0
    if group:
        yield group
