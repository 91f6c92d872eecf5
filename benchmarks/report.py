"""Samples -> rows with ratios -> a table on the terminal, a Markdown file and a JSON file.

Every ratio is taken inside one round, against the limit and the contestants of that same round; the table
shows the median of those ratios. So a machine that was slow for a while slows both sides.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from contestants import Entry, Kind
from machine import one_line
from measure import Sample

Shape = tuple[int, int]
Outcome = Sample | str  # a string is the error, in one line
Results = dict[Shape, dict[str, list[Outcome]]]  # outcomes in the order of the rounds

COLUMNS = (
    "contestant",
    "Mtok/s",
    "low - high",
    "x limit",
    "x best peer",
    "CPU s/1e9",
    "CPU x limit",
    "p50 us",
    "p99 us",
    "private MB",
    "first s",
)


@dataclass(frozen=True)
class Row:
    """One line of the table: medians over the rounds."""

    name: str
    kind: str
    note: str
    error: str = ""
    rounds: int = 0
    mtokens_per_s: float = 0.0
    low: float = 0.0
    high: float = 0.0
    of_limit: float = 0.0
    of_best_peer: float = 0.0
    cpu_s_per_gtoken: float = 0.0
    cpu_of_limit: float = 0.0
    p50_us: float = 0.0
    p99_us: float = 0.0
    private_mb: float = 0.0
    first_batch_s: float = 0.0

    def cells(self) -> list[str]:
        """Give the row as text, in the order of COLUMNS."""
        if self.error:
            return [self.name, self.error] + [""] * (len(COLUMNS) - 2)
        return [
            self.name,
            _short(self.mtokens_per_s),
            f"{_short(self.low)} - {_short(self.high)}",
            _short(self.of_limit),
            _short(self.of_best_peer),
            _short(self.cpu_s_per_gtoken),
            _short(self.cpu_of_limit),
            _short(self.p50_us),
            _short(self.p99_us),
            f"{self.private_mb:.0f}",
            f"{self.first_batch_s:.2f}",
        ]


def _short(value: float) -> str:
    """Give three digits or so: 0.0123, 1.23, 12.3, 123, 1234."""
    if value == 0:
        return ""
    return f"{value:.{max(0, min(4, 2 - math.floor(math.log10(abs(value)))))}f}"


def _paired(ours: Iterable[Outcome], theirs: Iterable[Outcome], value: Callable[[Sample], float]) -> float:
    """Give the median over the rounds of ours / theirs, or 0 where no round has both."""
    ratios = [
        value(one) / value(other)
        for one, other in zip(ours, theirs, strict=False)
        if isinstance(one, Sample) and isinstance(other, Sample)
    ]
    return median(ratios) if ratios else 0.0


def _median(outcomes: Iterable[Outcome], value: Callable[[Sample], float]) -> float:
    return median([value(outcome) for outcome in outcomes if isinstance(outcome, Sample)] or [0.0])


def _rate(sample: Sample) -> float:
    return sample.mtokens_per_s


def _cpu(sample: Sample) -> float:
    return sample.cpu_s_per_gtoken


def fastest(kind: Kind, entries: Iterable[Entry], results: Mapping[str, list[Outcome]]) -> str:
    """Name the contestant of this kind with the highest median rate, or "" when none ran."""
    rates = {
        entry.name: _median(results[entry.name], _rate)
        for entry in entries
        if entry.kind is kind and entry.name in results
    }
    name = max(rates, key=lambda name: rates[name], default="")
    return name if name and rates[name] else ""


def rows(entries: Iterable[Entry], results: Mapping[str, list[Outcome]]) -> list[Row]:
    """Make the rows of one shape's table."""
    entries = [entry for entry in entries if entry.name in results]
    limit = results.get("limit", [])
    peer = results.get(fastest(Kind.PEER, entries, results), [])
    made = []
    for entry in entries:
        outcomes = results[entry.name]
        good = [outcome for outcome in outcomes if isinstance(outcome, Sample)]
        if not good:
            made.append(Row(entry.name, entry.kind.value, entry.note, error=str(outcomes[-1])))
            continue
        rates = [sample.mtokens_per_s for sample in good]
        failed = len(outcomes) - len(good)
        made.append(
            Row(
                entry.name,
                entry.kind.value,
                entry.note + (f" ({failed} of {len(outcomes)} rounds failed)" if failed else ""),
                rounds=len(good),
                mtokens_per_s=median(rates),
                low=min(rates),
                high=max(rates),
                of_limit=_paired(outcomes, limit, _rate),
                of_best_peer=_paired(outcomes, peer, _rate),
                cpu_s_per_gtoken=_median(outcomes, _cpu),
                cpu_of_limit=_paired(outcomes, limit, _cpu),
                p50_us=_median(outcomes, lambda sample: sample.p50_us),
                p99_us=_median(outcomes, lambda sample: sample.p99_us),
                private_mb=_median(outcomes, lambda sample: sample.private_mb),
                first_batch_s=_median(outcomes, lambda sample: sample.first_batch_s),
            )
        )
    return made


