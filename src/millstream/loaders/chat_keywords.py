"""The keywords that say how conversations become tokens: the same for a loader, for `prepare` and for `show`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date as Date  # noqa: N812 - `date` is the name of a keyword
from typing import Any, TypedDict

from millstream.chats.encode import Boundary
from millstream.chats.masks import Choice, Policy
from millstream.chats.settings import ChatSettings
from millstream.chats.template import ChatTemplate, HistoryReasoning, Variant
from millstream.chats.truncate import Limit, Truncation, Untrained
from millstream.records.chat.options import Options


class ChatKeywords(TypedDict, total=False):
    """How rows of conversations are read, rendered, encoded, weighed and shortened."""

    chat_template: Any
    format: str | None
    columns: Mapping[str, str | None]
    roles: Mapping[str, str]
    inline_think: bool
    calls_in_text: bool
    train: Choice
    train_reasoning: bool
    train_tool_calls: bool
    mask_empty_think: bool
    truncation: Truncation
    untrained: Untrained
    boundary: Boundary
    trust_content: bool
    strict: bool
    add_control_tokens: bool
    check_template: bool
    variant: Variant
    history_reasoning: HistoryReasoning | None
    date: Date | None
    bos_token: str | None
    eos_token: str | None


_TEMPLATE = ("variant", "history_reasoning", "date", "bos_token", "eos_token")
_POLICY = ("train", "train_reasoning", "train_tool_calls", "mask_empty_think")
_OPTIONS = ("columns", "roles", "inline_think", "calls_in_text")
_PLAIN = ("format", "boundary", "trust_content", "strict", "add_control_tokens", "check_template")


def chat_settings(given: ChatKeywords, tokenizer: object, max_length: int | None) -> ChatSettings:
    """Check the keywords and fill in what was left out; a tokenizer may bring a template of its own.

    >>> chat_settings({"chat_template": "chatml", "train": "last"}, None, 2048).policy.train
    'last'
    """
    some: Mapping[str, Any] = given
    limit = {"max_length": max_length, **_taken(some, ("truncation", "untrained"))}
    return ChatSettings(
        template=_template(some, tokenizer),
        options=Options(**_taken(some, _OPTIONS)),
        policy=Policy(**_taken(some, _POLICY)),
        limit=Limit(**limit),
        **_taken(some, _PLAIN),
    )


def _template(given: Mapping[str, Any], tokenizer: object) -> ChatTemplate | None:
    """The template that was asked for, or the tokenizer's own, or none: rows of plain text need none."""
    asked = given.get("chat_template")
    if isinstance(asked, ChatTemplate):
        return asked
    if asked is None and getattr(tokenizer, "chat_template", None):
        asked = tokenizer
    return None if asked is None else ChatTemplate.of(asked, **_taken(given, _TEMPLATE))


def _taken(given: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: given[name] for name in names if name in given}
