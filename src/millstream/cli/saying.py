"""What is said on stderr beside the data: errors, warnings and notes, each once; for machines as objects of JSON."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

from millstream.errors import LossWarning, WaitWarning

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


@dataclass(slots=True)
class _Voice:
    """How the command speaks: `quiet` says errors alone, `machine` says JSON."""

    quiet: bool = False
    machine: bool = False
    said: set[str] = field(default_factory=set)


_voice = _Voice()


def say(kind: str, text: str, hint: str | None = None, **more: Any) -> None:
    """Say something on stderr; what is no error, only once and not if quiet is asked for."""
    if kind != "error" and (_voice.quiet or text in _voice.said):
        return
    _voice.said.add(text)
    if _voice.machine:
        print(json.dumps({kind: text, **({"hint": hint} if hint else {}), **more}), file=sys.stderr, flush=True)
        return
    print(text if kind == "note" else f"{kind}: {text}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
    sys.stderr.flush()


@contextmanager
def speaking(*, quiet: bool = False, machine: bool = False, verbose: int = 0) -> Iterator[None]:
    """Speak like this until the block ends, also where the library logs or warns; -v is heard in spite of -q."""
    before = _voice.quiet, _voice.machine, _voice.said
    _voice.quiet, _voice.machine, _voice.said = quiet, machine, set()
    handler, logger = _Handler(), logging.getLogger("millstream")
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
        _voice.quiet, _voice.machine, _voice.said = before


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Say a warning or an error as one; what only -v shows, with the part of the library that says it."""
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            say("error" if record.levelno >= logging.ERROR else "warning", text)
        elif _voice.machine:
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
    """One of ours speaks of the data: the line of code that it came from is of no use here."""
    where = "" if issubclass(category, LossWarning | WaitWarning) else f"{filename}:{lineno}: {category.__name__}: "
    say("warning", f"{where}{message}")
