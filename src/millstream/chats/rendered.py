"""A conversation as text, in pieces that know what they are.

    "<|im_start|>assistant\\n"   scaffold, message 1
    "Hello!"                    content,  message 1, given
    "<|im_end|>"                stop,     message 1
    "\\n"                        scaffold, message 1

Which of them are trained is decided later; here only where each text comes from is written down.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

from millstream.errors import TemplateError


class Kind(IntEnum):
    """What a piece of a rendered conversation is."""

    scaffold = 0  # supplied by the template: headers, control tokens, newlines, default system prompts, tool schemas
    content = 1  # text of a message
    reasoning = 2  # text of its reasoning, and the tags around it that the model must produce
    tool_call = 3  # a rendered tool call that the model must produce
    stop = 4  # what ends an assistant turn and must be trained


class Piece(NamedTuple):
    """A stretch of a rendered conversation, never empty."""

    text: str
    kind: Kind
    message: int  # index of the message it belongs to; -1: none
    given: bool  # True: text of the data; False: text of the template, in which control strings are control tokens
    role: str  # role of that message; "": none


Rendered: TypeAlias = list[Piece]  # in order; the texts joined are the rendered conversation


class EndlessTemplate(TemplateError):  # noqa: N818 - reads as a claim
    """A template that was stopped, as it would loop or write without end."""
