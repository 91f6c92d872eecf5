"""How rows are written that say who speaks and what, and nothing else: what a native reader has to know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from millstream.chats.parse.messages import BESIDES
from millstream.chats.parse.parser import RowParser
from millstream.chats.parse.sharegpt import NAMES


class PlainNames(NamedTuple):
    """The fields of a row and of its messages, the fields of a row that say more, and the names of roles."""

    messages: str
    role: str
    content: str
    besides: frozenset[str]
    roles: Mapping[str, str]


def plain_names(parser: RowParser) -> PlainNames | None:
    """How plain rows are written that this parser reads; None if it reads more into them than they say.

    >>> plain_names(RowParser("messages")).role, plain_names(RowParser("alpaca"))
    ('role', None)
    """
    how = parser.options
    if how.columns or how.inline_think:
        return None
    if parser.format == "messages":
        return PlainNames("messages", "role", "content", BESIDES, how.role_of)
    if parser.format == "sharegpt":
        names = {**NAMES, **how.role_of}
        return PlainNames("conversations", "from", "value", BESIDES | {"system"}, names)
    return None
