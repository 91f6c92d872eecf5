from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.chats.answers import documents_of as documents_of
    from millstream.chats.block import encode_block as encode_block
    from millstream.chats.encode import UNRENDERED as UNRENDERED
    from millstream.chats.encode import Boundary as Boundary
    from millstream.chats.lint import lint_files as lint_files
    from millstream.chats.masks import Choice as Choice
    from millstream.chats.masks import Policy as Policy
    from millstream.chats.media import Media as Media
    from millstream.chats.media import MediaTokens as MediaTokens
    from millstream.chats.media import control_strings as control_strings
    from millstream.chats.pieces import Kind as Kind
    from millstream.chats.pieces import Piece as Piece
    from millstream.chats.pieces import Rendered as Rendered
    from millstream.chats.pieces import Supervised as Supervised
    from millstream.chats.settings import ChatSettings as ChatSettings
    from millstream.chats.settings import DecidedChat as DecidedChat
    from millstream.chats.show import show_raw_row as show_raw_row
    from millstream.chats.show import show_row as show_row
    from millstream.chats.truncate import Limit as Limit
    from millstream.chats.truncate import Truncation as Truncation
    from millstream.chats.truncate import Untrained as Untrained

__all__ = [
    "UNRENDERED",
    "Boundary",
    "ChatSettings",
    "Choice",
    "DecidedChat",
    "Kind",
    "Limit",
    "Media",
    "MediaTokens",
    "Piece",
    "Policy",
    "Rendered",
    "Supervised",
    "Truncation",
    "Untrained",
    "control_strings",
    "documents_of",
    "encode_block",
    "lint_files",
    "show_raw_row",
    "show_row",
]
