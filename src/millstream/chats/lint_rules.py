"""The problems that one row can have, in its texts and in its tokens; pure functions find them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from millstream.chats.parse import ChatRow, Completion, Conversation, Document, Message, Preference
from millstream.chats.pieces import Supervised
from millstream.stats import Problem, counted

Fault: TypeAlias = tuple[str, str]
"""A kind of problem and what was found."""

PROBLEMS = {
    "nothing learned": Problem(
        "error",
        "nothing is learned of these rows: no token carries loss",
        "choose another policy (train=), look at the weights of their messages, or leave them out (untrained='drop')",
    ),
    "everything learned": Problem(
        "warning",
        "everything is learned of these rows, the prompt too",
        "is that meant? train='assistant' learns the answers only; a row without a prompt may be a 'text'",
    ),
    "stop not learned": Problem(
        "error",
        "an answer is learned without the token that ends it: the model would not learn to stop",
        "pass variant='training' (a built-in format), or put the stop token inside {% generation %}",
    ),
    "double beginning": Problem(
        "error",
        "rows begin with the same control token twice",
        "leave it out of the texts, or pass an empty bos_token",
    ),
    "duplicate": Problem(
        "warning",
        "rows that say exactly what an earlier row says",
        "leave them out, unless they shall weigh more; the step exact_dedup of a recipe drops lines equal byte by byte",
    ),
    "too long": Problem(
        "error",
        "rows that are longer than max_length",
        "pass truncation='turns' (or 'split', 'keep_start', 'keep_end', 'drop'), or a larger max_length",
    ),
    "empty answer": Problem(
        "warning",
        "turns of the assistant that say nothing",
        "the model learns to stop at once there: leave such rows out",
    ),
    "control string": Problem(
        "warning",
        "texts that spell control tokens",
        "they stay text, unless trust_content=True; did a template run over the data before? then take it out again",
    ),
    "straddler": Problem(
        "warning",
        "tokens that lie half in what is learned, and are not learned",
        "boundary='split' encodes answers apart, as inference does; strict=True refuses such rows",
    ),
    "turns do not alternate": Problem(
        "warning",
        "turns of user and assistant that do not alternate",
        "some templates refuse such rows: join the messages, or look at how they were made",
    ),
    "ends unanswered": Problem(
        "note",
        "rows that end with a turn without an answer",
        "nothing is learned of that turn: leave it out, or the answer is missing",
    ),
    "left out": Problem(
        "warning",
        "rows that the settings leave out",
        "nothing is learned of them: look at truncation= and untrained=",
    ),
    "unknown id": Problem(
        "error",
        "ids that the tokenizer does not have",
        "these rows were made with another tokenizer: pass that one, or make them again",
    ),
    "same answers": Problem(
        "error",
        "pairs whose better and worse answer are the same",
        "nothing can be preferred there: leave them out",
    ),
}


class TokenFacts(NamedTuple):
    """What the rules about tokens need to know."""

    is_control: NDArray[np.bool_]  # by id
    max_length: int | None


def row_faults(row: ChatRow, controls: re.Pattern[str] | None) -> Iterator[Fault]:
    """What is wrong with what a row says."""
    if isinstance(row, Conversation):
        yield from _message_faults(row.messages)
    elif isinstance(row, Completion) and not row.completion.strip():
        yield "empty answer", "the completion is empty"
    elif isinstance(row, Preference) and row.chosen == row.rejected:
        yield "same answers", ""
    if controls is not None:
        for where, text in _texts(row):
            if match := controls.search(text):
                yield "control string", f"{where} has {match[0]!r}"
                break


def _message_faults(messages: Sequence[Message]) -> Iterator[Fault]:
    for at, message in enumerate(messages):
        if message.role == "assistant" and not message.content.strip() and not message.tool_calls:
            yield "empty answer", f"messages[{at}]"
            break
    before = "assistant"  # the first speaker is the user
    for at, message in enumerate(messages):
        role = message.role
        if role in ("system", "developer") and at == 0:
            continue
        if role in ("system", "developer") or (role != "tool" and role == before):
            yield (
                "turns do not alternate",
                f"messages[{at}] is by {role}" + (f" after {before}" if role == before else ""),
            )
            break
        before = role
    if messages and messages[-1].role != "assistant":
        yield "ends unanswered", f"the last message is by {messages[-1].role}"


def _texts(row: ChatRow) -> Iterator[tuple[str, str]]:
    if isinstance(row, Conversation):
        for at, message in enumerate(row.messages):
            yield f"messages[{at}]", message.content
            if message.reasoning:
                yield f"the reasoning of messages[{at}]", message.reasoning
    elif isinstance(row, Completion):
        yield "the prompt", row.prompt
        yield "the completion", row.completion
    elif isinstance(row, Document):
        yield "the text", row.text


def token_faults(row: ChatRow, made: Supervised, facts: TokenFacts) -> Iterator[Fault]:
    """What is wrong with the tokens that a row becomes."""
    if not made.trained:
        yield "nothing learned", counted(len(made), "token")
    elif isinstance(row, Conversation | Completion) and made.trained == len(made) - 1:
        yield "everything learned", counted(len(made), "token")
    if facts.max_length is not None and len(made) > facts.max_length:
        yield "too long", f"{counted(len(made), 'token')}, where {facts.max_length:,} are allowed"
    if made.straddlers:
        yield "straddler", counted(made.straddlers, "token")
    known = made.ids < len(facts.is_control)
    if not known.all():
        yield "unknown id", f"id {int(made.ids.max())}, where the vocabulary has {len(facts.is_control):,}"
    control = facts.is_control[np.where(known, made.ids, 0)] & known
    if len(made) > 1 and made.ids[0] == made.ids[1] and control[0]:
        yield "double beginning", ""
    if isinstance(row, Conversation):
        learned = made.weights > 0
        unstopped = set(made.messages[learned].tolist()) - set(made.messages[learned & control].tolist())
        at = next((at for at in sorted(unstopped) if _is_whole_answer(row, at)), None)
        if at is not None:
            yield "stop not learned", f"messages[{at}]"


def _is_whole_answer(row: Conversation, at: int) -> bool:
    """Whether a message is an answer of which the row itself does not choose parts."""
    return at >= 0 and row.messages[at].role == "assistant" and not row.messages[at].stretches
