"""Which parts of a conversation carry loss: pieces -> spans of text, each with a weight.

The policy chooses messages, the modifiers parts of them. A weight that a row gives to a message replaces the policy's
choice; one that it gives to a stretch of a message's content overrides both. What inference hands to the model, the
header of its turn and an empty think block, is never trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from millstream.chats.parse import Conversation, Message
from millstream.chats.pieces import Kind, Pieces
from millstream.errors import RecipeError, RecordError
from millstream.tokens import Ends

Choice: TypeAlias = Literal["all", "assistant", "last", "last_round", "completion", "explicit"]
Weights: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Policy:
    """Which messages are trained, and which parts of them.

    * "all": every token but the headers of the assistant's turns; "assistant": every turn of the assistant
    * "last": its last turn; "last_round": its turns after the last message of the user
    * "completion": its turns after the prompt, in rows that say where the prompt ends
    * "explicit": only what the rows themselves give a weight
    """

    train: Choice = "assistant"
    train_reasoning: bool = True
    train_tool_calls: bool = True
    mask_empty_think: bool = True

    def __post_init__(self) -> None:
        if self.train not in get_args(Choice):
            raise RecipeError(f"train={self.train!r} is unknown", hint=f"choose one of {', '.join(get_args(Choice))}")


class Spans(NamedTuple):
    """Text end to end in parts of one weight; part i ends at byte `ends[i]`."""

    ends: Ends
    weights: Weights
    messages: NDArray[np.int32]
    produced: NDArray[np.bool_]  # text that the model writes; the rest is handed to it


class SplitPiece(NamedTuple):
    """A piece that is several spans: the bytes and the weight of each."""

    place: int
    sizes: list[int]
    weights: list[float]


def weigh(pieces: Pieces, conversations: Sequence[Conversation | None], policy: Policy) -> Spans:
    """Give every part of every row its weight. Rows without a conversation have no weights of their own."""
    produced = pieces.assistant & (pieces.kinds != Kind.scaffold)
    chosen = _chosen(pieces, conversations, policy).astype(np.float32)
    cuts: list[SplitPiece] = []
    for row, conversation in enumerate(conversations):
        if conversation is not None and _says_more(conversation):
            cuts += _own_weights(pieces, row, conversation, chosen)
    weights = np.where(_trainable(pieces, produced, policy), chosen, np.float32(0))
    return _cut(Spans(pieces.ends, weights, pieces.messages, produced), cuts)


def _trainable(pieces: Pieces, produced: NDArray[np.bool_], policy: Policy) -> NDArray[np.bool_]:
    """The pieces that are trained if their message is."""
    parts: NDArray[np.bool_] = pieces.kinds != Kind.scaffold
    if policy.train == "all":
        parts |= ~_headers(pieces, produced)
    if not policy.train_tool_calls:
        parts &= pieces.kinds != Kind.tool_call
    reasoning = pieces.kinds == Kind.reasoning
    if not policy.train_reasoning:
        parts &= ~reasoning
    elif policy.mask_empty_think and reasoning.any():
        keys = _keys(pieces)
        thought = np.zeros(len(keys), np.bool_)
        places = np.flatnonzero(reasoning & pieces.given)
        thought[places] = [not pieces.all[place].text.isspace() for place in places.tolist()]
        parts &= ~reasoning | np.isin(keys, keys[thought])
    return parts


def _chosen(pieces: Pieces, conversations: Sequence[Conversation | None], policy: Policy) -> NDArray[np.bool_]:
    """The pieces of messages that the policy trains."""
    if policy.train == "all":
        return np.ones(len(pieces.all), np.bool_)
    if policy.train == "explicit":
        return np.zeros(len(pieces.all), np.bool_)
    if policy.train == "completion":
        unknown = next((row for row, each in enumerate(conversations) if each and each.prompt_messages is None), None)
        if unknown is not None:
            raise RecordError(
                "no prompt", "the row does not say where its prompt ends", hint='pass train="assistant" or "last"'
            )
    if policy.train == "last":
        return pieces.assistant & np.equal(
            pieces.messages, _last(pieces, pieces.assistant & (pieces.kinds != Kind.scaffold))
        )
    if policy.train == "last_round":
        user = np.fromiter((piece.role == "user" for piece in pieces.all), np.bool_, len(pieces.all))
        return pieces.assistant & np.greater(pieces.messages, _last(pieces, user))
    return pieces.assistant


def _last(pieces: Pieces, of: NDArray[np.bool_]) -> NDArray[np.int32]:
    """For each piece the last message of its row that has a piece among `of`; -1: none."""
    last = np.full(len(pieces.row_ends), -1, np.int32)
    np.maximum.at(last, pieces.rows[of], pieces.messages[of])
    found: NDArray[np.int32] = last[pieces.rows]
    return found


def _headers(pieces: Pieces, produced: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """What the model is handed before it writes: the scaffold ahead of each of its turns and at the end of a row."""
    places = np.arange(len(pieces.all))
    keys, found = np.unique(_keys(pieces), return_inverse=True)
    first = np.full(len(keys), len(places))
    np.minimum.at(first, found[produced], places[produced])
    spoken = np.full(len(pieces.row_ends), len(places))
    last = np.flatnonzero(pieces.messages >= 0)
    spoken[pieces.rows[last]] = last  # of several the last one stays
    ahead = pieces.assistant & (places < first[found])
    after = (pieces.messages < 0) & (places > spoken[pieces.rows])
    return np.equal(pieces.kinds, Kind.scaffold) & (ahead | after)


def _keys(pieces: Pieces) -> NDArray[np.int64]:
    """A number for each message of each row."""
    width = 2 + int(pieces.messages.max(initial=-1))
    return pieces.rows * width + pieces.messages + 1


def _says_more(conversation: Conversation) -> bool:
    return conversation.prompt_messages is not None or any(
        message.weight is not None or message.stretches for message in conversation.messages
    )


def _own_weights(pieces: Pieces, row: int, conversation: Conversation, chosen: Weights) -> Iterator[SplitPiece]:
    """Write the weights that a row gives to its messages over those of the policy, and cut contents into stretches."""
    begin, end = int(pieces.row_ends[row - 1]) if row else 0, int(pieces.row_ends[row])
    places: dict[int, list[int]] = {}
    for place in range(begin, end):
        places.setdefault(int(pieces.messages[place]), []).append(place)
    prompt = conversation.prompt_messages or 0
    for at, message in enumerate(conversation.messages):
        mine = places.get(at, [])
        if message.weight is not None:
            chosen[mine] = message.weight
        if at < prompt:
            chosen[mine] = 0
        elif message.stretches:
            contents = [place for place in mine if pieces.kinds[place] == Kind.content and pieces.given[place]]
            yield from _stretched(pieces, contents, at, message, chosen)


def _stretched(pieces: Pieces, places: list[int], at: int, message: Message, chosen: Weights) -> Iterator[SplitPiece]:
    """Cut the pieces of a message's content where its stretches begin and stop."""
    texts = [pieces.all[place].text for place in places]
    lead = _lead(message, at, "".join(texts))
    weights = np.full(len(message.content), np.nan, np.float32)
    for stretch in message.stretches:
        weights[stretch.start : stretch.stop] = stretch.weight
    for place, text in zip(places, texts, strict=True):
        mine = weights[lead : lead + len(text)]
        lead += len(text)
        mine = np.where(np.isnan(mine), chosen[place], mine)
        borders = np.flatnonzero(np.diff(mine)) + 1
        stops = [*borders.tolist(), len(text)]
        sizes = [len(text[start:stop].encode()) for start, stop in zip([0, *stops], stops, strict=False)]
        yield SplitPiece(place, sizes, [float(mine[stop - 1]) for stop in stops])


