"""A row of several answers -> each answer with its prompt, as a row that can be rendered by itself."""

from __future__ import annotations

from millstream.chats.parse.conversation import ChatRow, Completion, Conversation, Judged, Preference, Side, Stepwise


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
