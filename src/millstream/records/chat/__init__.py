"""Rows of fine-tuning files -> what they say, whatever format they were written in.

`parse_row` reads one row, `RowParser` the rows of one file, `parse_block` those that sources read with
`whole_rows=True`. Formats are told by the fields of a row (detect.py); what is wrong with a row is a `RecordError`; the
caller that knows file and row adds them.
"""

from typing import TYPE_CHECKING

from millstream.lazy import lazy

if TYPE_CHECKING:
    from millstream.records.chat.block import ParsedBlock, parse_block
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
    from millstream.records.chat.detect import FORMATS
    from millstream.records.chat.options import ROLES, Options
    from millstream.records.chat.parser import RowParser, parse_row
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "block": "ParsedBlock parse_block",
            "conversation": "ChatRow Completion Conversation Document Judged Media Message Preference Side Stepwise "
            "Stretch Tokens ToolCall",
            "detect": "FORMATS",
            "options": "ROLES Options",
            "parser": "RowParser parse_row",
        },
    )

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
    "ParsedBlock",
    "Preference",
    "RowParser",
    "Side",
    "Stepwise",
    "Stretch",
    "Tokens",
    "ToolCall",
    "parse_block",
    "parse_row",
]
