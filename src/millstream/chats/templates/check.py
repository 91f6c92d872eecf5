"""Does a template fit a tokenizer? Tested on small conversations, before any data is read.

Each of these mistakes trains a model on other text than inference asks for, without an error:
a stop token that is never trained, a history that is rendered differently once it continues, two beginnings of text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from millstream.chats import Policy, Rendered, Supervised
from millstream.chats.parse import Conversation, Message
from millstream.chats.templates.traced import EndlessTemplate
from millstream.errors import MillstreamError, TemplateError

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
_ROW_BY_ROW = (
    'history_reasoning="explode" makes a row of each answer, as inference sees it; train="last" trains the last one'
)


class CheckedTokens(NamedTuple):
    """What is needed of a tokenizer."""

    encode: Callable[..., list[Supervised]]  # of rendered rows, with a policy
    decode: Callable[[Sequence[int]], str]
    controls: frozenset[int]


class RowTemplate(Protocol):
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


def check_template(template: RowTemplate, tokens: CheckedTokens, policy: Policy) -> None:
    """Refuse a template that would train something else than it seems to; the hint says how to fix it.

    The small conversations are tried from the simplest on, so what is refused is due to what the last one adds.
    """
    refusals: list[MillstreamError] = []
    for conversation, parts in _rendered(template, refusals):
        rows = tokens.encode(parts, policy=policy)
        _one_beginning(template, rows[-1], tokens)
        if policy.train != "explicit":
            _something_trained(template, rows[-2])
            for row in tokens.encode(parts[-2:], policy=Policy()):  # to the last answer, and to the end
                _stops_trained(template, conversation, row, tokens)
        if policy.train not in ("last", "last_round", "explicit"):
            _history_kept(template, conversation, rows, policy)
    if len(refusals) == len(_DUMMIES):
        cause = Counter(refusal.message for refusal in refusals).most_common(1)[0][0]
        raise TemplateError(
            f"{cause}; so it renders none of the small conversations that it was tried on",
            hint="mend the template; if it is made for conversations of another kind only, pass check_template=False",
        )


def _rendered(template: RowTemplate, refusals: list[MillstreamError]) -> Iterator[tuple[Conversation, list[Rendered]]]:
    """The dummies that the template has a form for, each after every turn of the assistant and as a whole."""
    for messages in _DUMMIES:
        stops = [at + 1 for at, message in enumerate(messages) if message.role == "assistant"]
        parts = [Conversation(messages[:stop]) for stop in (*stops, len(messages))]
        try:
            yield parts[-1], [template.render(part) for part in parts]
        except EndlessTemplate:  # each further one would take as long
            raise
        except MillstreamError as error:
            refusals.append(error)


def _one_beginning(template: RowTemplate, row: Supervised, tokens: CheckedTokens) -> None:
    if len(row) > 1 and row.ids[0] == row.ids[1] and int(row.ids[0]) in tokens.controls:
        raise TemplateError(
            f"{template.name}: rows begin with {tokens.decode([int(row.ids[0])])!r} twice",
            hint='the template adds it already: leave it out of the template, or pass bos_token=""',
        )


def _something_trained(template: RowTemplate, row: Supervised) -> None:
    if not row.trained:
        raise TemplateError(
            f"{template.name}: no token of a conversation with answers is trained",
            hint="mark the answers with {% generation %} in the template, or choose another train=",
        )


def _stops_trained(template: RowTemplate, conversation: Conversation, row: Supervised, tokens: CheckedTokens) -> None:
    """Every turn of the assistant ends with a control token that is trained, the last one too."""
    for at, message in enumerate(conversation.messages):
        trained = row.ids[(row.messages == at) & (row.weights > 0)].tolist()
        while trained and not tokens.decode(trained[-1:]).strip():
            trained.pop()
        if message.role == "assistant" and trained and trained[-1] not in tokens.controls:
            raise TemplateError(
                f"{template.name}: an answer is trained without the token that ends it, so the model would never learn "
                "to stop",
                hint='pass variant="training", which ends every answer of a built-in format with its stop token; in a '
                "jinja template put what ends a turn inside {% generation %}",
            )


def _history_kept(
    template: RowTemplate, conversation: Conversation, rows: Sequence[Supervised], policy: Policy
) -> None:
    """The tokens of a conversation stay the same when it continues."""
    if all(np.array_equal(shorter.ids, longer.ids[: len(shorter)]) for shorter, longer in pairwise(rows)):
        return
    if conversation.messages[0].role == "system":  # those without a system message were kept
        raise TemplateError(
            f"{template.name}: the system message moves once the conversation continues, so train={policy.train!r} "
            "would train answers to prompts that the model never sees",
            hint=f"{_ROW_BY_ROW}; check_template=False if no row has both a system message (or tools) and two answers",
        )
    raise TemplateError(
        f"{template.name}: an answer is rendered differently once the conversation continues, so "
        f"train={policy.train!r} would train answers in a form that the model never writes",
        hint='pass variant="training" with the built-in format of the model (chat_template="qwen3", say): it renders '
        "every answer as it was written; "
        f"{_ROW_BY_ROW}; check_template=False if every row has one answer only",
    )