def _lead(message: Message, at: int, text: str) -> int:
    """Where the rendered text begins in the content; templates may trim it."""
    lead = message.content.find(text)
    around = message.content[:lead] + message.content[lead + len(text) :]
    if lead < 0 or (around.strip() and lead != message.content.rfind(text)):
        raise RecordError(
            "stretches lost",
            f"message {at} has weights for parts of its content, which the template changes",
            hint="give the whole message a weight, or use a template that keeps contents as they are",
        )
    return lead


def _cut(spans: Spans, cuts: Sequence[SplitPiece]) -> Spans:
    """Cut some spans into smaller ones."""
    if not cuts:
        return spans
    counts = np.ones(len(spans.ends), np.int64)
    counts[[cut.place for cut in cuts]] = [len(cut.sizes) for cut in cuts]
    of = np.repeat(np.arange(len(counts)), counts)
    sizes, weights = np.diff(spans.ends, prepend=0)[of], spans.weights[of]
    begins = np.cumsum(counts) - counts
    for cut in cuts:
        first = begins[cut.place]
        sizes[first : first + len(cut.sizes)] = cut.sizes
        weights[first : first + len(cut.sizes)] = cut.weights
    return Spans(np.cumsum(sizes), weights, spans.messages[of], spans.produced[of])
