"""A conversation -> one row for each answer of the assistant, as inference saw it when it was given.

Templates that drop the reasoning of earlier turns render a conversation differently once it goes on. Trained answer by
answer, each sees exactly the history that it will see.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.records.chat import Conversation


def exploded(conversation: Conversation) -> list[Conversation]:
    """The conversation up to each answer; only that answer may be trained.

    >>> from millstream.records.chat import Message
    >>> roles = ("user", "assistant", "user", "assistant")
    >>> talk = Conversation(tuple(Message(role, text) for role, text in zip(roles, "abcd", strict=True)))
    >>> [[(each.content, each.weight) for each in row.messages] for row in exploded(talk)]
    [[('a', None), ('b', None)], [('a', None), ('b', 0.0), ('c', None), ('d', None)]]
    """
    rows = []
    begin = conversation.prompt_messages or 0
    for place, message in enumerate(conversation.messages):
        if message.role == "assistant" and place >= begin:
            before = [
                replace(each, weight=0.0, stretches=()) if each.role == "assistant" else each
                for each in conversation.messages[:place]
            ]
            rows.append(replace(conversation, messages=(*before, message)))
    return rows
