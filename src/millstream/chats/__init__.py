"""Conversations -> text in pieces -> ids and weights.

    template.py   a conversation in the format that a model knows: ChatTemplate
    rendered.py   what comes out of it: pieces that know where they come from
"""

from millstream.chats.rendered import Kind, Piece, Rendered

__all__ = ["Kind", "Piece", "Rendered"]
