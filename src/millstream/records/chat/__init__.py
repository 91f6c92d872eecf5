"""Rows of fine-tuning files -> what they say, whatever format they were written in.

`parse_row` reads one row, `RowParser` the rows of one file, `parse_block` those that sources read with
`whole_rows=True`. Formats are told by the fields of a row (detect.py); what is wrong with a row is a `RecordError`; the
caller that knows file and row adds them.
"""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "block": "EXAMPLE_ROW ParsedBlock RowFormats format_of_rows parse_block",
        "conversation": "ChatRow Completion Conversation Document Judged Media Message Preference Side Stepwise "
        "Tokens ToolCall",
        "media": "PLACEHOLDERS",
        "options": "FIELDS Options",
        "parser": "RowParser",
        "plain_rows": "plain_names",
        "whole": "wholes_of",
    },
)
