"""A block of whole rows -> tokens end to end, each with its weight; what is left out is named row by row."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from millstream.chats.answers import encode_kind
from millstream.chats.encode import Encoded, Encoder
from millstream.chats.explode import exploded
from millstream.chats.kinds import RowKind
from millstream.chats.supervised import Supervised
from millstream.chats.truncate import Limit
from millstream.records.chat.block import ParsedBlock, parse_block
from millstream.records.chat.conversation import ChatRow, Conversation
from millstream.records.chat.parser import RowParser
from millstream.sources import BadRecord, RecordBlock
from millstream.sources.chunk import KEPT_BYTES
from millstream.tokens.flat import Ends
from millstream.tokens.tokenizer import Ids

DROPPED = "dropped: "
SLICE_ROWS = 512


@dataclass(slots=True)
class EncodedBlock:
    """Documents end to end; document i came from record `places[i]` of the block.

    `dropped` counts by reason what the settings left out, `notes` what was changed or cut in what remains.
    """

    ids: Ids
    weights: NDArray[np.float32]
    ends: Ends
    places: NDArray[np.int64]
    bad: list[BadRecord]
    dropped: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)


def encode_block(
    block: RecordBlock,
    parser: RowParser,
    encoder: Encoder,
    limit: Limit,
    kind: RowKind = "chat",
    *,
    explode: bool = False,
    ignore_media: bool = False,
) -> EncodedBlock:
    """Parse, render, encode and shorten the rows of a block, which are all of one kind."""
    parsed = parse_block(block, parser)
    left_out = _without_media(parsed, block, refuse=not ignore_media)
    if explode:
        parsed = _exploded(parsed)
    encoded = _in_slices(encoder, parsed.rows, kind, limit)
    rows: list[Supervised] = []
    places: list[int] = []
    for place, made in zip(parsed.places, encoded.rows, strict=True):
        rows += made
        places += [place] * len(made)
    bad = list(parsed.bad)
    for row, fault in encoded.faults.items():
        place = parsed.places[row]
        raw = block.bytes_of(place)[:KEPT_BYTES]
        bad.append(BadRecord(fault.reason, *block.origin(place), fault.found, fault.hint, raw))
    dropped = Counter({name.removeprefix(DROPPED): n for name, n in encoded.counts.items() if name.startswith(DROPPED)})
    notes = Counter({name: n for name, n in encoded.counts.items() if not name.startswith(DROPPED)})
    return EncodedBlock(
        ids=np.concatenate([np.empty(0, np.uint32), *(row.ids for row in rows)]),
        weights=np.concatenate([np.empty(0, np.float32), *(row.weights for row in rows)]),
        ends=np.cumsum([len(row) for row in rows], dtype=np.int64),
        places=np.array(places, np.int64),
        bad=bad,
        dropped=+dropped,
        notes=+notes + left_out,
    )


def _without_media(parsed: ParsedBlock, block: RecordBlock, *, refuse: bool) -> Counter[str]:
    """Take out rows with media, or count what of them is left out: tokens alone would have lost them in silence."""
    left_out: Counter[str] = Counter()
    for at in reversed(range(len(parsed.rows))):
        media = getattr(parsed.rows[at], "media", ())
        if not media:
            continue
        if refuse:
            place = parsed.places.pop(at)
            del parsed.rows[at]
            found = f"it refers to {len(media)} of them, the first is {media[0].kind} {str(media[0].reference)[:80]!r}"
            hint = 'batches carry tokens alone; media="ignore" trains on the text without them'
            raw = block.bytes_of(place)[:KEPT_BYTES]
            parsed.bad.append(BadRecord("pictures, films or sounds", *block.origin(place), found, hint, raw))
        else:
            left_out["media left out"] += len(media)
    return left_out


def _exploded(parsed: ParsedBlock) -> ParsedBlock:
    """A row for each answer."""
    made = ParsedBlock(bad=parsed.bad)
    for place, row in zip(parsed.places, parsed.rows, strict=True):
        rows = exploded(row) if isinstance(row, Conversation) else [row]
        made.rows += rows
        made.places += [place] * len(rows)
    return made


def _in_slices(encoder: Encoder, rows: list[ChatRow], kind: RowKind, limit: Limit) -> Encoded:
    """Encode some hundred rows at a time: what they are laid out in then stays in the processor's cache."""
    whole = Encoded([])
    for begin in range(0, len(rows), SLICE_ROWS):
        part = encode_kind(rows[begin : begin + SLICE_ROWS], kind, encoder, limit)
        whole.rows += part.rows
        whole.faults.update((begin + row, fault) for row, fault in part.faults.items())
        whole.counts += part.counts
    return whole
