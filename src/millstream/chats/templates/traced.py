"""Text whose characters keep their origin through everything that a template does to it.

A jinja template trims, splits, tests and joins the texts that it is given. `Traced` is a `str` that does the same
things to the same effect and keeps its spans: [start, stop) came from that part of that message. What cannot be
followed (a text that was formatted or repeated) is marked as lost, so that it cannot pass for text of the template.
"""

# ruff: noqa: D102 - the methods are those of `str`

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, SupportsIndex

from millstream.chats import Kind
from millstream.errors import TemplateError

MOST_CHARACTERS = 1 << 26


class EndlessTemplate(TemplateError):  # noqa: N818 - reads as a claim
    """A template that was stopped, as it would loop or write without end."""


class Mark(NamedTuple):
    """Where a span comes from: a message (-1: none), and what of it."""

    message: int
    kind: Kind


class TracedSpan(NamedTuple):
    """Characters [start, stop) of a text, and their origin. An empty text has an empty span."""

    start: int
    stop: int
    mark: Mark


LOST = Mark(-2, Kind.content)
GENERATION = Mark(-3, Kind.content)  # inside a `generation` block: lies over the spans of the data


class Traced(str):
    """A string with spans. Everything that gives a new string gives one with the spans that belong to it."""

    __slots__ = ("_spans",)
    _spans: tuple[TracedSpan, ...]

    def __new__(cls, text: str, spans: Iterable[TracedSpan] = ()) -> Traced:
        """Attach spans to a text."""
        made = super().__new__(cls, text)
        made._spans = tuple(spans)
        return made

    def __str__(self) -> str:
        return self

    def __iter__(self) -> Iterator[str]:
        return (self[at] for at in range(len(self)))

    def __getitem__(self, key: SupportsIndex | slice[Any, Any, Any]) -> str:
        if isinstance(key, slice):
            start, _, step = key.indices(len(self))
            text = super().__getitem__(key)
            return self._cut(start, start + len(text)) if step == 1 else self._changed(text)
        at = range(len(self))[key]
        return self._cut(at, at + 1)

    def __add__(self, other: str) -> str:
        return joined((self, other))

    def __radd__(self, other: str) -> str:
        return joined((other, self))

    def __mul__(self, times: SupportsIndex) -> str:
        return self._changed(super().__mul__(times), whole=False)

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> str:
        return self._changed(super().__mod__(values), whole=False)

    def __rmod__(self, form: str) -> str:
        return self._changed(form % (str.__str__(self),), whole=False)

    def strip(self, chars: str | None = None, /) -> str:
        return self._found(super().lstrip(chars)).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> str:
        return self._found(super().lstrip(chars))

    def rstrip(self, chars: str | None = None, /) -> str:
        return self._cut(0, len(super().rstrip(chars)))

    def removeprefix(self, prefix: str, /) -> str:
        return self._found(super().removeprefix(prefix))

    def removesuffix(self, suffix: str, /) -> str:
        return self._cut(0, len(super().removesuffix(suffix)))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._parts(super().split(sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._parts(super().rsplit(sep, maxsplit), sep)

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        first, middle, last = self._parts(list(super().partition(sep)), "")
        return first, middle, last

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        first, middle, last = self._parts(list(super().rpartition(sep)), "")
        return first, middle, last

    def splitlines(self, keepends: bool = False) -> list[str]:  # noqa: FBT001, FBT002 - as of a string
        whole = self._parts(super().splitlines(keepends=True), "")
        return whole if keepends else [line[: len(str.splitlines(line)[0])] for line in whole]

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        if not old:
            return self._changed(super().replace(old, new, count), whole=False)
        bounded(self.count(old) * len(new))
        return Traced(new, spans_of(new)).join(self.split(old, count))

    def join(self, parts: Iterable[str], /) -> str:
        listed: list[str] = []
        for part in parts:
            listed += (self, part) if listed else (part,)
        return joined(listed)

    def _cut(self, start: int, stop: int) -> Traced:
        """Characters [start, stop). A span that is only touched is left out, unless it is empty itself."""
        spans = (
            TracedSpan(max(span.start, start) - start, min(span.stop, stop) - start, span.mark)
            for span in self._spans
            if (span.start < stop and span.stop > start) or start <= span.start == span.stop <= stop
        )
        return Traced(str.__getitem__(self, slice(start, stop)), spans)

    def _found(self, rest: str) -> Traced:
        """What is left at the end after something was taken from the beginning."""
        return self._cut(len(self) - len(rest), len(self))

    def _parts(self, parts: list[str], sep: str | None) -> list[str]:
        """Parts that follow each other, `sep` (None: any blanks) between them."""
        at, cut = 0, []
        for part in parts:
            if sep is None:
                at = self.index(part, at)
            cut.append(self._cut(at, at + len(part)))
            at += len(part) + len(sep or "")
        return list(cut)

    def _changed(self, text: str, *, whole: bool = True) -> str:
        """Another text made of this one: all of it is from where all of this one is from, else it is lost."""
        if str.__eq__(text, self):
            return self
        marks = {span.mark for span in self._spans}
        covered = len(self._spans) == 1 and self._spans[0][:2] == (0, len(self))
        if not marks:
            return Traced(text)
        return Traced(text, [TracedSpan(0, len(text), marks.pop() if whole and covered else LOST)])


def _changing(name: str) -> Any:
    """A method of `str` that changes letters or adds some."""

    def method(self: Traced, *args: Any, **kwargs: Any) -> str:
        return self._changed(getattr(str, name)(self, *args, **kwargs))

    method.__name__ = name
    return method


for _name in (
    *("lower", "upper", "title", "capitalize", "casefold", "swapcase", "expandtabs", "translate"),
    *("center", "ljust", "rjust", "zfill"),
):
    setattr(Traced, _name, _changing(_name))


def joined(parts: Iterable[str]) -> str:
    """Join texts, and their spans."""
    listed = list(parts)
    bounded(sum(map(len, listed)))
    text = "".join(listed)
    spans: list[TracedSpan] = []
    at = 0
    for part in listed:
        if isinstance(part, Traced):
            spans += (TracedSpan(start + at, stop + at, mark) for start, stop, mark in part._spans)
        at += len(part)
    return Traced(text, spans) if spans else text


def bounded(characters: int) -> None:
    """Stop a template that makes ever longer texts, before the text is made."""
    if characters > MOST_CHARACTERS:
        raise EndlessTemplate("the template writes without end", hint="do not trust it, or render shorter rows")


def spans_of(text: str) -> tuple[TracedSpan, ...]:
    """The spans of a text; none, if it was never traced."""
    return text._spans if isinstance(text, Traced) else ()


def trace(value: Any, mark: Mark) -> Any:
    """Mark every text in a JSON value, names of fields too."""
    if isinstance(value, str):
        return Traced(value, [TracedSpan(0, len(value), mark)])
    if isinstance(value, Mapping):
        return {trace(key, mark): trace(each, mark) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [trace(each, mark) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return f"<{type(value).__name__}>"  # anything else has methods that a template should not reach


def made_of(text: str, *sources: Any) -> str:
    """Mark a text that something of ours made of traced values: all of one message, else lost."""
    marks = {mark for source in sources for mark in _marks(source)}
    if not marks or isinstance(text, Traced):
        return text
    messages = {mark.message for mark in marks}
    kinds = {mark.kind for mark in marks}
    if len(messages) > 1 or LOST in marks:
        return Traced(text, [TracedSpan(0, len(text), LOST)])
    kind = kinds.pop() if len(kinds) == 1 else Kind.content
    return Traced(text, [TracedSpan(0, len(text), Mark(messages.pop(), kind))])


def _marks(value: Any) -> Iterator[Mark]:
    if isinstance(value, Traced):
        yield from (span.mark for span in value._spans)
        if value._spans and value._spans[0][:2] != (0, len(value)):
            yield LOST  # a part of the text is the template's
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _marks(key)
            yield from _marks(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _marks(each)
