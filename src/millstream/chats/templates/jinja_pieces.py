"""Rendered text and the spans of it that are known -> pieces.

What lies between known spans is scaffold.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from millstream.chats import Kind, Piece, Rendered
from millstream.chats.templates.traced import TracedSpan
from millstream.errors import TemplateError

MARK_IT = "put {% generation %} and {% endgeneration %} round what the assistant writes in the template"


class KnownSpan(NamedTuple):
    """Characters [start, stop) of a rendered text, and what a piece says about them."""

    start: int
    stop: int
    kind: Kind
    message: int
    given: bool


class TurnFormat(NamedTuple):
    """What a template writes round an answer."""

    between: str  # all that lies between a question and its answer
    prompt: str  # what of it is the generation prompt
    ends: tuple[str, ...]

    @property
    def turn_ends(self) -> tuple[str, ...]:
        """What ends a turn, of a question or of an answer.

        >>> TurnFormat("<|end|>\\n<|assistant|>\\n", "<|assistant|>\\n", ("<|end|>",)).turn_ends
        ('<|end|>\\n', '<|end|>')
        """
        return (self.between.removesuffix(self.prompt), *self.ends)


Tail: TypeAlias = Callable[[int, bool], str]
"""What follows the last text of the data, if only so many messages are rendered, with or without the prompt."""


def by_blocks(
    text: str, data: Sequence[KnownSpan], blocks: Sequence[TracedSpan], roles: Sequence[str], turns: TurnFormat
) -> list[KnownSpan]:
    """What lies in a `generation` block is the assistant's, and only that."""
    cuts: list[KnownSpan] = []
    within: list[list[KnownSpan]] = [[] for _ in blocks]
    starts = [block.start for block in blocks]
    for cut in data:
        assistant = _role(roles, cut) == "assistant"
        at = bisect_right(starts, cut.start) - 1
        if at >= 0 and cut.stop <= blocks[at].stop and (assistant or cut.start < cut.stop):
            within[at].append(cut)
        else:
            cuts.append(cut._replace(kind=Kind.scaffold) if assistant else cut)
    message = -1
    for block, inside in zip(blocks, within, strict=True):
        known = [cut.message for cut in inside if _role(roles, cut) == "assistant"]
        message = known[0] if known else message if message >= 0 else _first_answer(roles)
        cuts += inside
        cuts += _between(inside)
        stop = inside[-1].stop if inside else block.start
        if inside:
            opening = _opening(text[block.start : inside[0].start], inside[0].kind)
            cuts.append(KnownSpan(block.start, inside[0].start, opening, message, False))
        end = _end(text[stop : block.stop], turns) if inside and inside[-1].kind == Kind.tool_call else 0
        cuts.append(KnownSpan(stop, stop + end, Kind.tool_call, message, False))
        cuts.append(KnownSpan(stop + end, block.stop, Kind.stop, message, False))
    return cuts


def by_turn_format(
    text: str, data: Sequence[KnownSpan], roles: Sequence[str], turns: TurnFormat, tail: Tail
) -> list[KnownSpan]:
    """An answer reaches from the end of the prompt to the end of its turn: by format, else by a shorter rendering."""
    cuts = list(data)
    before = 0
    runs = list(_runs(data))
    last = {run[0].message: at for at, run in enumerate(runs)}
    for at, run in enumerate(runs):
        after = runs[at + 1][0].start if at + 1 < len(runs) else len(text)
        if _role(roles, run[0]) == "assistant":
            cuts += _between(run)
            cuts += _prompted(text, before, run[0], turns, tail)
            if last[run[0].message] == at:
                cuts += _ended(text, run[-1], after, turns, tail)
        before = run[-1].stop
    return cuts


