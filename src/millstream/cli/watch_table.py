"""The numbers of a running pipeline as two tables, in a terminal that is drawn over or as text that is written on."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from millstream.stages import filling
from millstream.stats import count, duration, visible

_CELLS = 10
Statistics = Mapping[str, Any]


class Table(NamedTuple):
    """Words in rows; the first row names the columns."""

    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in self.rows
        )


def stage_table(statistics: Statistics) -> Table:
    """One row per stage: how busy it is, how fast, what it drops, what else it says."""
    rows = [("stage", "busy", "in/s", "out/s", "dropped", "gauges")]
    for name, stage in statistics["stages"].items():
        last, counters = stage["last"], stage["counters"]
        drops = ", ".join(f"{reason} {count(number)}" for reason, number in sorted(counters["drops"].items()))
        gauges = ", ".join(_gauges(counters["gauges"]))
        words = (name, bar(last["busy"]), rate(last["in_per_s"]), rate(last["out_per_s"]), drops, gauges)
        rows.append(tuple(map(visible, words)))  # type: ignore[arg-type]
    return Table(rows)


def queue_table(statistics: Statistics) -> Table:
    """One row per queue: how full it is, how fast items leave it, how many did, how many were dropped."""
    rows = [("queue", "fill", "items/s", "items", "dropped")]
    for name, queue in statistics["queues"].items():
        last, counters = queue["last"], queue["counters"]
        dropped = count(counters["dropped"]) if counters["dropped"] else ""
        full = f"{bar(last['fill'])} of {counters['capacity']}"
        rows.append((visible(name), full, rate(last["got_per_s"]), count(counters["got"]), dropped))
    return Table(rows)


def headline(statistics: Statistics) -> str:
    """How long it has run, and below that which stages have to be filled before anything comes."""
    gauges = {visible(name): stage["counters"]["gauges"] for name, stage in statistics["stages"].items()}
    said = f"after {duration(statistics['seconds'])}, over the last {duration(statistics['window_s'])}"
    return "\n".join([said, *filling(gauges)])


def bar(share: float) -> str:
    """A share as a bar and in percent.

    >>> bar(0.42)
    '████░░░░░░  42 %'
    """
    share = min(1.0, max(0.0, share))
    filled = round(share * _CELLS)
    return f"{'█' * filled}{'░' * (_CELLS - filled)} {share:>4.0%}".replace("%", " %")


def rate(per_s: float) -> str:
    """A rate, with more places the slower it is.

    >>> rate(0), rate(0.0123), rate(3.14), rate(12345.6)
    ('0', '0.0123', '3.14', '12,346')
    """
    return count(per_s) if per_s >= 100 or per_s == 0 else f"{per_s:.3g}"


def _gauges(gauges: Mapping[str, float]) -> Iterator[str]:
    """Each with its number; what has a capacity, with how full it is.

    >>> list(_gauges({"frames": 56000, "capacity": 131072, "open": 2}))
    ['frames 43 % of 131,072', 'open 2']
    """
    full_of = gauges.get("capacity")
    for place, (name, number) in enumerate(gauges.items()):
        if full_of and place == 0:
            yield f"{name} {number / full_of:.0%} of {count(full_of)}".replace("%", " %")
        elif name != "capacity":
            yield f"{name} {_gauge(number)}"


def _gauge(number: float) -> str:
    return count(number) if abs(number) >= 100 else f"{number:g}"


class TextTables:
    """Writes the tables one below the other."""

    every_s = 5.0

    def show(self, statistics: Statistics) -> None:
        """Write the numbers of now."""
        print(f"{headline(statistics)}\n{stage_table(statistics)}\n\n{queue_table(statistics)}\n", flush=True)

    def close(self) -> None:
        """Nothing to give back."""


class LiveTables(TextTables):
    """Draws the tables over what was drawn before."""

    every_s = 0.5

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(highlight=False), auto_refresh=False)
        self._live.start()

    def show(self, statistics: Statistics) -> None:
        """Draw the numbers of now."""
        from rich.console import Group
        from rich.table import Table as RichTable
        from rich.text import Text

        def drawn(table: Table) -> RichTable:
            made = RichTable(box=None, pad_edge=False)
            for name in table.rows[0]:
                made.add_column(name, justify="right" if name.endswith("s") and "/" in name else "left")
            for row in table.rows[1:]:
                made.add_row(*(Text(cell, style=_colour(cell)) for cell in row))
            return made

        stages, queues = stage_table(statistics), queue_table(statistics)
        self._live.update(Group(Text(headline(statistics), "dim"), drawn(stages), Text(), drawn(queues)), refresh=True)

    def close(self) -> None:
        """Give the terminal back."""
        self._live.stop()


def _colour(cell: str) -> str:
    """Bars are green; a full one is what to look at."""
    return "" if not cell.startswith(("█", "░")) else "yellow" if cell.startswith("█" * 9) else "green"


def tables() -> TextTables:
    """Drawn over if stdout is a terminal and `rich` is there, else written."""
    if not sys.stdout.isatty():
        return TextTables()
    try:
        return LiveTables()
    except ImportError:
        return TextTables()
