"""One row of raw files, found by its number and shown as the tokens that it becomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from millstream.chats.encode import Encoder
from millstream.chats.settings import ChatSettings
from millstream.chats.shown import show_row
from millstream.errors import RecordError, SourceError
from millstream.records.chat import ChatRow, Conversation, RowParser, parse_block, wholes_of
from millstream.sources import BadRecord, Found, FoundFile, Reading, RecordBlock, read_file
from millstream.stats import Shown, Styled, counted


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
