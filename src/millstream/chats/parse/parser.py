"""One raw row, as JSON, Parquet or `datasets` give it -> what it says. The row itself is never changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.chats.parse.conversation import ChatRow
from millstream.chats.parse.detect import UNKNOWN, chat_format, detect
from millstream.chats.parse.fields import MISSING, Row, names_of, wrong
from millstream.chats.parse.options import Options
from millstream.errors import RecordError

ONE_FORMAT = (
    "the first row of a file, or format=, says what its rows are; files may differ from each other: put these rows "
    "into a file of their own"
)


class RowParser:
    """Reads the rows of one file, which all have one format: `format`, or that of the first row.

    Whoever reads a file in several places at once gives all of them the format of its first row, so that what becomes
    of a row does not depend on where the file was cut.

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