def verdict(entries: Iterable[Entry], results: Mapping[str, list[Outcome]]) -> str:
    """Say in one sentence where we stand, by rate and by CPU time."""
    entries = list(entries)
    ours = next((row for row in rows(entries, results) if row.kind == Kind.OURS.value), None)
    peer, bare = (fastest(kind, entries, results) for kind in (Kind.PEER, Kind.HAND))
    if ours is None or ours.error or not peer:
        return f"millstream: {ours.error if ours else 'not run'}. Best peer: {peer or 'none ran'}."
    mine = results[ours.name]
    peer_cpu = _paired(results[peer], mine, _cpu)
    said = (
        f"millstream: {ours.of_limit:.2f} of the limit at {ours.cpu_of_limit:.1f} x its CPU time; "
        f"{ours.of_best_peer:.1f} x the best peer ({peer}), which takes {peer_cpu:.1f} x our CPU time"
    )
    return said + (f"; {_paired(mine, results[bare], _rate):.2f} x {bare}, a bare loop." if bare else ".")


def markdown(entries: list[Entry], results: Results, facts: Mapping[str, str]) -> str:
    """Give the whole result as Markdown."""
    lines = ["# Loader benchmark", "", one_line(facts), ""]
    for (seq, batch), by_name in results.items():
        lines += [f"## {seq} x {batch}", "", verdict(entries, by_name), ""]
        lines += ["| " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * (len(COLUMNS) - 1)]
        lines += ["| " + " | ".join(row.cells()) + " |" for row in rows(entries, by_name)]
        lines.append("")
    lines += ["Notes:", ""] + [f"- {entry.name}: {entry.note}" for entry in entries if entry.note]
    lines += [
        "- x limit, x best peer: rate divided by theirs in the same round, median over the rounds.",
        "- CPU counts all threads and worker processes; private memory is anonymous and shared memory beyond",
        "  `import torch`, without the page cache; first: importing the library up to the first batch.",
    ]
    return "\n".join(lines) + "\n"


def save(folder: Path, name: str, entries: list[Entry], results: Results, facts: Mapping[str, str]) -> None:
    """Write `name`.md and `name`.json; the JSON also keeps every single sample."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(markdown(entries, results, facts))
    shapes = {
        f"{seq}x{batch}": {
            "rows": [asdict(row) for row in rows(entries, by_name)],
            "samples": {
                contestant: [outcome if isinstance(outcome, str) else asdict(outcome) for outcome in outcomes]
                for contestant, outcomes in by_name.items()
            },
        }
        for (seq, batch), by_name in results.items()
    }
    (folder / f"{name}.json").write_text(json.dumps({"facts": facts, "shapes": shapes}, indent=1) + "\n")


def show(entries: list[Entry], results: Results, facts: Mapping[str, str]) -> None:
    """Print the tables, in colour where rich is installed."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        print(markdown(entries, results, facts))
        return
    console = Console(width=160)
    for (seq, batch), by_name in results.items():
        table = Table(title=f"{seq} x {batch}", caption=verdict(entries, by_name), title_justify="left")
        for number, column in enumerate(COLUMNS):
            table.add_column(column, justify="right" if number else "left", no_wrap=number == 0)
        for row in rows(entries, by_name):
            style = {"ours": "bold green", "limit": "cyan"}.get(row.kind, "red" if row.error else "")
            table.add_row(*row.cells(), style=style)
        console.print(table)
    console.print(one_line(facts), style="dim")
