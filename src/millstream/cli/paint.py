"""Styled text on the terminal: in colour where `rich` and a terminal are at hand, else plain."""

from __future__ import annotations

import sys

from millstream.stats import Shown

_COLOURS = {
    "heading": "bold",
    "note": "dim cyan",
    "plain": "",
    "trained": "green",
    "much better": "bold green",
    "better": "green",
    "neutral": "cyan",
    "worse": "red",
    "much worse": "bold red",
    "error": "bold red",
    "warning": "yellow",
}


def print_shown(shown: Shown) -> None:
    """Print it; a pipe, a dumb terminal and NO_COLOR get the text alone, which says the same."""
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        print(shown, end="")
        return
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    if not console.is_terminal or console.color_system is None or console.no_color:
        print(shown, end="")
        return
    console.print(Text.assemble(*((part.text, _COLOURS[part.style]) for part in shown.parts)), end="")
