"""A block of whole rows, as sources read them -> what they say, and bad records for those that cannot be used."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.errors import RecordError
from millstream.records.chat.conversation import ChatRow
from millstream.records.chat.options import Options
from millstream.records.chat.parser import RowParser
from millstream.sources import KEPT_BYTES, BadRecord, FoundFile, Reading, RecordBlock, format_named, object_in

HEAD_BYTES = 1 << 16
"""How much of a file is read at a time until a row can be used."""
EXAMPLE_ROW = '{"messages": [{"role": "user", "content": "…"}, …]}'
"""What a line looks like, in the words of errors."""


@dataclass(slots=True)
class ParsedBlock:
    """The rows that can be used, the place of each in the block, and the others as bad records with their origin."""

    rows: list[ChatRow] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    bad: list[BadRecord] = field(default_factory=list)


def parse_block(block: RecordBlock, parser: RowParser) -> ParsedBlock:
    """Parse the rows of a block that was read with `whole_rows=True`.

    >>> from millstream.sources import Record
    >>> block = RecordBlock.of([Record('{"text": "x"}', "a", 0, 0, 13), Record("7", "a", 1, 14, 15)], "a")
    >>> parsed = parse_block(block, RowParser())
    >>> parsed.rows, parsed.places, parsed.bad[0].reason, parsed.bad[0].row
    ([Document(text='x')], [0], 'not an object', 1)
    """
    parsed = ParsedBlock()
    text, begin = block.text.tobytes(), 0
    for place, end in enumerate(block.ends.tolist()):
        try:
            parsed.rows.append(parser.parse(object_in(text[begin:end].decode(), like=EXAMPLE_ROW)))
            parsed.places.append(place)
        except RecordError as error:
            raw = text[begin : min(end, begin + KEPT_BYTES)]
            parsed.bad.append(BadRecord(error.reason, *block.origin(place), error.found, error.hint, raw))
        begin = end
    return parsed


def format_of_rows(file: FoundFile, reading: Reading, options: Options) -> str | None:
    """The format of the first row of a file that can be used: what its other rows are read as, wherever it is cut."""
    reading = replace(reading, chunk_bytes=min(reading.chunk_bytes, HEAD_BYTES))
    for chunk in format_named(file.format).chunks(file, reading):
        parser = RowParser(options=options)
        for record in format_named(file.format).read(chunk, file, reading).block:
            try:
                parser.parse(object_in(record.text, like=EXAMPLE_ROW))
            except RecordError:
                continue
            return parser.format
    return None


class RowFormats:
    """The format of the rows of each file, by the names of the files: `format`, or what the file's head says.

    Each file is looked at once, when it is asked for first; what is known already travels to other processes.
    """

    def __init__(
        self,
        reading: Reading,
        options: Options,
        format: str | None = None,
        known: Mapping[str, str | None] | None = None,
    ) -> None:
        self._reading, self._options, self._format = reading, options, format
        self._known = dict(known or {})
        self._looking = threading.Lock()

    def of(self, file: FoundFile) -> str | None:
        """The format of a file; None: it has no row that can be used."""
        if self._format is not None:
            return self._format
        with self._looking:
            if file.name not in self._known:
                self._known[file.name] = format_of_rows(file, self._reading, self._options)
            return self._known[file.name]

    def __reduce__(self) -> tuple[Any, ...]:
        return RowFormats, (self._reading, self._options, self._format, dict(self._known))
