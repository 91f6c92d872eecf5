"""Raw rows, as JSON, Parquet or `datasets` give them -> what they say: row by row, or a block of a file at a time.

The rows of a file have one format, found in its first usable row. A row itself is never changed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from millstream.chats.parse.detect import UNKNOWN, chat_format, detect
from millstream.chats.parse.messages import BESIDES
from millstream.chats.parse.row_fields import MISSING, Options, Row, names_of, wrong
from millstream.chats.parse.row_types import ChatRow
from millstream.chats.parse.turns import NAMES
from millstream.errors import RecordError
from millstream.sources import KEPT_BYTES, BadRecord, FoundFile, Reading, RecordBlock, format_named, object_in

ONE_FORMAT = (
    "the first row of a file, or format=, says what its rows are; files may differ from each other: put these rows "
    "into a file of their own"
)
HEAD_BYTES = 1 << 16
"""How much of a file is read at a time until a row can be used."""
EXAMPLE_ROW = '{"messages": [{"role": "user", "content": "…"}, …]}'
"""What a line looks like, in the words of errors."""


class RowParser:
    """Reads the rows of one file, which all have one format: `format`, or that of the first row.

    Parsers that read parts of one file all get the format of its first row. So the result for a row does not depend on
    where the file was cut.

    >>> parser = RowParser()
    >>> parser.parse({"text": "Once upon a time"}), parser.format
    (Document(text='Once upon a time'), 'text')
    >>> parser.parse({"prompt": "2+2?", "completion": "4"})
    Traceback (most recent call last):
    millstream.errors.RecordError: missing field: the row has no 'text' ...: it is a row of completion in a file of text
    ...
    """

    def __init__(self, format: str | None = None, options: Options | None = None) -> None:
        self.format = format
        self.options = options or Options()
        self._parse = None if format is None else chat_format(format).parse

    def parse(self, row: object) -> ChatRow:
        """Read one row; what is wrong with it is a RecordError."""
        if type(row) is not dict and not isinstance(row, Mapping):
            raise wrong("the row", row, "an object")
        columns = self.options.columns
        try:
            return self._parsed(_renamed(row, columns) if columns else row)
        except RecursionError:
            raise RecordError("too deep", "objects lie too deep in one another", hint="leave such rows out") from None
        except RecordError as error:
            absent = [repr(theirs) for theirs in columns.values() if theirs is not None and theirs not in row]
            if absent and error.reason in (MISSING, UNKNOWN):
                found = f"the row has no {', '.join(absent)} (it has {names_of(row)})"
                raise RecordError(MISSING, found, hint="columns= names the fields as they are in the rows") from None
            other = _format_of(row) if error.reason == MISSING else None
            if other not in (None, self.format):
                found = f"{error.found}: it is a row of {other} in a file of {self.format}"
                raise RecordError(MISSING, found, hint=ONE_FORMAT) from None
            raise

    def _parsed(self, row: Row) -> ChatRow:
        if self._parse is None:
            self.format = detect(row)
            self._parse = chat_format(self.format).parse
        return self._parse(row, self.options)


def parse_row(row: object, format: str | None = None, **options: Any) -> ChatRow:
    """Read one row of any format; `options` are those of `Options`.

    >>> parse_row({"instruction": "Add.", "input": "2 and 2", "output": "4"}).messages[0].content
    'Add.\\n2 and 2'
    >>> parse_row({"dialog": []}, columns={"messages": "dialog"})
    Traceback (most recent call last):
    millstream.errors.RecordError: empty conversation: messages has no messages
      hint: leave such rows out
    """
    return RowParser(format, Options(**options)).parse(row)


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


class PlainNames(NamedTuple):
    """The fields of a row and of its messages, the fields of a row that say more, and the names of roles."""

    messages: str
    role: str
    content: str
    besides: frozenset[str]
    roles: Mapping[str, str]


def plain_names(parser: RowParser) -> PlainNames | None:
    """How plain rows are written that this parser reads; None if it reads more into them than they say.

    >>> plain_names(RowParser("messages")).role, plain_names(RowParser("alpaca"))
    ('role', None)
    """
    how = parser.options
    if how.columns or how.inline_think:
        return None
    if parser.format == "messages":
        return PlainNames("messages", "role", "content", BESIDES, how.role_of)
    if parser.format == "sharegpt":
        names = {**NAMES, **how.role_of}
        return PlainNames("conversations", "from", "value", BESIDES | {"system"}, names)
    return None


def _renamed(row: Row, columns: Mapping[str, str | None]) -> Row:
    """The row under our names.

    >>> _renamed({"dialog": [], "text": "x", "id": 7}, {"messages": "dialog", "text": None})
    {'id': 7, 'messages': []}
    """
    gone = {*columns, *columns.values()}
    kept = {name: value for name, value in row.items() if name not in gone}
    return kept | {ours: row[theirs] for ours, theirs in columns.items() if theirs is not None and theirs in row}


def _format_of(row: Row) -> str | None:
    """The format of a row by itself; None if its fields do not say."""
    try:
        return detect(row)
    except RecordError:
        return None
