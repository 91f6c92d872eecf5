"""Conversations -> text in pieces -> ids and weights.

template.py   a conversation in the format that a model knows: ChatTemplate
rendered.py   what comes out of it: pieces that know where they come from
builtin/      the formats that have a name
jinja.py      any other, in a sandbox
"""

from millstream.chats.rendered import Kind, Piece, Rendered
from millstream.chats.template import ChatTemplate

__all__ = ["ChatTemplate", "Kind", "Piece", "Rendered"]
