"""Prompts and what follows them: completions, preferences, judged answers. Each side is messages or a string."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from millstream.chats.parse.alpaca import alpaca_row
from millstream.chats.parse.conversation import Completion, Conversation, Judged, Message, Preference, Side
from millstream.chats.parse.fields import Row, flag, needed, text, wrong
from millstream.chats.parse.media import Mentioned
from millstream.chats.parse.messages import besides, check_answer, conversation, messages_row
from millstream.chats.parse.options import Options
from millstream.chats.parse.sharegpt import sharegpt_row, turns_in
from millstream.chats.parse.tools import check_results
from millstream.errors import RecordError

MIXED = "mixed sides"


def completion_row(row: Row, how: Options) -> Completion | Conversation:
    """`prompt` and `completion`: two strings, or messages of which the first ones are the prompt."""
    media: Mentioned = []
    prompt, completion = _sides(row, ("prompt", "completion"), how, media)
    if isinstance(prompt, str) and isinstance(completion, str):
        return Completion(prompt, completion)
    prompt, completion = _messages(prompt), _messages(completion)
    check_answer(completion, "completion")
    return conversation(row, (*prompt, *completion), how, media, prompt_messages=len(prompt))


def preference_row(row: Row, how: Options) -> Preference:
    """`chosen` and `rejected`, with a `prompt` or with a common beginning."""
    media: Mentioned = []
    if row.get("prompt") is None:
        chosen, rejected = _sides(row, ("chosen", "rejected"), how, media)
        if isinstance(chosen, str) or isinstance(rejected, str):
            raise RecordError(
                "no prompt",
                "'chosen' and 'rejected' are strings, whose common beginning may end inside a word",
                hint='add a field prompt, or name it: columns={"prompt": "question"}',
            )
        prompt: Side = chosen[: _common(chosen, rejected)]
        chosen, rejected = chosen[len(prompt) :], rejected[len(prompt) :]
    else:
        prompt, chosen, rejected = _sides(row, ("prompt", "chosen", "rejected"), how, media)
    for answer, name in ((chosen, "chosen"), (rejected, "rejected")):
        _check(prompt, answer, name, how)
    both = [*_messages(prompt), *_messages(chosen), *_messages(rejected)]
    return Preference(prompt, chosen, rejected, *besides(row, both, media))


def judged_row(row: Row, how: Options) -> Judged:
    """`prompt`, `completion` and `label`; or any conversation with `kto_tag`, whose last message is judged."""
    tag = "label" if row.get("kto_tag") is None else "kto_tag"
    label = flag(needed(row, tag), tag)
    for name, parse in _CONVERSATIONS.items():
        if row.get(name) is not None and row.get("completion") is None:
            whole = parse(row, how)
            prompt, answer = whole.messages[:-1], whole.messages[-1:]
            check_answer(answer, "what is judged, the last message,")
            return Judged(prompt, answer, label, whole.tools, whole.template_kwargs, whole.media)
    media: Mentioned = []
    side, completion = _sides(row, ("prompt", "completion"), how, media)
    _check(side, completion, "completion", how)
    return Judged(side, completion, label, *besides(row, [*_messages(side), *_messages(completion)], media))


_CONVERSATIONS: dict[str, Callable[[Row, Options], Conversation]] = {
    "messages": messages_row,
    "conversations": sharegpt_row,
    "instruction": alpaca_row,
}


def _sides(row: Row, names: tuple[str, ...], how: Options, media: Mentioned) -> list[Side]:
    """The named fields, all of them strings or all of them messages."""
    sides = [_side(needed(row, name), name, how, media) for name in names]
    if len({isinstance(side, str) for side in sides}) > 1:
        kinds = ", ".join(
            f"{name} is {'a string' if isinstance(side, str) else 'messages'}"
            for name, side in zip(names, sides, strict=True)
        )
        hint = 'write all of them as messages; or hide a prompt that the others begin with: columns={"prompt": None}'
        raise RecordError(MIXED, kinds, hint=hint)
    return sides


def _side(value: object, name: str, how: Options, media: Mentioned) -> Side:
    if isinstance(value, str):
        return text(value, name)
    if isinstance(value, Mapping):
        value = [value]  # one message without its list
    if isinstance(value, list | tuple):
        return tuple(turns_in(value, name, how, media))
    raise wrong(name, value, "a string or an array of messages")


def _common(first: tuple[Message, ...], second: tuple[Message, ...]) -> int:
    """How many messages both begin with; each keeps at least one of its own."""
    if first == second:
        raise RecordError(
            "no difference", "'chosen' and 'rejected' are equal, so no prompt can be told", hint="leave such rows out"
        )
    most = min(len(first), len(second)) - 1
    count = next((place for place in range(most) if first[place] != second[place]), most)
    if count < 1:
        raise RecordError(
            "no prompt", "'chosen' and 'rejected' have no first message in common", hint="add a field prompt"
        )
    return count


def _check(prompt: Side, answer: Side, name: str, how: Options) -> None:
    if isinstance(answer, str):
        if not answer:
            raise RecordError("empty answer", f"{name} is empty", hint="leave such rows out")
        return
    check_answer(answer, name)
    check_results((*_messages(prompt), *answer), calls_in_text=how.calls_in_text)


def _messages(side: Side) -> tuple[Message, ...]:
    return () if isinstance(side, str) else side
