"""Rows of fine-tuning files -> what they say, whatever format they were written in.

`parse_row` reads one row, `RowParser` the rows of one file, `parse_block` those that sources read with
`whole_rows=True`. The fields of a row tell its format (detect.py); what is wrong with a row is a `RecordError`; the
caller that knows file and row adds them.
"""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "content": "PLACEHOLDERS",
        "parser": "EXAMPLE_ROW ParsedBlock RowFormats RowParser format_of_rows parse_block plain_names",
        "row_fields": "FIELDS Options",
        "row_types": "ChatRow Completion Conversation Document Judged Media Message Preference Side Stepwise Tokens "
        "ToolCall wholes_of",
    },
)
