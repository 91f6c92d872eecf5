from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.chats.parse.content import PLACEHOLDERS as PLACEHOLDERS
    from millstream.chats.parse.parser import EXAMPLE_ROW as EXAMPLE_ROW
    from millstream.chats.parse.parser import ParsedBlock as ParsedBlock
    from millstream.chats.parse.parser import RowFormats as RowFormats
    from millstream.chats.parse.parser import RowParser as RowParser
    from millstream.chats.parse.parser import format_of_rows as format_of_rows
    from millstream.chats.parse.parser import parse_block as parse_block
    from millstream.chats.parse.parser import plain_names as plain_names
    from millstream.chats.parse.row_fields import FIELDS as FIELDS
    from millstream.chats.parse.row_fields import Options as Options
    from millstream.chats.parse.row_types import ChatRow as ChatRow
    from millstream.chats.parse.row_types import Completion as Completion
    from millstream.chats.parse.row_types import Conversation as Conversation
    from millstream.chats.parse.row_types import Document as Document
    from millstream.chats.parse.row_types import Judged as Judged
    from millstream.chats.parse.row_types import Media as Media
    from millstream.chats.parse.row_types import Message as Message
    from millstream.chats.parse.row_types import Preference as Preference
    from millstream.chats.parse.row_types import Side as Side
    from millstream.chats.parse.row_types import Stepwise as Stepwise
    from millstream.chats.parse.row_types import Tokens as Tokens
    from millstream.chats.parse.row_types import ToolCall as ToolCall
    from millstream.chats.parse.row_types import wholes_of as wholes_of

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
