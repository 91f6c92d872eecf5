"""Numbers -> small pictures: inline SVG that takes its colours from the page and its width from the screen.

Places along the width are percentages and letters keep their size, so a plot reads the same on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from millstream.stats import bit_span, count, duration, share, size

HEIGHT = 200
_TOP, _BOTTOM = 22, 26
_FLOOR = HEIGHT - _BOTTOM
_LEAST_COLUMNS, _MOST_TICKS = 8, 9


def bar(part: float, whole: float) -> str:
    """A bar as long as its part of the whole, but never too short to see. The number stands beside it as text.

    >>> bar(1, 4)
    '<svg class="bar" aria-hidden="true"><rect width="25.00%" height="100%" rx="3"/></svg>'
    """
    width = max(0.5, 100 * part / whole) if part else 0.0
    return f'<svg class="bar" aria-hidden="true"><rect width="{width:.2f}%" height="100%" rx="3"/></svg>'


def stacked(parts: Sequence[tuple[str, int]]) -> str:
    """One bar cut into named parts; the name of a part is also its class."""
    whole = sum(number for _, number in parts) or 1
    cut, begin = [], 0.0
    for name, number in parts:
        width = 100 * number / whole
        said = f"{name}: {number:,} ({share(number, whole)})"
        cut.append(
            f'<rect class="{escape(name)}" x="{begin:.3f}%" width="{width:.3f}%" height="100%">'
            f"<title>{escape(said)}</title></rect>"
        )
        begin += width
    label = ", ".join(f"{number:,} {name}" for name, number in parts)
    return _svg("stacked", f"What became of all records: {label}", "".join(cut), height=30)


def histogram(bins: Sequence[tuple[int, int]]) -> str:
    """Documents by the number of bits of their length."""
    most, whole = max(documents for _, documents in bins), sum(documents for _, documents in bins)
    bins = _widened(bins)
    step = 100 / len(bins)
    drawn = [_grid(most, count)]
    for place, (bits, documents) in enumerate(bins):
        top = _height(documents, most)
        said = f"{bit_span(bits)} tokens: {documents:,} documents ({share(documents, whole)})"
        drawn.append(
            f'<rect class="column" x="{place * step + step * 0.06:.3f}%" y="{top:.1f}" width="{step * 0.88:.3f}%" '
            f'height="{_FLOOR - top:.1f}" rx="2"><title>{said}</title></rect>'
        )
    every = -(-len(bins) // _MOST_TICKS)
    drawn += [_tick((place + 0.5) * step, _power(bins[place][0])) for place in range(0, len(bins), every)]
    fullest = max(bins, key=lambda each: each[1])[0]
    label = f"Histogram of document lengths: {whole:,} documents, most of them with {bit_span(fullest)} tokens"
    return _svg("plot", label, "".join(drawn))


def _widened(bins: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Empty bins on both sides of a few, so that a column looks like one.

    >>> _widened([(7, 2), (8, 1)])
    [(4, 0), (5, 0), (6, 0), (7, 2), (8, 1), (9, 0), (10, 0), (11, 0)]
    """
    missing = max(0, _LEAST_COLUMNS - len(bins))
    before = min(missing // 2, bins[0][0])
    first, last = bins[0][0] - before, bins[-1][0] + missing - before
    known = dict(bins)
    return [(bits, known.get(bits, 0)) for bits in range(first, last + 1)]


def curve(speeds: Sequence[float], seconds: float) -> str:
    """Bytes per second over time, and their mean."""
    most, mean = max(speeds) or 1.0, sum(speeds) / len(speeds)
    step = 100 / len(speeds)
    heights = [_height(speed, most) for speed in speeds]
    steps = " ".join(f"L{place * step:.2f} {y:.1f}L{(place + 1) * step:.2f} {y:.1f}" for place, y in enumerate(heights))
    shape = (
        f'<svg viewBox="0 0 100 {HEIGHT}" preserveAspectRatio="none" width="100%" height="{HEIGHT}">'
        f'<path class="area" d="M0 {_FLOOR}{steps}L100 {_FLOOR}Z"/><path class="line" d="M{steps[1:]}"/></svg>'
    )
    middle = _height(mean, most)
    average = f'<line class="mean" x1="0" x2="100%" y1="{middle:.1f}" y2="{middle:.1f}"/>'
    hover = [
        f'<rect class="hover" x="{place * step:.2f}%" width="{step:.2f}%" y="{_TOP}" height="{_FLOOR - _TOP}">'
        f"<title>{duration(seconds * place / len(speeds))}: {size(speed)}/s</title></rect>"
        for place, speed in enumerate(speeds)
    ]
    ticks = [_tick(0, "0 s"), _tick(50, duration(seconds / 2)), _tick(100, duration(seconds))]
    label = f"Speed over time: {size(mean)}/s on average, between {size(min(speeds))}/s and {size(most)}/s"
    grid = _grid(most, lambda speed: f"{size(speed)}/s")
    return _svg("plot curve", label, shape + grid + average + "".join(ticks) + "".join(hover))


def _svg(kind: str, label: str, content: str, height: int = HEIGHT) -> str:
    said = escape(label)
    return (
        f'<svg class="{kind}" role="img" aria-label="{said}" width="100%" height="{height}">'
        f"<title>{said}</title>{content}</svg>"
    )


def _height(number: float, most: float) -> float:
    """Where a column ends; something is never drawn as nothing."""
    tall = (_FLOOR - _TOP) * number / most
    return _FLOOR - (max(tall, 1.5) if number else 0.0)


def _grid(most: float, written: Callable[[float], str]) -> str:
    """Lines at round numbers, which stand to the left of the plot."""
    step = max(1.0, _round_step(most))
    lines = [f'<line class="floor" x1="0" x2="100%" y1="{_FLOOR}" y2="{_FLOOR}"/>']
    for place in range(1, int(most / step + 1e-9) + 1):
        y = _height(place * step, most)
        lines.append(
            f'<line class="grid" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="level" x="-8" y="{y:.1f}" dy="4">{_short(written(place * step))}</text>'
        )
    return "".join(lines)


def _round_step(most: float) -> float:
    """A round number that goes into another two to four times.

    The logarithm of a number just below a power of ten rounds up to it, so half of that power is tried too.

    >>> [_round_step(most) for most in (1, 7, 10, 450, 1e6, 199.99999999999997)]
    [0.5, 2.0, 5.0, 200.0, 500000.0, 50.0]
    """
    power = 10.0 ** math.floor(math.log10(most / 2))
    return max(factor * power for factor in (0.5, 1, 2, 5) if factor * power <= most / 2)


def _short(number: str) -> str:
    """A number with its unit, without zeros that say nothing.

    >>> _short("150.0 MB/s"), _short("2.50 M"), _short("500")
    ('150 MB/s', '2.5 M', '500')
    """
    digits, space, unit = number.partition(" ")
    return (digits.rstrip("0").rstrip(".") if "." in digits else digits) + space + unit


def _tick(place: float, text: str) -> str:
    anchor = "start" if place < 1 else "end" if place > 99 else "middle"
    return f'<text class="tick" x="{place:.2f}%" y="{HEIGHT - 8}" text-anchor="{anchor}">{text}</text>'


def _power(bits: int) -> str:
    """The least number with so many bits, in as few letters as possible.

    >>> [_power(bits) for bits in (0, 1, 5, 11, 21, 32)]
    ['0', '1', '16', '1k', '1M', '2G']
    """
    low = (1 << bits) >> 1
    for letter, unit in (("T", 40), ("G", 30), ("M", 20), ("k", 10)):
        if low >= 1 << unit:
            return f"{low >> unit}{letter}"
    return str(low)
