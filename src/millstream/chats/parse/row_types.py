"""What a row of a fine-tuning file says, whatever format it was written in.

Values only: nothing here knows a file format, a template or a tokenizer. The parsers guarantee that texts hold no half
surrogate pairs, weights are finite and not negative, and stretches lie inside their content, sorted and disjoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Kwargs: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Characters [start, stop) of the content of a message, with a weight of their own."""

    start: int
    stop: int
    weight: float


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the assistant makes; the arguments keep the order of their keys."""

    name: str
    arguments: Mapping[str, Any]
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Media:
    """A picture, film or sound that a placeholder in a text stands for: a reference, never the decoded thing."""

    kind: Literal["image", "video", "audio"]
    reference: str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. `content` is "" where the row has null; typed parts are joined, with placeholders for media.

    `weight` is what the row says about the loss of the whole message (None: nothing, so the policy decides);
    `stretches` is what it says about parts of `content`.
    """

    role: str
    content: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    name: str | None = None
    tool_call_id: str | None = None
    weight: float | None = None
    stretches: tuple[Stretch, ...] = ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages and what the template needs besides. `prompt_messages`: the first so many were given as the prompt."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    template_kwargs: Kwargs = field(default_factory=dict)
    media: tuple[Media, ...] = ()
    prompt_messages: int | None = None


Side: TypeAlias = tuple[Message, ...] | str
"""Messages, to be rendered by a template, or a string, which is used as it is."""


@dataclass(frozen=True, slots=True)
class Document:
    """Plain text: every token of it is learned."""

    text: str


@dataclass(frozen=True, slots=True)
class Completion:
    """A prompt and what follows it, both strings: no template."""

    prompt: str
    completion: str


@dataclass(frozen=True, slots=True)
class Preference:
    """Two answers to one prompt, the better one first. All three are messages, or all three are strings."""

    prompt: Side
    chosen: Side
    rejected: Side
    tools: tuple[Mapping[str, Any], ...] = ()
    template_kwargs: Kwargs = field(default_factory=dict)
    media: tuple[Media, ...] = ()


@dataclass(frozen=True, slots=True)
class Judged:
    """One answer and whether it is a good one (KTO)."""

    prompt: Side
    completion: Side
    label: bool
    tools: tuple[Mapping[str, Any], ...] = ()
    template_kwargs: Kwargs = field(default_factory=dict)
    media: tuple[Media, ...] = ()


@dataclass(frozen=True, slots=True)
class Stepwise:
    """The steps of an answer and whether each is right (process reward models)."""

    prompt: str
    completions: tuple[str, ...]
    labels: tuple[bool, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """A row that was tokenised elsewhere: ids and the weight of each (0: no loss), of equal length."""

    ids: NDArray[np.uint32]
    weights: NDArray[np.float32]


ChatRow: TypeAlias = Conversation | Document | Completion | Preference | Judged | Stepwise | Tokens


def wholes_of(row: ChatRow) -> dict[str, ChatRow]:
    """The row itself under no name, or what it compares, judges or counts, by name.

    >>> wholes_of(Preference("2+2?", "4", "5"))
    {'chosen': Completion(prompt='2+2?', completion='4'), 'rejected': Completion(prompt='2+2?', completion='5')}
    """
    if isinstance(row, Preference):
        return {"chosen": _whole(row, row.chosen), "rejected": _whole(row, row.rejected)}
    if isinstance(row, Judged):
        return {"good" if row.label else "bad": _whole(row, row.completion)}
    if isinstance(row, Stepwise):
        return {"steps": Completion(row.prompt, "\n".join(row.completions))}
    return {"": row}


def _whole(row: Preference | Judged, answer: Side) -> ChatRow:
    if isinstance(row.prompt, str) or isinstance(answer, str):
        return Completion(str(row.prompt), str(answer))
    messages = (*row.prompt, *answer)
    return Conversation(messages, row.tools, row.template_kwargs, row.media, prompt_messages=len(row.prompt))
