"""Rows that are too long -> shorter rows. Weights are decided before, so no answer here trains more than the row.

An exchange is a message of the user and all that answers it: calls, results, texts. `turns` and `split` keep exchanges
whole and the system prompt with them: no answer is cut, and no tool result lacks its call. Two answers
to one prompt are shortened together: the prompt is cut first and once, so it is the same on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from millstream.chats.masks import Policy
from millstream.chats.parse import ChatRow, Conversation, Document, Message
from millstream.chats.pieces import Supervised
from millstream.errors import RecipeError, RecordError

Truncation: TypeAlias = Literal["error", "drop", "keep_start", "keep_end", "turns", "split"]
Untrained: TypeAlias = Literal["error", "drop", "keep"]


@dataclass(frozen=True, slots=True)
class Limit:
    """How long rows may be, in tokens, and what happens to longer ones and to rows without a trained token.

    * "error", "drop": refuse the row, or leave it out and count it
    * "keep_start", "keep_end": cut its tokens
    * "turns": leave out whole exchanges, the oldest first; "split": several rows, each with the system prompt
    """

    max_length: int | None = None
    truncation: Truncation = "error"
    untrained: Untrained = "error"

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_length < 1:
            raise RecipeError(f"max_length={self.max_length} is no length", hint="ask for one token or more")
        if self.truncation not in get_args(Truncation):
            known = ", ".join(get_args(Truncation))
            raise RecipeError(f"truncation={self.truncation!r} is unknown", hint=f"choose one of {known}")
        if self.untrained not in get_args(Untrained):
            raise RecipeError(f"untrained={self.untrained!r} is unknown", hint='choose "error", "drop" or "keep"')

    def allows(self, row: Supervised) -> bool:
        """Whether a row is short enough."""
        return self.max_length is None or len(row) <= self.max_length


class ConversationPart(NamedTuple):
    """Some messages of a conversation, and which ones."""

    conversation: Conversation
    kept: list[int]

    def restored(self, row: Supervised) -> Supervised:
        """The part's row, with the message numbers of the whole conversation."""
        numbers = np.array([*self.kept, -1], np.int32)  # -1 finds the last
        return replace(row, messages=numbers[row.messages], truncated=True)


EncodePart: TypeAlias = Callable[[ConversationPart], Supervised]


def shorten(row: ChatRow, made: Supervised, limit: Limit, policy: Policy, encode: EncodePart) -> list[Supervised]:
    """A row that is too long, in rows that are not; none if that cannot be. `made` is the whole of it."""
    length = limit.max_length or 0
    if limit.truncation == "error":
        raise RecordError(
            "too long",
            f"{len(made)} tokens, where {length} are allowed",
            hint='pass truncation="turns", "keep_start", "keep_end", "split" or "drop"',
        )
    if limit.truncation == "keep_start":
        return [made.cut(0, length)]
    if limit.truncation == "keep_end":
        return [made.cut(len(made) - length, len(made))]
    if isinstance(row, Document) and limit.truncation == "split":
        return [made.cut(start, min(start + length, len(made))) for start in range(0, len(made), length)]
    if not isinstance(row, Conversation) or limit.truncation == "drop":
        return []
    whole = ConversationPart(_decided(row, policy), list(range(len(row.messages))))
    return _turns(whole, made, length, encode) if limit.truncation == "turns" else _split(whole, made, length, encode)


class Pair(NamedTuple):
    """A prompt, and the better and the worse answer to it."""

    prompt: Supervised
    chosen: Supervised
    rejected: Supervised


@dataclass(frozen=True, slots=True)
class PairLimit:
    """How many tokens a prompt and one answer may have together, and how many of the prompt stay at the least."""

    max_length: int
    min_prompt: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.min_prompt < self.max_length:
            raise RecipeError(
                f"min_prompt={self.min_prompt} leaves no room for an answer in max_length={self.max_length}",
                hint="make min_prompt smaller, or allow longer pairs",
            )


def fit_pair(pair: Pair, limit: PairLimit) -> Pair | None:
    """The pair under the limit: the end of the prompt, then the beginning of each answer. None: an answer is empty.

    >>> import numpy as np
    >>> def row(n): return Supervised(np.arange(n, dtype=np.uint32), np.ones(n, np.float32), np.zeros(n, np.int32))
    >>> [len(part) for part in fit_pair(Pair(row(300), row(20), row(30)), PairLimit(100))]
    [70, 20, 30]
    >>> [len(part) for part in fit_pair(Pair(row(50), row(20), row(300)), PairLimit(100, min_prompt=10))]
    [10, 20, 90]
    """
    longest = max(len(pair.chosen), len(pair.rejected))
    budget = max(limit.min_prompt, limit.max_length - longest)
    prompt = pair.prompt
    if len(prompt) > budget:
        prompt = prompt.cut(len(prompt) - budget, len(prompt))
    room = limit.max_length - len(prompt)
    answers = [side if len(side) <= room else side.cut(0, room) for side in (pair.chosen, pair.rejected)]
    if not all(map(len, answers)):
        return None
    return Pair(prompt, *answers)


