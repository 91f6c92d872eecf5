from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.records.chat.block import EXAMPLE_ROW as EXAMPLE_ROW
    from millstream.records.chat.block import ParsedBlock as ParsedBlock
    from millstream.records.chat.block import RowFormats as RowFormats
    from millstream.records.chat.block import format_of_rows as format_of_rows
    from millstream.records.chat.block import parse_block as parse_block
    from millstream.records.chat.conversation import ChatRow as ChatRow
    from millstream.records.chat.conversation import Completion as Completion
    from millstream.records.chat.conversation import Conversation as Conversation
    from millstream.records.chat.conversation import Document as Document
    from millstream.records.chat.conversation import Judged as Judged
    from millstream.records.chat.conversation import Media as Media
    from millstream.records.chat.conversation import Message as Message
    from millstream.records.chat.conversation import Preference as Preference
    from millstream.records.chat.conversation import Side as Side
    from millstream.records.chat.conversation import Stepwise as Stepwise
    from millstream.records.chat.conversation import Tokens as Tokens
    from millstream.records.chat.conversation import ToolCall as ToolCall
    from millstream.records.chat.media import PLACEHOLDERS as PLACEHOLDERS
    from millstream.records.chat.options import FIELDS as FIELDS
    from millstream.records.chat.options import Options as Options
    from millstream.records.chat.parser import RowParser as RowParser
    from millstream.records.chat.plain_rows import plain_names as plain_names
    from millstream.records.chat.whole import wholes_of as wholes_of

__all__ = [
    "EXAMPLE_ROW",
    "FIELDS",
    "PLACEHOLDERS",
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
    "RowFormats",
    "RowParser",
    "Side",
    "Stepwise",
    "Tokens",
    "ToolCall",
    "format_of_rows",
    "parse_block",
    "plain_names",
    "wholes_of",
]
