from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.chats.templates.check import CheckedTokens as CheckedTokens
    from millstream.chats.templates.check import RowTemplate as RowTemplate
    from millstream.chats.templates.check import check_template as check_template
    from millstream.chats.templates.template import ChatTemplate as ChatTemplate
    from millstream.chats.templates.template import HistoryReasoning as HistoryReasoning
    from millstream.chats.templates.template import Variant as Variant

__all__ = [
    "ChatTemplate",
    "CheckedTokens",
    "HistoryReasoning",
    "RowTemplate",
    "Variant",
    "check_template",
]
