"""Rows of fine-tuning files -> what they say, whatever format they were written in.

`parse_row` reads one row, `RowParser` the rows of one file. Formats are told by the fields of a row (`detect`); what is
wrong with a row is a `RecordError`, to which whoever knows the file and the row adds them.
"""

from millstream.records.chat.conversation import (
    ChatRow,
    Completion,
    Conversation,
    Document,
    Judged,
    Media,
    Message,
    Preference,
    Side,
    Stepwise,
    Stretch,
    Tokens,
    ToolCall,
)
from millstream.records.chat.detect import FORMATS, detect
from millstream.records.chat.options import ROLES, Options
from millstream.records.chat.parser import RowParser, parse_row

__all__ = [
    "FORMATS",
    "ROLES",
    "ChatRow",
    "Completion",
    "Conversation",
    "Document",
    "Judged",
    "Media",
    "Message",
    "Options",
    "Preference",
    "RowParser",
    "Side",
    "Stepwise",
    "Stretch",
    "Tokens",
    "ToolCall",
    "detect",
    "parse_row",
]
