"""Numbers and small pictures for people: counts, sizes, histograms and sparklines as text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

_BARS = "▁▂▃▄▅▆▇█"


def count(number: float) -> str:
    """A count that can be read at a glance.

    >>> count(950), count(12_345), count(4_160_081), count(2.5e9)
    ('950', '12,345', '4.16 M', '2.50 G')
    """
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(number) >= size:
            return f"{number / size:.2f} {letter}"
    return f"{number:,.0f}"


def counted(number: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "file"), counted(1200, "file")
    ('1 file', '1,200 files')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(number: float) -> str:
    """A number of bytes.

    >>> size(999), size(12_600_805), size(3.2e9)
    ('999 B', '12.6 MB', '3.2 GB')
    """
    for unit, letter in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(number) >= unit:
            return f"{number / unit:.1f} {letter}"
    return f"{number:.0f} B"


def duration(seconds: float) -> str:
    """A time span.

    >>> duration(0.0004), duration(0.5), duration(12.3), duration(200), duration(7300)
    ('0.4 ms', '500 ms', '12.3 s', '3 min 20 s', '2 h 1 min')
    """
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"


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
    most = max(bins.values())
    lines = []
    for power in range(min(bins), max(bins) + 1):
        low, high = (0, 0) if power == 0 else (1 << (power - 1), (1 << power) - 1)
        label = f"{low:,}" if low == high else f"{low:,}-{high:,}"
        here = bins.get(power, 0)
        lines.append((label, "█" * math.ceil(here / most * width), here))
    room = max(5, *(len(label) for label, _, _ in lines))
    return "\n".join(f" {label:>{room}}  {bar} {here:,}" for label, bar, here in lines)


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
    flat = "".join(letter if letter.isprintable() else "·" for letter in flat)
    return flat if len(flat) <= width else flat[: width - 1] + "…"
