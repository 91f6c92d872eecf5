"""The text of a batch -> its tokens, and the bytes that each covers.

All runs between control strings are encoded in one call, if the tokenizer gives them the same ids as the text as a
whole. This is tested on examples; a tokenizer that fails them encodes row by row with its own library.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from millstream.chats.align import (
    PlacedTokens,
    altered_runs,
    borders,
    place_tokens,
    place_whole_row,
    segments,
    with_controls,
)
from millstream.chats.control import ControlStrings, Found
from millstream.chats.masks import Policy, Spans, weigh
from millstream.chats.pieces import Kind, Piece, Pieces, begins_of
from millstream.errors import TokenizerError
from millstream.tokens import Ends, Ids, Text, Tokenizer, encode_flat, join_ids, plain_tokenizer


class RunTokenizer:
    """A tokenizer for rendered rows. `split`: parts of different weight are encoded apart."""

    def __init__(self, tokenizer: Tokenizer, controls: Sequence[str], *, split: bool, trust_content: bool) -> None:
        self._name = tokenizer.name
        self._plain = plain_tokenizer(tokenizer, controls)
        self._strings = ControlStrings(self._plain.controls)
        self.split = split
        self._trust = trust_content
        self.control_ids = {control.text: control.id for control in self._plain.controls}
        self._is_control = np.zeros(1 + max(self.control_ids.values(), default=-1), np.bool_)
        self._is_control[[id for text, id in self.control_ids.items() if text != self._plain.unknown]] = True
        self.separable = split or self._runs_give_the_same_ids()

    @property
    def engine(self) -> str | None:
        """What encodes: the engine of the runs, or the library that encodes whole rows."""
        by = (self._plain.opening, "engine") if self.separable else (self._plain.whole, "reference")
        found: str | None = getattr(*by, None)
        return found

    @property
    def spells(self) -> bool:
        """Whether the tokens of a run spell it byte by byte, whatever stands before and after it."""
        known = self._plain
        simple = known.sizes is not None and known.opening is known.continuing and not known.marks_spaces
        return simple and self.separable and not (self._trust or self._strings.contextual)

    def encode_runs(self, text: Text, ends: Ends) -> tuple[Ids, Ends, NDArray[np.int64]]:
        """The ids of runs that lie end to end, where those of each end, and the runs that they do not spell."""
        altered = np.array(altered_runs(self._plain, text, ends), np.int64)
        return *encode_flat(self._plain.opening, text, ends), altered

    def bytes_of_ids(self) -> NDArray[np.uint16]:
        """How many bytes each id stands for; 0 for control tokens, and for what is not to be counted with."""
        assert self._plain.sizes is not None
        sizes = np.where(self._plain.sizes < 1 << 16, self._plain.sizes, 0).astype(np.uint16)
        controls = np.flatnonzero(self._is_control)
        sizes[controls[controls < len(sizes)]] = 0
        return sizes

    def controls_in(self, pieces: Pieces) -> Found:
        """Every control string of rendered rows, in order."""
        return self._strings.find(pieces, trust_content=self._trust)

    def tokens(self, pieces: Pieces, spans: Spans) -> PlacedTokens:
        """The tokens of a batch; `ends` says where those of each row end."""
        return self._in_runs(pieces, spans) if self.separable else self._whole(pieces, spans)

    def _in_runs(self, pieces: Pieces, spans: Spans) -> PlacedTokens:
        controls = self.controls_in(pieces)
        parts = segments(pieces, controls, borders(spans) if self.split else np.empty(0, np.int64))
        runs = ~parts.control
        lengths = np.diff(parts.ends, prepend=0)
        text = pieces.text[np.repeat(runs, lengths)] if len(controls) else pieces.text
        run_ends = np.cumsum(lengths[runs])
        inside = ~parts.opens[runs]
        if self._plain.only_first:
            inside = ~np.isin(begins_of(parts.ends)[runs], begins_of(pieces.row_text_ends))
        placed = place_tokens(self._plain, text, run_ends, inside, coarse=self.split)
        self._refuse_controls(placed.ids)
        return with_controls(placed, run_ends, parts, controls, pieces.row_text_ends)

    def _whole(self, pieces: Pieces, spans: Spans) -> PlacedTokens:
        """Row by row; one with control strings in texts of the data, which the library would find, in runs."""
        assert self._plain.whole is not None
        rows = []
        for row, end in enumerate(pieces.row_text_ends.tolist()):
            first, last = int(begins_of(pieces.row_ends)[row]), int(pieces.row_ends[row])
            begin = int(begins_of(pieces.row_text_ends)[row])
            alone = Pieces.of([pieces.all[first:last]])
            ids, begins, stops = place_whole_row(self._plain.whole, pieces.text[begin:end].tobytes().decode())
            placed = PlacedTokens(ids, np.array([len(ids)]), begins, stops)
            if not self._trust and self._found_in_data(placed, alone):
                placed = self._in_runs(alone, spans)
            rows.append(placed._replace(begins=placed.begins + begin, stops=placed.stops + begin))
        ids, ends = join_ids([row.ids for row in rows])
        places = (np.concatenate([np.empty(0, np.int64), *(row[at] for row in rows)]) for at in (2, 3))
        return PlacedTokens(ids, ends, *places)

    def _found_in_data(self, row: PlacedTokens, pieces: Pieces) -> bool:
        found = np.isin(row.ids, np.flatnonzero(self._is_control))
        first = np.searchsorted(pieces.ends, row.begins[found], side="right")
        last = np.searchsorted(pieces.ends, row.stops[found] - 1, side="right")
        return bool((pieces.given[first] | pieces.given[last]).any())

    def _refuse_controls(self, ids: Ids) -> None:
        """No text of the data may become a control token, whatever the tokenizer makes of it."""
        if self._trust:
            return
        low = ids[ids < len(self._is_control)]
        found = low[self._is_control[low]]
        if len(found):
            token = next(text for text, id in self.control_ids.items() if id == found[0])
            raise TokenizerError(
                f"{self._name} makes the control token {token!r} of text that only spells it",
                hint="pass trust_content=True if the data may hold control tokens, or take them out of it",
            )

    def _runs_give_the_same_ids(self) -> bool:
        whole = self._plain.whole
        if whole is None:
            return True
        texts = [text for control in self._plain.controls[:64] for text in _around(control.text)]
        rows = [[Piece(text, Kind.scaffold, -1, False, "")] for text in texts]
        pieces = Pieces.of(rows)
        found = self._in_runs(pieces, weigh(pieces, [None] * len(rows), Policy()))
        expected = [np.array(whole.encode(text), np.uint32) for text in texts]
        ends = np.cumsum([len(ids) for ids in expected], dtype=np.int64)
        same = np.array_equal(found.ids, np.concatenate([np.empty(0, np.uint32), *expected]))
        return same and np.array_equal(found.ends, ends)


def _around(control: str) -> tuple[str, ...]:
    """A control string in the places where it could change the ids of its neighbours."""
    return (
        f"{control}user\nHello, world{control}\n{control}\n\n Bye",
        f"The mill {control} runs{control}é\u0301x  {control}  y",
        f" {control}\u0338 {control}{control}a{control}1 a",
    )
