from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.chats.block import encode_block as encode_block
    from millstream.chats.encode import UNRENDERED as UNRENDERED
    from millstream.chats.encode import Boundary as Boundary
    from millstream.chats.encode import Encoder as Encoder
    from millstream.chats.explode import exploded as exploded
    from millstream.chats.kinds import documents_of as documents_of
    from millstream.chats.kinds import kind_of as kind_of
    from millstream.chats.kinds import media_refused as media_refused
    from millstream.chats.kinds import wrong_kind as wrong_kind
    from millstream.chats.masks import Choice as Choice
    from millstream.chats.masks import Policy as Policy
    from millstream.chats.media import Media as Media
    from millstream.chats.media import MediaTokens as MediaTokens
    from millstream.chats.media import control_strings as control_strings
    from millstream.chats.plain import plain_tokenizer as plain_tokenizer
    from millstream.chats.raw_row import show_raw_row as show_raw_row
    from millstream.chats.rendered import Kind as Kind
    from millstream.chats.rendered import Piece as Piece
    from millstream.chats.rendered import Rendered as Rendered
    from millstream.chats.settings import ChatSettings as ChatSettings
    from millstream.chats.settings import DecidedChat as DecidedChat
    from millstream.chats.shown import show_row as show_row
    from millstream.chats.supervised import Supervised as Supervised
    from millstream.chats.template import ChatTemplate as ChatTemplate
    from millstream.chats.template import HistoryReasoning as HistoryReasoning
    from millstream.chats.template import Variant as Variant
    from millstream.chats.truncate import Limit as Limit
    from millstream.chats.truncate import Truncation as Truncation
    from millstream.chats.truncate import Untrained as Untrained

__all__ = [
    "UNRENDERED",
    "Boundary",
    "ChatSettings",
    "ChatTemplate",
    "Choice",
    "DecidedChat",
    "Encoder",
    "HistoryReasoning",
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
    "Variant",
    "control_strings",
    "documents_of",
    "encode_block",
    "exploded",
    "kind_of",
    "media_refused",
    "plain_tokenizer",
    "show_raw_row",
    "show_row",
    "wrong_kind",
]
