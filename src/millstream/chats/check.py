"""Does a template fit a tokenizer? Tried out on small conversations, before any data is touched.

Each mistake that is looked for here trains a model on something else than what it will be asked for, without an error:
a stop token that is never trained, a history that is rendered differently once it goes on, two beginnings of text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from millstream.chats.masks import Policy
from millstream.chats.rendered import Rendered
from millstream.chats.supervised import Supervised
from millstream.errors import MillstreamError, RecipeError
from millstream.records.chat.conversation import Conversation, Message

_TALK = (
    Message("user", "Does the mill run?"),
    Message("assistant", "It runs."),
    Message("user", "How fast?"),
    Message("assistant", "As the stream."),
    Message("user", "Thank you."),
)
_THOUGHT = (
    *_TALK[:1],
    Message("assistant", "It runs.", reasoning="I hear it."),
    *_TALK[2:3],
    Message("assistant", "As the stream.", reasoning="No gears."),
    *_TALK[4:],
)
_DUMMIES = (_TALK, (Message("system", "You are a miller."), *_TALK), _THOUGHT)


class CheckedTokens(NamedTuple):
    """What is needed of a tokenizer."""

    encode: Callable[..., list[Supervised]]  # of rendered rows, with a policy
    decode: Callable[[Sequence[int]], str]
    controls: frozenset[int]


class Template(Protocol):
    """What is needed of a chat template."""

    @property
    def name(self) -> str:
        """A short name for messages."""
        ...

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """The strings that must be single tokens."""
        ...

    def render(self, conversation: Conversation, *, add_generation_prompt: bool = False) -> Rendered:
        """The pieces of a conversation."""
        ...


def check_template(template: Template, tokens: CheckedTokens, policy: Policy) -> None:
    """Refuse a template that would train something else than what it seems to; say how to mend it."""
    tried = 0
    for conversation, parts in _rendered(template):
        rows = tokens.encode(parts, policy=policy)
        tried += 1
        _one_beginning(template, rows[-1], tokens)
        if policy.train != "explicit":
            _something_trained(template, rows[-2])
            _stops_trained(template, conversation, tokens.encode(parts[-1:], policy=Policy())[0], tokens)
        if policy.train not in ("last", "last_round", "explicit"):
            _history_kept(template, rows, policy)
    if not tried:
        raise RecipeError(
            f"{template.name}: this template renders none of the conversations that it was tried on",
            hint="try its render() on a conversation of your own: the error says what it needs",
        )


def _rendered(template: Template) -> Iterator[tuple[Conversation, list[Rendered]]]:
    """The dummies that the template has a form for, each after every turn of the assistant and as a whole."""
    for messages in _DUMMIES:
        stops = [at + 1 for at, message in enumerate(messages) if message.role == "assistant"]
        parts = [Conversation(messages[:stop]) for stop in (*stops, len(messages))]
        try:
            yield parts[-1], [template.render(part) for part in parts]
        except MillstreamError:
            continue


def _one_beginning(template: Template, row: Supervised, tokens: CheckedTokens) -> None:
    if len(row) > 1 and row.ids[0] == row.ids[1] and int(row.ids[0]) in tokens.controls:
        raise RecipeError(
            f"{template.name}: rows begin with {tokens.decode([int(row.ids[0])])!r} twice",
            hint="the template adds it already: leave it out of the template, or give it an empty bos_token",
        )


def _something_trained(template: Template, row: Supervised) -> None:
    if not row.trained:
        raise RecipeError(
            f"{template.name}: no token of a conversation with answers is trained",
            hint="mark the answers with {% generation %} in the template, or choose another policy",
        )


def _stops_trained(template: Template, conversation: Conversation, row: Supervised, tokens: CheckedTokens) -> None:
    """Every turn of the assistant that a user answers ends with a control token that is trained."""
    for at, message in enumerate(conversation.messages[:-1]):
        trained = row.ids[(row.messages == at) & (row.weights > 0)].tolist()
        while trained and not tokens.decode(trained[-1:]).strip():
            trained.pop()
        if message.role == "assistant" and trained and trained[-1] not in tokens.controls:
            raise RecipeError(
                f"{template.name}: a turn ends with {tokens.decode(trained[-3:])!r}, and no stop token is trained: "
                "the model would never learn to stop",
                hint="put what ends a turn inside {% generation %}, or use the training variant of the template",
            )


def _history_kept(template: Template, rows: Sequence[Supervised], policy: Policy) -> None:
    """What a conversation has become stays the same when it goes on."""
    for shorter, longer in pairwise(rows):
        if not np.array_equal(shorter.ids, longer.ids[: len(shorter)]):
            raise RecipeError(
                f"{template.name}: an answer is rendered differently once the conversation goes on, so "
                f"train={policy.train!r} would train answers in a form that the model never writes",
                hint='use the training variant of the template, train="last", or check=False if no row is so',
            )
