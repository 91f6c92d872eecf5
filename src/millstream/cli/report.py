"""The report of a run in the terminal: what its page shows, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millstream.cli import show
from millstream.parts import (
    Ranked,
    duplicates_by_step,
    examples_of,
    fates_of_records,
    how_it_was_made,
    length_bins,
    main_figures,
    ranked,
    rejected_by_rule,
    speed_over_time,
    steps_of_recipe,
    tokens_by_source,
    was_all_cached,
)

MOST_BARS = 12
BAR_LETTERS = 24
LABEL_LETTERS = 44


def show_report(report: Mapping[str, Any]) -> str:
    """Everything that a run counted; what did not happen is not mentioned."""
    blocks = [
        _run(report),
        _ranked("records", Ranked(fates_of_records(report), 0, 0)),
        _lengths(report),
        _pace(report),
        _ranked("tokens per source", tokens_by_source(report, MOST_BARS)),
        _dropped("rejected by rule", rejected_by_rule(report), report),
        _dropped("duplicates", duplicates_by_step(report), report),
        _ranked("bad records", ranked(report["bad"], MOST_BARS)),
        _ranked("skipped", ranked(report["skipped"], MOST_BARS)),
        _ranked("changed", ranked(report["changed"], MOST_BARS)),
        _recipe(report["recipe"]),
    ]
    return "\n\n".join(filter(None, blocks))


def _run(report: Mapping[str, Any]) -> str:
    numbers = [(name, f"{value}  ({remark})" if remark else value) for name, value, remark in main_figures(report)]
    cached = "everything was found in the cache: times are those of reading it" if was_all_cached(report) else ""
    made_with = [(name, show.one_line(value, 100)) for name, value in how_it_was_made(report)]
    return show.table([*numbers, *made_with, ("note", cached)])


def _lengths(report: Mapping[str, Any]) -> str:
    bins = length_bins(report["lengths"])
    return f"tokens per document:\n{show.bars([(show.bit_span(bits), n) for bits, n in bins])}" if bins else ""


def _pace(report: Mapping[str, Any]) -> str:
    speeds = speed_over_time(report["pace"])
    if not speeds:
        return ""
    least, most = show.size(min(speeds)), show.size(max(speeds))
    return f"speed over {show.duration(report['pace'][-1][0])}, {least}/s to {most}/s:\n {show.sparkline(speeds)}"


def _ranked(title: str, top: Ranked, below: Sequence[str] = ()) -> str:
    """Bars with a title; `below` has a line to put under each."""
    if not top.shown:
        return ""
    labels = [show.one_line(label, LABEL_LETTERS) for label, _ in top.shown]
    room = max(5, *map(len, labels))
    rows = [(f"{label:<{room}}", number) for label, (_, number) in zip(labels, top.shown, strict=True)]
    lines = [f"{title}:"]
    for place, bar in enumerate(show.bars(rows, BAR_LETTERS).splitlines()):
        share = show.share(top.shown[place][1], top.total)
        lines += [f"{bar}  {share}", *below[place : place + 1]]
    if top.others:
        lines.append(f" and {top.others:,} more with {top.others_sum:,}  {show.share(top.others_sum, top.total)}")
    return "\n".join(filter(None, lines))


def _dropped(title: str, counts: Mapping[str, int], report: Mapping[str, Any]) -> str:
    top = ranked(counts, MOST_BARS)
    return _ranked(title, top, [_example(examples_of(report, reason)) for reason, _ in top.shown])


def _example(examples: Sequence[Mapping[str, Any]]) -> str:
    if not examples:
        return ""
    origin = f"{show.one_line(examples[0]['file'], LABEL_LETTERS)}:{examples[0]['row']}"
    return f"     {origin}  {show.one_line(examples[0]['text'], 60)}"


def _recipe(steps: Sequence[Mapping[str, Any]]) -> str:
    if not steps:
        return ""
    rows = [
        (f" {place}  {show.one_line(name, LABEL_LETTERS)}", show.one_line(settings) or "-")
        for place, (name, settings) in enumerate(steps_of_recipe(steps), 1)
    ]
    return f"recipe:\n{show.table(rows)}"
