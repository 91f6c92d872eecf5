"""The keywords that say how conversations become tokens: the same for a loader, for `prepare` and for `show`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import date as Date  # noqa: N812 - `date` is the name of a keyword
from pathlib import Path
from typing import Any, Literal, TypedDict, cast

from millstream.chats import Boundary, ChatSettings, Choice, Limit, Media, MediaTokens, Policy, Truncation, Untrained
from millstream.chats.parse import Options
from millstream.chats.templates import ChatTemplate, HistoryReasoning, Variant
from millstream.errors import RecipeError, TokenizerError
from millstream.tokens import is_learned


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
    media: Media
    media_tokens: MediaTokens
    variant: Variant
    history_reasoning: HistoryReasoning | Literal["explode"] | None
    date: Date | None
    bos_token: str | None
    eos_token: str | None


_TEMPLATE = ("variant", "history_reasoning", "date", "bos_token", "eos_token")
_POLICY = ("train", "train_reasoning", "train_tool_calls", "mask_empty_think")
_OPTIONS = ("columns", "roles", "inline_think", "calls_in_text")
_PLAIN = (
    "format",
    "boundary",
    "trust_content",
    "strict",
    "add_control_tokens",
    "check_template",
    "media",
    "media_tokens",
)


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
        explode=some.get("history_reasoning") == "explode",
        **_taken(some, _PLAIN),
    )


def chat_keywords(keywords: Mapping[str, Any]) -> ChatKeywords:
    """Those of some keywords that say how conversations become tokens.

    >>> chat_keywords({"train": "last", "batch_size": 8})
    {'train': 'last'}
    """
    return cast(ChatKeywords, _taken(keywords, tuple(ChatKeywords.__annotations__)))


_OF_TEXTS = {
    "text_field": 'columns={"messages": "dialog"} names the fields of conversations',
    "documents": "each row is one conversation",
    "separator": "each row is one conversation",
    "eos": "the chat template says how a conversation ends",
    "special_tokens": "trust_content=True makes control tokens of control strings in the data",
    "dtype": "each token of a conversation is kept with its weight, in 4 bytes",
}


def prepared_chat(given: Mapping[str, Any], tokenizer: object, max_length: int | None) -> ChatSettings:
    """The settings of `prepare(kind="chat")`; refuses what is about texts, and tokenizers that do not exist yet."""
    for name, instead in _OF_TEXTS.items():
        if name in given:
            raise RecipeError(f'{name}= is about texts, and kind="chat" reads conversations', hint=instead)
    if tokenizer is None:
        raise TokenizerError("conversations need a tokenizer", hint="pass tokenizer=, the model's own")
    if is_learned(tokenizer):
        raise TokenizerError(
            f"tokenizer={tokenizer!r} would be learned from the conversations, and chats are for a model that has one",
            hint="pass tokenizer=, the model's own; or learn one by preparing texts, and pass that store",
        )
    return chat_settings(chat_keywords(given), tokenizer, max_length)


def _template(given: Mapping[str, Any], tokenizer: object) -> ChatTemplate | None:
    """The template that was asked for, or the tokenizer's own, or none: rows of plain text need none."""
    asked = given.get("chat_template")
    if isinstance(asked, ChatTemplate):
        return asked
    if asked is None and (getattr(tokenizer, "chat_template", None) or _brings_template(tokenizer)):
        asked = tokenizer
    names = [name for name in _TEMPLATE if name != "history_reasoning" or given.get(name) != "explode"]
    return None if asked is None else ChatTemplate.of(asked, **_taken(given, tuple(names)))


def _brings_template(tokenizer: object) -> bool:
    """Whether a tokenizer is the folder of a model that has a template.

    >>> _brings_template("gpt2")
    False
    """
    if not isinstance(tokenizer, str | os.PathLike):
        return False
    config = Path(tokenizer, "tokenizer_config.json")
    if Path(tokenizer, "chat_template.jinja").is_file():
        return True
    return config.is_file() and b'"chat_template"' in config.read_bytes()


def _taken(given: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: given[name] for name in names if name in given}
