"""Rows of prompts with answers, of judged steps, of plain text, and rows that were tokenised elsewhere.

Prompts and answers are messages or strings: completions, preferences, judged answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream.chats.parse.content import MOST, Mentioned, bad_weight
from millstream.chats.parse.messages import besides, check_answer, conversation, messages_row
from millstream.chats.parse.row_fields import Options, Row, flag, items, needed, text, wrong
from millstream.chats.parse.row_types import (
    Completion,
    Conversation,
    Document,
    Judged,
    Message,
    Preference,
    Side,
    Stepwise,
    Tokens,
)
from millstream.chats.parse.tools import check_results
from millstream.chats.parse.turns import alpaca_row, sharegpt_row, turns_in
from millstream.errors import RecordError

MIXED = "mixed sides"
NO_LABEL = -100
LENGTHS = "lengths differ"
MASKS = ("loss_mask", "completion_mask", "assistant_masks")


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


def stepwise_row(row: Row, how: Options) -> Stepwise:
    """`prompt`, `completions` and one label for each."""
    prompt = text(needed(row, "prompt"), "prompt")
    steps, labels = items(needed(row, "completions"), "completions"), items(needed(row, "labels"), "labels")
    if len(steps) != len(labels):
        raise RecordError(LENGTHS, f"{len(steps)} completions and {len(labels)} labels", hint="each step has one label")
    if not steps:
        raise RecordError("empty conversation", "completions has no steps", hint="leave such rows out")
    texts = tuple(text(each, f"completions[{place}]") for place, each in enumerate(steps))
    return Stepwise(prompt, texts, tuple(flag(each, f"labels[{place}]") for place, each in enumerate(labels)))


def document_row(row: Row, how: Options) -> Document:
    """`text`."""
    found = text(needed(row, "text"), "text")
    if not found:
        raise RecordError("empty text", "'text' is empty", hint="leave such rows out")
    return Document(found)


def tokens_row(row: Row, how: Options) -> Tokens:
    """`input_ids`, and `labels` or masks of equal length; a token is learned if none of them forbids it."""
    ids = _column(needed(row, "input_ids"), "input_ids", "iu")
    if not len(ids):
        raise RecordError("empty row", "input_ids has no tokens", hint="leave such rows out")
    if ids.min() < 0 or ids.max() > 0xFFFFFFFF:
        raise RecordError(
            "bad token id", f"ids from {ids.min()} to {ids.max()}", hint="ids count from 0 and fit 32 bits"
        )
    weights = np.ones(len(ids), np.float32)
    if row.get("labels") is not None:
        labels = _same_length(_column(row["labels"], "labels", "iu"), "labels", ids)
        learned = labels != NO_LABEL
        if (other := np.flatnonzero(learned & (labels != ids))).size:
            place = int(other[0])
            found = f"labels[{place}] is {labels[place]}, input_ids[{place}] is {ids[place]}"
            hint = "a label is the id at the same place or -100; labels that were shifted must be shifted back"
            raise RecordError("labels are other ids", found, hint=hint)
        weights *= learned
    for name in MASKS:
        if row.get(name) is not None:
            mask = _same_length(_column(row[name], name, "iufb"), name, ids)
            outside = ~((mask >= 0) & (mask <= MOST))
            if outside.any():
                place = int(np.flatnonzero(outside)[0])
                raise bad_weight(f"{name}[{place}] is {mask[place]}")
            weights *= mask
    if (heaviest := weights.max()) > MOST:
        raise bad_weight(f"the masks together weigh a token {heaviest:g}")
    if row.get("attention_mask") is not None:
        attention = _same_length(_column(row["attention_mask"], "attention_mask", "iufb"), "attention_mask", ids)
        if not (attention == 1).all():
            found, hint = f"attention_mask is not 1 for {int((attention != 1).sum())} tokens", "store rows unpadded"
            raise RecordError("padded row", found, hint=hint)
    return Tokens(ids.astype(np.uint32), weights)


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


def _column(value: object, name: str, kinds: str) -> NDArray[Any]:
    """A flat array of numbers."""
    try:
        array = np.asarray(value if isinstance(value, np.ndarray) else items(value, name))
    except ValueError:  # lists of unequal length in it
        raise wrong(name, value, "an array of numbers") from None
    if array.ndim != 1 or (array.size and array.dtype.kind not in kinds):
        raise wrong(
            name, value if not isinstance(value, np.ndarray) else value.tolist(), "a flat array of whole numbers"
        )
    return array


def _same_length(array: NDArray[Any], name: str, ids: NDArray[Any]) -> NDArray[Any]:
    if len(array) != len(ids):
        raise RecordError(
            LENGTHS, f"{len(array)} in {name} and {len(ids)} in input_ids", hint="they have one entry per token"
        )
    return array


_CONVERSATIONS: dict[str, Callable[[Row, Options], Conversation]] = {
    "messages": messages_row,
    "conversations": sharegpt_row,
    "instruction": alpaca_row,
}