def pieces_between(
    text: str, cuts: Sequence[KnownSpan], roles: Sequence[str], turns: TurnFormat | None = None
) -> Rendered:
    """Put cuts in order, and scaffold between them: the end of a turn belongs to the message before it, if the turn
    format tells where it ends, and the rest to the message after it."""
    made: Rendered = []
    at, message = 0, -1
    for cut in sorted(cut for cut in cuts if cut.start < cut.stop):
        if cut.start < at:
            raise TemplateError(f"message {cut.message}: its parts cannot be told apart", hint=MARK_IT)
        end = at
        if turns is not None and -1 < message != cut.message:
            end += max(len(each) * text.startswith(each, at, cut.start) for each in turns.turn_ends)
        for start, stop, owner in ((at, end, message), (end, cut.start, cut.message)):
            if start < stop:
                made.append(_piece(text, KnownSpan(start, stop, Kind.scaffold, owner, False), roles))
        made.append(_piece(text, cut, roles))
        at, message = cut.stop, cut.message
    if at < len(text):
        made.append(_piece(text, KnownSpan(at, len(text), Kind.scaffold, -1, False), roles))
    return made


def _piece(text: str, cut: KnownSpan, roles: Sequence[str]) -> Piece:
    return Piece(
        text[cut.start : cut.stop], cut.kind, cut.message, cut.given, roles[cut.message] if cut.message >= 0 else ""
    )


def _runs(data: Sequence[KnownSpan]) -> Iterator[list[KnownSpan]]:
    """Stretches of one message that follow each other."""
    run: list[KnownSpan] = []
    for cut in data:
        if run and run[-1].message != cut.message:
            yield run
            run = []
        run.append(cut)
    if run:
        yield run


def _between(run: Sequence[KnownSpan]) -> Iterator[KnownSpan]:
    """What a template writes between two texts of a message belongs to the more particular of the two."""
    for left, right in pairwise(run):
        kinds = {left.kind, right.kind}
        kind = next((kind for kind in (Kind.reasoning, Kind.tool_call) if kind in kinds), Kind.content)
        yield KnownSpan(left.stop, right.start, kind, left.message, False)


def _prompted(text: str, before: int, first: KnownSpan, turns: TurnFormat, tail: Tail) -> Iterator[KnownSpan]:
    """What stands between the prompt and the first text: an opening tag, a space, or an empty block of reasoning."""
    gap = text[before : first.start]
    if gap.startswith(turns.between):
        length = len(turns.between)
    elif turns.prompt:
        length = gap.rfind(turns.prompt) + len(turns.prompt) if turns.prompt in gap else 0
    else:
        end = tail(first.message, True)
        length = len(end) if gap.startswith(end) else 0
    if length:
        start = before + length
        yield KnownSpan(start, first.start, _opening(text[start : first.start], first.kind), first.message, False)


def _opening(opening: str, kind: Kind) -> Kind:
    return Kind.reasoning if kind == Kind.content and opening.strip() else kind


def _ended(text: str, last: KnownSpan, after: int, turns: TurnFormat, tail: Tail) -> Iterator[KnownSpan]:
    """The end of a turn: what closes a tool call, what ends the answer."""
    if not turns.ends:
        return
    rest = text[last.stop : after]
    for end in turns.ends:
        found = rest.find(end) if last.kind == Kind.tool_call and end.strip() else -1 + rest.startswith(end)
        if found >= 0:
            start, stop = last.stop + found, last.stop + found + len(end.rstrip())
            yield KnownSpan(last.stop, start, last.kind, last.message, False)
            yield KnownSpan(start, stop, Kind.stop, last.message, False)
            yield KnownSpan(stop, last.stop + found + len(end), Kind.scaffold, last.message, False)
            return
    end = tail(last.message + 1, False)
    if end and rest.startswith(end):
        yield KnownSpan(last.stop, last.stop + len(end), Kind.stop, last.message, False)
        return
    raise TemplateError(
        f"message {last.message}: where its turn ends cannot be told: {rest[:40]!r} follows it, not {turns.ends[0]!r}",
        hint=MARK_IT,
    )


def _end(rest: str, turns: TurnFormat) -> int:
    """Where the end of a turn begins in what follows a tool call."""
    return next((rest.rfind(end) for end in turns.ends if end.strip() and end in rest), 0)


def _first_answer(roles: Sequence[str]) -> int:
    if "assistant" in roles:
        return roles.index("assistant")
    raise TemplateError("a generation block without an assistant message", hint="mark only what the assistant writes")


def _role(roles: Sequence[str], cut: KnownSpan) -> str:
    return roles[cut.message] if cut.message >= 0 else ""
