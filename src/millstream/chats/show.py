"""Rows as text for people: tokens of one row with what is learned of them, found by its number in raw files too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from millstream.chats.encode import Encoder
from millstream.chats.parse import ChatRow, Conversation, RowParser, parse_block, wholes_of
from millstream.chats.pieces import Supervised
from millstream.chats.settings import ChatSettings
from millstream.errors import RecordError, SourceError
from millstream.sources import BadRecord, Found, FoundFile, Reading, RecordBlock, read_file
from millstream.stats import Shown, Styled, counted, share, visible

Decode: TypeAlias = Callable[[Sequence[int]], str]


def show_row(row: Supervised, decode: Decode, title: str = "", roles: Sequence[str] = ()) -> list[Styled]:
    """A row under a line that counts its tokens. With `roles`, those of its messages, each begins with a note.

    >>> row = Supervised(np.array([72, 105, 33], np.uint32), np.array([0, 1, 0.5], np.float32), np.zeros(3, np.int32))
    >>> Shown(show_row(row, lambda ids: "".join(map(chr, ids)), "a.jsonl:1"))
    a.jsonl:1  3 tokens, 2 trained (66.7 %)
    H⟦i⟧⟦!⟧×0.5
    >>> Shown(show_row(row, lambda ids: "".join(map(chr, ids)), roles=["user"])[1:])
    ── 0 user
    H⟦i⟧⟦!⟧×0.5
    """
    body = list(_body(row, decode, roles))
    end = "" if body and body[-1].text.endswith("\n") else "\n"
    return [Styled(f"{_counts(row, title)}\n", "heading"), *body, Styled(end, "plain")]


def show(row: Supervised, decode: Decode) -> Shown:
    """The row alone, with its marks.

    >>> row = Supervised(np.array([72, 105], np.uint32), np.array([0, 1], np.float32), np.zeros(2, np.int32))
    >>> show(row, lambda ids: "".join(map(chr, ids)))
    H⟦i⟧
    """
    return Shown(_body(row, decode, ()))


def show_raw_row(found: Found, reading: Reading, number: int, encoder: Encoder, settings: ChatSettings) -> Shown:
    """Show row `number` of some files, counted from 0 through all of them, blank and bad ones too."""
    file, block = _row_at(found, reading, number)
    parser = RowParser(settings.formats(reading).of(file), settings.options)
    parsed = parse_block(block, parser)
    for bad in parsed.bad:
        raise _fault(file, bad)
    where = f"{file.name}:{int(block.rows[0]) + 1}"
    parts: list[Styled] = []
    for name, row in wholes_of(parsed.rows[0]).items():
        parts += _shown(row, f"{where} {name}".rstrip(), where, encoder, settings)
    return Shown(parts)


def _counts(row: Supervised, title: str) -> str:
    told = [f"{counted(len(row), 'token')}, {row.trained:,} trained ({share(row.trained, len(row))})"]
    if row.truncated:
        told.append("shortened: tokens of the conversation are missing")
    if row.straddlers:
        told.append(f"{counted(row.straddlers, 'token')} half in what is learned: learned at the smaller weight")
    return f"{title}  {'; '.join(told)}" if title else "; ".join(told)


def _body(row: Supervised, decode: Decode, roles: Sequence[str]) -> Iterator[Styled]:
    weights = row.weights.copy()
    weights[:1] = 0  # nothing comes before it, so it is never a target
    changes = np.diff(weights) != 0
    if roles:
        changes |= np.diff(row.messages) != 0
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()] if len(row) else []
    texts = _decoded(row.ids.tolist(), starts, decode)
    message, at_line_start = -1, True
    for start, text in zip(starts, texts, strict=True):
        if roles and row.messages[start] not in (message, -1):
            message = int(row.messages[start])
            yield Styled(f"{'' if at_line_start else chr(10)}── {message} {roles[message]}\n", "note")
            at_line_start = True
        shown, weight = visible(text, keep="\n\t"), float(weights[start])
        if weight:
            yield Styled(f"⟦{shown}⟧" + ("" if weight == 1 else f"×{weight:g}"), "trained")
        elif shown:
            yield Styled(shown, "plain")
        at_line_start = shown.endswith("\n") and not weight


def _decoded(ids: list[int], starts: list[int], decode: Decode) -> Iterator[str]:
    """The text of each stretch: what it adds to the text before it, since a tokenizer may treat beginnings apart."""
    before = ""
    for start, stop in pairwise([*starts, len(ids)]):
        whole = decode(ids[:stop])
        yield whole[len(before) :] if whole.startswith(before) else decode(ids[start:stop])
        before = whole


def _shown(row: ChatRow, title: str, where: str, encoder: Encoder, settings: ChatSettings) -> Iterator[Styled]:
    made = encoder.encode([row], replace(settings.limit, untrained="keep"))
    for fault in made.faults.values():
        raise RecordError(fault.reason, fault.found, hint=fault.hint, where=where)
    roles = [each.role for each in row.messages] if isinstance(row, Conversation) else ["prompt", "answer"]
    if not made.rows[0]:
        yield Styled(f"{title}  left out: it is too long, and truncation={settings.limit.truncation!r}\n", "heading")
    for part, each in enumerate(made.rows[0]):
        of = "" if len(made.rows[0]) == 1 else f", part {part + 1} of {len(made.rows[0])}"
        yield from show_row(each, encoder.tokenizer.decode, f"{title}{of}", roles)


def _row_at(found: Found, reading: Reading, number: int) -> tuple[FoundFile, RecordBlock]:
    """The record of a row."""
    before = 0
    for file in found.files:
        rows = 0
        for read in read_file(file, reading):
            rows += read.rows
            if not 0 <= number - before < rows:
                continue
            for bad in read.bad:
                if bad.row == number - before:
                    raise _fault(file, bad)
            here = read.block.rows == number - before
            if not here.any():
                raise SourceError(f"{file.name}:{number - before + 1}: this line is blank", hint="show another row")
            return file, read.block.select(here)
        before += rows
    raise SourceError(
        f"there is no row {number}, only {counted(before, 'row')}", hint="rows count from 0, through all files"
    )


def _fault(file: FoundFile, bad: BadRecord) -> RecordError:
    return RecordError(bad.reason, bad.found, hint=bad.hint, where=f"{file.name}:{bad.row + 1}")
