"""One spelling for what looks the same: Unicode form, line ends, control characters, spaces."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np

from millstream import _core
from millstream.errors import RecipeError
from millstream.records.processor import BlockProcessor, ProcessedBlock
from millstream.sources import RecordBlock

FORMS = ("NFC", "NFKC", "NFD", "NFKD")


@dataclass(frozen=True)
class Normalize(BlockProcessor):
    """Bring texts into a Unicode form (None: leave it) and put them in order.

    `controls` leaves out control characters, soft hyphens, zero-width spaces, byte order marks and direction marks;
    those that separate (form feed, U+0085) become line ends or spaces. `line_ends` writes "\\n" for "\\r\\n" and "\\r".
    `whitespace` leaves one space between words, none around line ends, at most one empty line, nothing at the ends.

    >>> from millstream.sources import Record
    >>> Normalize(whitespace=True).process(Record("a\\u0300  b\\x07\\r\\n\\r\\n\\r\\nc ", "a.txt", 0, 0, 9)).text
    'à b\\n\\nc'
    """

    name = "normalize"

    form: str | None = "NFC"
    controls: bool = True
    line_ends: bool = True
    whitespace: bool = False

    def __post_init__(self) -> None:
        if self.form is not None and self.form not in FORMS:
            raise RecipeError(f"normalize: form={self.form!r} is unknown", hint=f"choose one of {', '.join(FORMS)}")

    def process_block(self, block: RecordBlock) -> ProcessedBlock:
        """Clean natively, then bring what is not ASCII into the Unicode form."""
        if self.form is not None:
            block = _in_form(block, self.form)
        if self.controls or self.line_ends or self.whitespace:
            ends = np.zeros(len(block), np.int64)
            text = _core.clean(block.text, block.ends, self.controls, self.line_ends, self.whitespace, ends)
            block = replace(block, text=np.frombuffer(text, np.uint8), ends=ends)
        return ProcessedBlock(block, np.arange(len(block), dtype=np.int64))


def _in_form(block: RecordBlock, form: str) -> RecordBlock:
    """The form of the texts that are not ASCII, which is in every form already."""
    traits = np.zeros(len(block), np.uint8)
    _core.find_traits(block.text, block.ends, traits)
    named = cast(Literal["NFC", "NFD", "NFKC", "NFKD"], form)
    changed: dict[int, bytes] = {}
    for place in np.flatnonzero(traits & _core.BEYOND_ASCII).tolist():
        text = block.text_of(place)
        if not unicodedata.is_normalized(named, text):
            changed[place] = unicodedata.normalize(named, text).encode()
    if not changed:
        return block
    return block.with_texts([changed.get(place) or block.bytes_of(place) for place in range(len(block))])
