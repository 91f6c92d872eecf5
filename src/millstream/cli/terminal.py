"""Text for the terminal: tables, bars, curves and styled text, and the answer for machines as JSON."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from millstream.stats import Shown, bit_span, visible

_BARS = "▁▂▃▄▅▆▇█"
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


def print_json(facts: object) -> None:
    """The answer for machines: one line of JSON."""
    print(json.dumps(facts, default=str))


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Names on the left, values on the right; rows without a value are left out.

    >>> print(table([("tokens", "12"), ("documents", "3"), ("left out", "")]))
    tokens     12
    documents  3
    """
    kept = [(name, value) for name, value in rows if value]
    width = max((len(name) for name, _ in kept), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in kept)


def histogram(lengths: Sequence[int], width: int = 40) -> str:
    """How many documents have which length, in steps of powers of two.

    >>> print(histogram([1, 2, 3, 3, 9], width=8))
         1  ███ 1
       2-3  ████████ 3
       4-7   0
      8-15  ███ 1
    """
    bins: dict[int, int] = {}
    for length in lengths:
        power = max(int(length), 0).bit_length()
        bins[power] = bins.get(power, 0) + 1
    if not bins:
        return ""
    rows = [(bit_span(power), bins.get(power, 0)) for power in range(min(bins), max(bins) + 1)]
    return bars(rows, width)


def bars(rows: Sequence[tuple[str, int]], width: int = 40) -> str:
    """A bar for each number; as long as the room allows for the largest.

    >>> print(bars([("poems", 4), ("prose", 1)], width=8))
     poems  ████████ 4
     prose  ██ 1
    """
    most = max((number for _, number in rows), default=0) or 1
    room = max(5, *(len(label) for label, _ in rows)) if rows else 0
    return "\n".join(f" {label:>{room}}  {'█' * math.ceil(number / most * width)} {number:,}" for label, number in rows)


def spread(values: Sequence[float], bins: int = 10, width: int = 40) -> str:
    """How many of some numbers are which, or if there are many different ones, lie where.

    >>> print(spread([0.0, 1.0, 1.0], width=8))
         0  ████ 1
         1  ████████ 2
    >>> print(spread([0, 1, 2, 3, 4, 9], bins=2, width=8))
     0 to 4.5  ████████ 5
     4.5 to 9  ██ 1
    """
    different = sorted(set(values))
    if len(different) <= bins or not math.isfinite(different[-1] - different[0]):
        return bars([(f"{value:g}", values.count(value)) for value in different], width)
    low, step = different[0], (different[-1] - different[0]) / bins
    counts = Counter(min(int((value - low) / step), bins - 1) for value in values)
    return bars([(f"{low + n * step:.3g} to {low + (n + 1) * step:.3g}", counts[n]) for n in range(bins)], width)


_PASSED_OVER = {
    "broken link": "{} broken link{s}",
    "excluded": "{} file{s} by --exclude",
    "folder reached twice": "{} folder{s} reached twice",
    "hidden": "{} hidden file{s}",
    "hidden folder": "{} hidden folder{s}",
    "json, and not named": "{} .json file{s} (in folders most are settings: --include '*.json' takes them)",
    "made by prepare": "{} file{s} made by prepare",
    "not a regular file": "{} file{s} of no regular kind",
    "not included": "{} file{s} not named by --include",
    "store": "{} store{s}",
    "unknown kind": "{} file{s} of unknown kind (--format says what they are)",
}
"""Reasons that are about whole files and folders, in words."""


def left_out(reasons: Mapping[str, int]) -> str:
    """What is not in a store: records by their reasons, then files.

    >>> left_out({"json, and not named": 4, "not JSON": 1, "hidden": 1})
    "1 not JSON, 1 hidden file, 4 .json files (in folders most are settings: --include '*.json' takes them)"
    """
    parts = [f"{number:,} {reason}" for reason, number in reasons.items() if reason not in _PASSED_OVER]
    for reason, words in _PASSED_OVER.items():
        number = reasons.get(reason, 0)
        parts += [words.format(f"{number:,}", s="" if number == 1 else "s")] if number else []
    return ", ".join(parts)


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """A curve in one line: the mean of each stretch, from the lowest to the highest.

    >>> sparkline([8, 7, 6, 5, 4, 3, 2, 1])
    '█▇▆▅▄▃▂▁'
    """
    if not len(values):
        return ""
    cuts = [round(place * len(values) / min(width, len(values))) for place in range(min(width, len(values)) + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low, high = min(means), max(means)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((mean - low) * scale)] for mean in means)


def one_line(text: str, width: int = 72) -> str:
    """A text cut to one line.

    >>> one_line("the mill\\n  by the stream", width=14)
    'the mill↵  by…'
    """
    flat = text.replace("\r\n", "\n").replace("\n", "↵").replace("\t", " ")
    flat = visible(flat)
    return flat if len(flat) <= width else flat[: width - 1] + "…"


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
