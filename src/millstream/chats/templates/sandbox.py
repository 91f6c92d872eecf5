"""The sandbox in which jinja templates run: as transformers runs them, with traced texts and limits on all work.

A template is untrusted code: it sees plain JSON values, reaches nothing beyond them, and is stopped when it loops or
grows without end. Its filters are those of jinja; each keeps the spans of the texts that it is given.
"""

from __future__ import annotations

import functools
import json
import re
import threading
import time
from collections.abc import Callable, Iterable
from datetime import date as Date  # noqa: N812 - `date` is the name of the argument
from datetime import datetime
from typing import Any, TypeVar

from millstream.chats.templates.traced import (
    GENERATION,
    LOST,
    EndlessTemplate,
    Traced,
    TracedSpan,
    bounded,
    joined,
    made_of,
    spans_of,
)
from millstream.errors import MissingExtra, TemplateError

try:
    from jinja2 import TemplateError as JinjaError
    from jinja2 import nodes, pass_environment
    from jinja2.compiler import CodeGenerator, Frame
    from jinja2.exceptions import SecurityError, TemplateSyntaxError
    from jinja2.ext import Extension
    from jinja2.filters import FILTERS, do_indent, make_attrgetter
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace
except ImportError as error:
    raise MissingExtra.of("jinja2", "chat") from error

LEAST_ROUNDS = 100_000
ROUNDS_PER_MESSAGE = 10_000
"""A template that compares each message with all others takes as many as there are messages, for each of them."""
MOST_SECONDS = 10.0
_LONGEST_SOURCE = 1 << 20
_WIDEST = 10_000
_MOST_VALUES = 1_000_000
_WIDE = re.compile(r"\d{5,}|\*")
_LEFT_OUT = frozenset({"batch", "center", "pprint", "random", "slice", "sum", "urlize", "wordwrap", "xmlattr"})
_PASSING = frozenset(  # they pass values on and write none, so that loops may ask them again and again
    {"length", "count", "list", "first", "last", "map", "select", "reject", "selectattr", "rejectattr", "default", "d"}
)
_METHODS = frozenset(dir(str))
_PADDING = frozenset({"center", "ljust", "rjust", "zfill"})
_Made = TypeVar("_Made")


def safely(action: Callable[[], _Made]) -> _Made:
    """Run an action of a template; every failure is a TemplateError."""
    try:
        return action()
    except TemplateError:
        raise
    except SecurityError as error:
        raise TemplateError(f"the template reaches for what it must not: {error}", hint="do not trust it") from error
    except TemplateSyntaxError as error:
        raise TemplateError(
            f"line {error.lineno} of the template is no jinja that is known: {error.message}",
            hint="mend the template; filters, tests and tags are those of jinja and transformers",
        ) from error
    except JinjaError as error:
        raise TemplateError(
            f"the template refused: {error.message or type(error).__name__}",
            hint="change the conversation to what the template asks for, or the template",
        ) from error
    except (ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError, AttributeError) as error:
        raise TemplateError(
            f"the template failed: {type(error).__name__}: {error}", hint="the template does not fit this conversation"
        ) from error


class Sandbox(ImmutableSandboxedEnvironment):
    """Templates as transformers renders them. Texts that are traced stay traced, work and output have limits."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, date: Date | None) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"])
        self.finalize = _light
        self._date = date
        self._spent = threading.local()
        self.filters = _filters()
        self.globals = {
            "range": self.globals["range"],
            "cycler": self.globals["cycler"],
            "joiner": self.globals["joiner"],
            "dict": lambda *args, **kwargs: dict(*args, **kwargs),
            "namespace": _Namespace,
            "raise_exception": _raise,
            "strftime_now": self._strftime_now,
        }

    def compiled(self, source: str) -> Callable[[dict[str, Any]], str]:
        """Compile a template into a function of its variables."""
        if len(source) > _LONGEST_SOURCE:
            raise TemplateError(f"the template has {len(source)} characters", hint="is it a template at all?")
        template = safely(lambda: self.from_string(source))

        def render(variables: dict[str, Any]) -> str:
            self._spent.rounds, self._spent.until = 0, time.monotonic() + MOST_SECONDS
            self._spent.most = LEAST_ROUNDS + ROUNDS_PER_MESSAGE * len(variables["messages"])
            return safely(lambda: self.concat(template.root_render_func(template.new_context(variables))))

        return render

    def has_generation(self, source: str) -> bool:
        """Whether a template marks what the assistant generates."""
        return any(
            isinstance(call.node, nodes.ExtensionAttribute) and call.node.identifier == _Generation.identifier
            for call in self.parse(source).find_all(nodes.Call)
        )

    def tick(self) -> None:
        """One more round of a loop, or call of a macro."""
        self._spent.rounds += 1
        if self._spent.rounds > self._spent.most or (
            self._spent.rounds % 1024 == 0 and time.monotonic() > self._spent.until
        ):
            raise EndlessTemplate("the template loops without end", hint="do not trust it, or render shorter rows")

    def concat(self, parts: Iterable[str]) -> str:
        """Join what a template or a macro writes."""
        size, kept = 0, []
        for part in parts:
            size += len(part)
            bounded(size)
            kept.append(part)
        return joined(kept)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Do not let a value grow without end, as no loop is needed for that."""
        if operator == "+":
            bounded(_length(left) + _length(right))
        if operator == "*":
            bounded(max(_repeated(left, right), _repeated(right, left)))
        if operator == "**" and max(abs(left), abs(right)) > _WIDEST:
            raise SecurityError("it counts too far")
        if operator == "%" and isinstance(left, str):
            _narrow(left)
            _light(right)
            return _lose(left % right) if _is_traced(left, right) else left % right
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - as in jinja2
        """Trace texts through the methods of `str`, and refuse calls that make giant texts."""
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str) and name in _METHODS:
            wide = name in _PADDING and args and isinstance(args[0], int) and args[0] > _WIDEST
            if wide or name in ("expandtabs", "translate"):
                raise SecurityError(f"{name}{args}")
            if type(owner) is str and not name.startswith("format"):
                __obj = getattr(Traced(owner), name)
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Formatting mixes texts of template and data: the result cannot be followed."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def formatted(*args: Any, **kwargs: Any) -> str:
            _narrow(value.__self__)
            _light([*args, *kwargs.values()])
            text = str.__str__(wrapped(*args, **kwargs))
            return _lose(text) if _is_traced(value.__self__, args, kwargs) else text

        return formatted

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        blocks: Iterable[Any] = source.find_all((nodes.For, nodes.Macro, nodes.CallBlock))
        for block in blocks:
            call = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None)
            block.body.insert(0, nodes.ExprStmt(call).set_lineno(block.lineno).set_environment(self))
        return super()._generate(source, *args, **kwargs)

    def _strftime_now(self, form: str) -> str:
        if self._date is None:
            raise TemplateError(
                "the template prints today's date", hint="give a date, so that a rendering is the same every day"
            )
        return datetime(self._date.year, self._date.month, self._date.day).strftime(form)


