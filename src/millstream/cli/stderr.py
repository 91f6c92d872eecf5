"""What the command writes to stderr beside progress: errors, warnings and notes, each once; for machines as JSON."""

from __future__ import annotations

import json
import logging
import re
import sys
import warnings
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

from millstream.errors import LossWarning, WaitWarning

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


@dataclass(slots=True)
class _MessageStyle:
    """How messages are written: `quiet` prints errors alone, `machine` prints JSON."""

    quiet: bool = False
    machine: bool = False
    printed: set[str] = field(default_factory=set)


_style = _MessageStyle()


def say(kind: str, text: str, hint: str | None = None, **more: Any) -> None:
    """Write a message to stderr. Each note and warning is written once, and not at all if quiet."""
    if kind != "error" and (_style.quiet or text in _style.printed):
        return
    _style.printed.add(text)
    if _style.machine:
        print(json.dumps({kind: text, **({"hint": hint} if hint else {}), **more}), file=sys.stderr, flush=True)
        return
    print(text if kind == "note" else f"{kind}: {text}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    sys.stderr.flush()


@contextmanager
def message_style(*, quiet: bool = False, machine: bool = False, verbose: int = 0) -> Iterator[None]:
    """Set the style of messages, logs and warnings until the block ends; -v overrides -q for logs."""
    before = _style.quiet, _style.machine, _style.printed
    _style.quiet, _style.machine, _style.printed = quiet, machine, set()
    handler, logger = _MessageHandler(), logging.getLogger("millstream")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR if quiet and not verbose else _LEVELS[min(verbose, 2)])
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        _style.quiet, _style.machine, _style.printed = before


class _MessageHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Write a logged warning or error as a message; anything below, shown by -v alone, with its logger."""
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            say("error" if record.levelno >= logging.ERROR else "warning", text)
        elif _style.machine:
            print(json.dumps({"log": text, "of": record.name}), file=sys.stderr, flush=True)
        else:
            print(f"{record.levelname} {record.name}: {text}", file=sys.stderr, flush=True)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning of ours is about the data, so the line of code that raised it is left out."""
    where = "" if issubclass(category, LossWarning | WaitWarning) else f"{filename}:{lineno}: {category.__name__}: "
    say("warning", f"{where}{message}")


def in_flags(hint: str, options: Container[str]) -> str:
    """Rewrite a hint that names Python's arguments with the flags of this verb, as far as it has them.

    >>> in_flags('pass on_bad="skip", overwrite=True or dtype=; or tail="pad"', {"on_bad", "overwrite", "dtype"})
    'pass --on-bad skip, --overwrite or --dtype; or tail="pad"'
    >>> in_flags('columns={"messages": "dialog"}, or columns={"text": None}', {"columns"})
    '--columns messages=dialog, or --columns text='
    >>> in_flags("check_template=False, or pass roles={…} to add names", {"check_template", "roles"})
    '--no-check-template, or pass --roles to add names'
    >>> in_flags("number_of(rollout_id) finds one; ask loader.explain(step) in Python", {"rollout_id", "step"})
    '--rollout-id finds one; ask loader.explain(step) in Python'
    """

    def plain(value: str) -> str:
        """A value as a flag takes it: `{"messages": "dialog"}` is messages=dialog, and nothing is nothing."""
        if value.startswith("{"):
            return value.strip("{}").replace(": ", "=").replace('"', "").replace("=None", "=")
        return "none" if value == "None" else value.strip("\"'")

    def flag(match: re.Match[str]) -> str:
        name, value = match["name"], plain(match["value"] or "")
        if name not in options:
            return match[0]
        if value == "False":
            return f"--no-{name.replace('_', '-')}"
        return f"--{name.replace('_', '-')}" + (f" {value}" if value not in ("", "True", "…") else "")

    value = r"""\{…\}|\{"\w+": (?:"\w+"|None)\}|"[^"]*"|'[^']*'|[\w.]+"""
    asked = r"(?<![.\w])[a-z_]+\((?P<name>[a-z_]+)\)(?P<value>)"  # a call whose one argument is a flag
    hint = re.sub(asked, flag, hint)
    return re.sub(rf"\b(?P<name>[a-z_]+)=(?P<value>{value})?", flag, hint)
