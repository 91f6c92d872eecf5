"""A block of whole rows -> tokens end to end, each with its weight; rows left out are named one by one.

A row may become one row for each answer, as inference saw it. Templates that drop the reasoning of earlier turns render
a conversation differently once it continues. Trained answer by answer, each answer has exactly the history it will see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from millstream.chats.answers import RowKind, encode_kind
from millstream.chats.encode import STRADDLERS, Encoder
from millstream.chats.media import Media, media_refused
from millstream.chats.parse import Conversation, ParsedBlock, RowParser, parse_block
from millstream.chats.pieces import Supervised
from millstream.chats.row_shapes import ShapedRows
from millstream.chats.truncate import Limit
from millstream.sources import KEPT_BYTES, BadRecord, RecordBlock
from millstream.tokens import Ends, Ids

SLICE_ROWS = 512
MEDIA_LEFT_OUT = "media left out"


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
    media: Media = "refuse",
) -> EncodedBlock:
    """Parse, render, encode and shorten the rows of a block, which are all of one kind.

    Some hundred rows at a time: what they are laid out in then stays in the processor's cache. Plain conversations go
    through the core; each of the others is parsed and rendered by itself.
    """
    shapes = encoder.shapes if kind == "chat" and not explode else None
    made = []
    for first in range(0, len(block), SLICE_ROWS):
        some = block.stretch(first, min(first + SLICE_ROWS, len(block)))
        shaped = None if shapes is None else shapes.encode(some.text, some.ends, parser, limit)
        others = np.ones(len(some), np.bool_)
        if shaped is not None:
            others[shaped.places] = False
            made.append(_natively(shaped, first))
        if others.any():
            places = first + np.flatnonzero(others)
            made.append(_one_by_one(some.select(others), places, parser, encoder, limit, kind, explode, media))
    return _in_order(made)


def exploded(conversation: Conversation) -> list[Conversation]:
    """The conversation up to each answer; only that answer may be trained.

    >>> from millstream.chats.parse import Message
    >>> roles = ("user", "assistant", "user", "assistant")
    >>> talk = Conversation(tuple(Message(role, text) for role, text in zip(roles, "abcd", strict=True)))
    >>> [[(each.content, each.weight) for each in row.messages] for row in exploded(talk)]
    [[('a', None), ('b', None)], [('a', None), ('b', 0.0), ('c', None), ('d', None)]]
    """
    rows = []
    begin = conversation.prompt_messages or 0
    for place, message in enumerate(conversation.messages):
        if message.role == "assistant" and place >= begin:
            before = [
                replace(each, weight=0.0, stretches=()) if each.role == "assistant" else each
                for each in conversation.messages[:place]
            ]
            rows.append(replace(conversation, messages=(*before, message)))
    return rows


def _natively(shaped: ShapedRows, first: int) -> EncodedBlock:
    notes = Counter({STRADDLERS: shaped.straddlers}) if shaped.straddlers else Counter[str]()
    return EncodedBlock(shaped.ids, shaped.weights, shaped.ends, shaped.places + first, [], notes=notes)


def _one_by_one(
    block: RecordBlock,
    block_places: NDArray[np.int64],
    parser: RowParser,
    encoder: Encoder,
    limit: Limit,
    kind: RowKind,
    explode: bool,  # noqa: FBT001 - as the caller has it
    media: Media,
) -> EncodedBlock:
    parsed = parse_block(block, parser)
    media_left_out = _without_media(parsed, block, media if kind == "chat" or media != "keep" else "refuse")
    if explode:
        parsed = _exploded(parsed)
    encoded = encode_kind(parsed.rows, kind, encoder, limit)
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
    return EncodedBlock(
        ids=np.concatenate([np.empty(0, np.uint32), *(row.ids for row in rows)]),
        weights=np.concatenate([np.empty(0, np.float32), *(row.weights for row in rows)]),
        ends=np.cumsum([len(row) for row in rows], dtype=np.int64),
        places=block_places[places],
        bad=bad,
        dropped=encoded.dropped,
        notes=encoded.counts + Counter({MEDIA_LEFT_OUT: sum(media_left_out[place] for place in set(places))}),
    )


def _in_order(made: Sequence[EncodedBlock]) -> EncodedBlock:
    """The documents of several parts of a block, in the order of its records."""
    ids = np.concatenate([np.empty(0, np.uint32), *(each.ids for each in made)])
    weights = np.concatenate([np.empty(0, np.float32), *(each.weights for each in made)])
    lengths = np.concatenate([np.empty(0, np.int64), *(np.diff(each.ends, prepend=0) for each in made)])
    places = np.concatenate([np.empty(0, np.int64), *(each.places for each in made)])
    if (np.diff(places) < 0).any():
        order = np.argsort(places, kind="stable")
        begins = np.cumsum(lengths) - lengths
        lengths, places = lengths[order], places[order]
        of_token = np.repeat(begins[order] - (np.cumsum(lengths) - lengths), lengths) + np.arange(len(ids))
        ids, weights = ids[of_token], weights[of_token]
    return EncodedBlock(
        ids,
        weights,
        np.cumsum(lengths),
        places,
        bad=[bad for each in made for bad in each.bad],
        dropped=sum((each.dropped for each in made), Counter[str]()),
        notes=sum((each.notes for each in made), Counter[str]()),
    )


def _without_media(parsed: ParsedBlock, block: RecordBlock, how: Media) -> Counter[int]:
    """Take out rows with media, or count what is left out of the row at each place."""
    left_out: Counter[int] = Counter()
    for at in reversed(range(len(parsed.rows))):
        fault = media_refused(parsed.rows[at])
        if fault is None or how == "keep":
            continue
        if how == "refuse":
            place = parsed.places.pop(at)
            del parsed.rows[at]
            raw = block.bytes_of(place)[:KEPT_BYTES]
            parsed.bad.append(BadRecord(fault.reason, *block.origin(place), fault.found, fault.hint, raw))
        else:
            left_out[parsed.places[at]] += len(getattr(parsed.rows[at], "media", ()))
    return left_out


def _exploded(parsed: ParsedBlock) -> ParsedBlock:
    """A row for each answer."""
    made = ParsedBlock(bad=parsed.bad)
    for place, row in zip(parsed.places, parsed.rows, strict=True):
        rows = exploded(row) if isinstance(row, Conversation) else [row]
        made.rows += rows
        made.places += [place] * len(rows)
    return made