class _Tracer(CodeGenerator):
    """jinja's own compiler, but `a ~ b` joins traced texts."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 - as in jinja2
        """Write a call of our own join."""
        self.write("environment.concat(str(environment.finalize(part)) for part in (")
        for argument in node.nodes:
            self.visit(argument, frame)
            self.write(", ")
        self.write("))")


Sandbox.code_generator_class = _Tracer


class _Generation(Extension):
    """`{% generation %} … {% endgeneration %}`: what the assistant generates."""

    tags = {"generation"}  # noqa: RUF012 - as in jinja2

    def parse(self, parser: Parser) -> nodes.Node:
        """Turn the block into a call that marks its text."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

    def _marked(self, caller: Callable[[], str]) -> str:
        text = caller()
        return Traced(text, [TracedSpan(0, len(text), GENERATION), *spans_of(text)])


class _Namespace(Namespace):
    """A namespace without hidden names."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        for name in dict(*args[1:], **kwargs):
            _check_name(name)
        Namespace.__init__(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: str) -> None:
    if name.startswith("_"):
        raise SecurityError(f"a namespace has no room for {name!r}")


def _raise(message: str) -> None:
    raise JinjaError(str(message))


def _length(value: Any) -> int:
    """How much a value holds, in characters; a place in a list takes as much as some of them."""
    if isinstance(value, list | tuple):
        return 16 * len(value)
    return len(value) if isinstance(value, str) else 0


def _repeated(sequence: Any, times: Any) -> int:
    return _length(sequence) * times if isinstance(times, int) else 0


def _filters() -> dict[str, Any]:
    """All filters by name; without those that make giant texts or are not deterministic."""
    known = {name: _tracing(name, each) for name, each in FILTERS.items() if name not in _LEFT_OUT}
    return known | {"tojson": _tojson, "join": _join, "replace": _replace, "format": _format, "indent": _indent}


def _light(value: Any) -> Any:
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


def _narrow(form: str) -> None:
    """Refuse a format that pads to a giant width."""
    if _WIDE.search(form):
        raise SecurityError("a format with a giant width")


def _is_traced(*values: Any) -> bool:
    """Whether there is text of the data in any of the values."""
    return bool(spans_of(made_of("any", *values)))


def _lose(text: str) -> str:
    """Mark a text whose parts cannot be told apart."""
    return Traced(text, [TracedSpan(0, len(text), LOST)])


def _tracing(name: str, filter: Any) -> Any:
    """A filter of jinja whose text is marked, if it was made of marked ones."""

    @functools.wraps(filter)
    def traced(*args: Any, **kwargs: Any) -> Any:
        if name not in _PASSING:
            _light(args)
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
    if isinstance(indent, int) and indent > _WIDEST:
        raise SecurityError(f"tojson(indent={indent})")
    text = json.dumps(
        _light(value), ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return made_of(text, value)


@pass_environment
def _join(environment: Any, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    each = value if attribute is None else map(make_attrgetter(environment, attribute), value)
    return Traced(d, spans_of(d)).join(map(str, map(_light, each)))


def _replace(value: Any, old: str, new: str, count: int = -1) -> str:
    text = str(value)
    return Traced(text, spans_of(text)).replace(old, new, count)


def _format(value: Any, *args: Any, **kwargs: Any) -> str:
    _narrow(str(value))
    _light([*args, *kwargs.values()])
    text = str.__mod__(str.__str__(value), kwargs or args)
    return _lose(text) if _is_traced(value, args, kwargs) else text


def _indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:  # noqa: FBT001, FBT002
    text = str(value)
    bounded(len(text) + (text.count("\n") + 1) * (width if isinstance(width, int) else len(width)))
    return made_of(do_indent(text, width, first, blank), value)
