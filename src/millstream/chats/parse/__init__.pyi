from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.chats.parse.block import EXAMPLE_ROW as EXAMPLE_ROW
    from millstream.chats.parse.block import ParsedBlock as ParsedBlock
    from millstream.chats.parse.block import RowFormats as RowFormats
    from millstream.chats.parse.block import format_of_rows as format_of_rows
    from millstream.chats.parse.block import parse_block as parse_block
    from millstream.chats.parse.conversation import ChatRow as ChatRow
    from millstream.chats.parse.conversation import Completion as Completion
    from millstream.chats.parse.conversation import Conversation as Conversation
    from millstream.chats.parse.conversation import Document as Document
    from millstream.chats.parse.conversation import Judged as Judged
    from millstream.chats.parse.conversation import Media as Media
    from millstream.chats.parse.conversation import Message as Message
    from millstream.chats.parse.conversation import Preference as Preference
    from millstream.chats.parse.conversation import Side as Side
    from millstream.chats.parse.conversation import Stepwise as Stepwise
    from millstream.chats.parse.conversation import Tokens as Tokens
    from millstream.chats.parse.conversation import ToolCall as ToolCall
    from millstream.chats.parse.media import PLACEHOLDERS as PLACEHOLDERS
    from millstream.chats.parse.options import FIELDS as FIELDS
    from millstream.chats.parse.options import Options as Options
    from millstream.chats.parse.parser import RowParser as RowParser
    from millstream.chats.parse.plain_rows import plain_names as plain_names
    from millstream.chats.parse.whole import wholes_of as wholes_of

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
