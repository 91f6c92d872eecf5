"""Alpaca: `instruction`, `input`, `output`, and perhaps `system` and `history: [[question, answer], …]`."""

from __future__ import annotations

from millstream.chats.parse.conversation import Conversation, Message
from millstream.chats.parse.fields import Row, items, needed, text, wrong
from millstream.chats.parse.messages import EMPTY, conversation
from millstream.chats.parse.options import Options
from millstream.chats.parse.sharegpt import with_system
from millstream.errors import RecordError


def alpaca_row(row: Row, how: Options) -> Conversation:
    """A row of questions and answers in fields of their own."""
    question = text(needed(row, "instruction"), "instruction")
    more = row.get("input")
    if more is not None and text(more, "input"):
        question = f"{question}\n{more}" if question else more
    if not question:
        raise RecordError(EMPTY, "both 'instruction' and 'input' are empty", hint="leave such rows out")
    answer = text(needed(row, "output"), "output")
    messages = [*_history(row), Message("user", question), Message("assistant", answer)]
    return conversation(row, with_system(row, messages), how, [])


def _history(row: Row) -> list[Message]:
    history = row.get("history")
    messages: list[Message] = []
    for place, pair in enumerate([] if history is None else items(history, "history")):
        where = f"history[{place}]"
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise wrong(where, pair, "a pair: a question and its answer")
        messages.append(Message("user", text(pair[0], f"{where}[0]")))
        messages.append(Message("assistant", text(pair[1], f"{where}[1]")))
    return messages
