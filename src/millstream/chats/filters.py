"""What templates may do to values: the filters of jinja, traced and with an end to everything they make."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from typing import Any

from millstream.chats.traced import LOST, Span, Traced, bounded, made_of, spans_of
from millstream.errors import MissingExtra

try:
    from jinja2 import pass_environment
    from jinja2.exceptions import SecurityError
    from jinja2.filters import FILTERS, do_indent, make_attrgetter
except ImportError as error:
    raise MissingExtra.of("jinja2", "chat") from error

WIDEST = 10_000
_MOST_VALUES = 1_000_000
_WIDE = re.compile(r"\d{5,}|\*")
_LEFT_OUT = frozenset({"batch", "center", "pprint", "random", "slice", "sum", "urlize", "wordwrap", "xmlattr"})
_PASSING = frozenset(  # they pass values on and write none, so that loops may ask them again and again
    {"length", "count", "list", "first", "last", "map", "select", "reject", "selectattr", "rejectattr", "default", "d"}
)


def filters() -> dict[str, Any]:
    """All filters by name; those that can make giants or differ from run to run are not among them."""
    known = {name: _tracing(name, each) for name, each in FILTERS.items() if name not in _LEFT_OUT}
    return known | {"tojson": _tojson, "join": _join, "replace": _replace, "format": _format, "indent": _indent}


def light(value: Any) -> Any:
    """The value, unless it holds too many others to be written: lists may hold each other again and again."""
    if isinstance(value, list | tuple | dict):
        left, seen = [value], 0
        while left:
            each = left.pop()
            seen += len(each)
            if seen > _MOST_VALUES:
                raise SecurityError("a value that has no end")
            inner = each.values() if isinstance(each, dict) else each
            left += (one for one in inner if isinstance(one, list | tuple | dict))
    return value


def narrow(form: str) -> None:
    """Refuse a format that pads to a giant width."""
    if _WIDE.search(form):
        raise SecurityError("a format with a giant width")


def is_traced(*values: Any) -> bool:
    """Whether there is text of the data in any of the values."""
    return bool(spans_of(made_of("any", *values)))


def lose(text: str) -> str:
    """Mark a text whose parts cannot be told apart."""
    return Traced(text, [Span(0, len(text), LOST)])


def _tracing(name: str, filter: Any) -> Any:
    """A filter of jinja whose text is marked, if it was made of marked ones."""

    @functools.wraps(filter)
    def traced(*args: Any, **kwargs: Any) -> Any:
        if name not in _PASSING:
            light(args)
        made = filter(*args, **kwargs)
        return made_of(made, *args, *kwargs.values()) if type(made) is str else made

    return traced


def _tojson(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - as in transformers
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002 - as in transformers
) -> str:
    if isinstance(indent, int) and indent > WIDEST:
        raise SecurityError(f"tojson(indent={indent})")
    text = json.dumps(
        light(value), ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return made_of(text, value)


@pass_environment
def _join(environment: Any, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    each = value if attribute is None else map(make_attrgetter(environment, attribute), value)
    return Traced(d, spans_of(d)).join(map(str, map(light, each)))


def _replace(value: Any, old: str, new: str, count: int = -1) -> str:
    text = str(value)
    return Traced(text, spans_of(text)).replace(old, new, count)


def _format(value: Any, *args: Any, **kwargs: Any) -> str:
    narrow(str(value))
    light([*args, *kwargs.values()])
    text = str.__mod__(str.__str__(value), kwargs or args)
    return lose(text) if is_traced(value, args, kwargs) else text


def _indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:  # noqa: FBT001, FBT002
    text = str(value)
    bounded(len(text) + (text.count("\n") + 1) * (width if isinstance(width, int) else len(width)))
    return made_of(do_indent(text, width, first, blank), value)