def _turns(part: ConversationPart, made: Supervised, length: int, encode: EncodePart) -> list[Supervised]:
    shorter = latest(part, made, length)
    if shorter is None:
        return []
    made = encode(shorter)
    return [made] if len(made) <= length else _turns(shorter, made, length, encode)


def _split(part: ConversationPart, made: Supervised, length: int, encode: EncodePart) -> list[Supervised]:
    if len(made) <= length:
        return [made]
    parts = split(part, made, length)
    return [] if len(parts) == 1 else [row for each in parts for row in _split(each, encode(each), length, encode)]


def exchanges(messages: Sequence[Message]) -> tuple[list[int], list[list[int]]]:
    """The messages of the system at the beginning, and those of each exchange.

    >>> exchanges([Message(role, "") for role in ("system", "user", "assistant", "tool", "assistant", "user")])
    ([0], [[1, 2, 3, 4], [5]])
    """
    first = next((at for at, each in enumerate(messages) if each.role not in ("system", "developer")), len(messages))
    found: list[list[int]] = []
    for at in range(first, len(messages)):
        if messages[at].role == "user" or not found:
            found.append([])
        found[-1].append(at)
    return list(range(first)), found


def latest(part: ConversationPart, row: Supervised, length: int) -> ConversationPart | None:
    """The part without its oldest exchanges, as many as are too many by the tokens of its row, but at least one less;
    None: there is only one."""
    head, later = exchanges(part.conversation.messages)
    if len(later) < 2:
        return None
    sizes = _sizes(part, row)
    room = length - len(row) + sum(sizes[at] for each in later for at in each)
    kept = 1
    while kept < len(later) - 1 and sum(sizes[at] for each in later[-kept - 1 :] for at in each) <= room:
        kept += 1
    return _only(part, [*head, *(at for each in later[-kept:] for at in each)])


def split(part: ConversationPart, row: Supervised, length: int) -> list[ConversationPart]:
    """The part in several, cut between exchanges, each as long as it may be by the tokens of its row and at least one
    exchange; each begins with the system prompt."""
    head, later = exchanges(part.conversation.messages)
    sizes = _sizes(part, row)
    room = length - len(row) + sum(sizes[at] for each in later for at in each)
    groups: list[list[int]] = []
    left = 0
    for each in later:
        size = sum(sizes[at] for at in each)
        if not groups or size > left:
            groups.append([])
            left = room
        groups[-1] += each
        left -= size
    if len(groups) == 1 and len(later) > 1:  # rendered apart they are longer than they seemed
        middle = later[len(later) // 2][0]
        groups = [[at for at in groups[0] if at < middle], [at for at in groups[0] if at >= middle]]
    return [_only(part, [*head, *group]) for group in groups]


def _decided(conversation: Conversation, policy: Policy) -> Conversation:
    """The conversation with what the policy chose in the whole of it written down, so that no part chooses anew."""
    if conversation.media:
        raise RecordError(
            "media in a long row",
            "messages that are left out may own some of the row's media",
            hint='truncate with "drop", "keep_start" or "keep_end", or allow longer rows',
        )
    roles = [message.role for message in conversation.messages]
    least = -1
    if policy.train == "last":
        least = max((at for at, role in enumerate(roles) if role == "assistant"), default=-1)
    elif policy.train == "last_round":
        least = 1 + max((at for at, role in enumerate(roles) if role == "user"), default=-1)
    messages = [
        replace(message, weight=0.0) if at < least and message.weight is None else message
        for at, message in enumerate(conversation.messages)
    ]
    return replace(conversation, messages=tuple(messages))


def _only(part: ConversationPart, kept: list[int]) -> ConversationPart:
    conversation = part.conversation
    prompt = conversation.prompt_messages
    shorter = replace(
        conversation,
        messages=tuple(conversation.messages[at] for at in kept),
        prompt_messages=None if prompt is None else sum(at < prompt for at in kept),
    )
    return ConversationPart(shorter, [part.kept[at] for at in kept])


def _sizes(part: ConversationPart, row: Supervised) -> list[int]:
    """How many tokens each message of a part has in its row, whose numbers are those of the whole conversation."""
    counts = np.bincount(row.messages[row.messages >= 0], minlength=1 + max(part.kept, default=-1))
    return [int(counts[at]) for at in part.kept]
