"""The report as one self-contained page: no script, nothing from the network, every text of the data escaped.

Its size is bounded, whatever the report holds: long lists are ranked and cut, with a count of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from millstream.preparation import plots, report_figures
from millstream.stats import bit_span, counted, duration, share, size, visible

MOST_BARS = 20
MOST_ROWS = 500
MOST_STEPS = 40
PATH_LETTERS = 100
REASON_LETTERS = 120
STEP_LETTERS = 300
EXAMPLE_LETTERS = 1_000
ALL_EXAMPLES_LETTERS = 25_000


def render(report: Mapping[str, Any], name: str) -> str:
    """Draw the page."""
    sections = [
        _fates(report),
        _lengths(report),
        _pace(report),
        _sources(report),
        _dropped("rejected", "Rejected by rule", report_figures.rejected_by_rule(report), report),
        _dropped("duplicates", "Duplicates", report_figures.duplicates_by_step(report), report),
        _others(report),
        _recipe(report["recipe"]),
        _source_table(report["sources"]),
    ]
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{_text(name)} · millstream report</title>
<style>
{style}</style>
</head>
<body>
{_header(report, name)}
<main>
{"".join(filter(None, sections))}</main>
<footer>For machines: the JSON file beside this page. In the terminal: millstream inspect.</footer>
</body>
</html>
"""


def _header(report: Mapping[str, Any], name: str) -> str:
    tiles = "".join(
        f'<div><dt>{title}</dt><dd class="value">{value}</dd><dd class="remark">{remark}</dd></div>\n'
        for title, value, remark in report_figures.main_figures(report)
    )
    rows = "".join(
        f"<dt>{title}</dt><dd>{_text(value)}</dd>\n" for title, value in report_figures.how_it_was_made(report)
    )
    cached = '<p class="note">Everything was found in the cache: times and speeds are those of reading it.</p>'
    return f"""<header>
<p class="eyebrow">Millstream report</p>
<h1>{_text(name)}</h1>
<dl class="tiles">
{tiles}</dl>
<dl class="particulars">
{rows}</dl>
{cached if report_figures.was_all_cached(report) else ""}
</header>"""


def _fates(report: Mapping[str, Any]) -> str:
    fates = report_figures.fates_of_records(report)
    whole = sum(number for _, number in fates)
    legend = "".join(
        f'<li><i class="{fate}"></i>{fate} <b>{number:,}</b> <span class="soft">{share(number, whole)}</span></li>'
        for fate, number in fates
    )
    about = "Nothing was left out." if len(fates) == 1 else f"{counted(whole, 'record')} in all."
    return _section("What became of the records", about, f'{plots.stacked(fates)}<ul class="legend">{legend}</ul>')


def _lengths(report: Mapping[str, Any]) -> str:
    bins = report_figures.length_bins(report["lengths"])
    if not bins:
        return _section("Document lengths", "There are no documents.", "")
    whole = sum(documents for _, documents in bins)
    rows = [[bit_span(bits), f"{documents:,}", share(documents, whole)] for bits, documents in bins]
    table = _table("Documents by length", ["tokens", "documents", "share"], rows)
    content = f"{plots.histogram(bins)}<details><summary>as numbers</summary>{table}</details>"
    beside = "half" if report_figures.speed_over_time(report["pace"]) else "wide"
    return _section("Document lengths", "Documents by their number of tokens, in powers of two.", content, beside)


def _pace(report: Mapping[str, Any]) -> str:
    speeds = report_figures.speed_over_time(report["pace"])
    if not speeds:
        about = f"The run was too short to tell: {size(report['source_bytes'])} in {duration(report['seconds'])}."
        return _section("Speed over time", about, "")
    about = f"Source bytes per second; dashed, their mean: {size(sum(speeds) / len(speeds))}/s."
    return _section("Speed over time", about, plots.curve(speeds, report["pace"][-1][0]), "half")


def _sources(report: Mapping[str, Any]) -> str:
    top = report_figures.tokens_by_source(report, MOST_BARS)
    about = f"{report['tokens']:,} tokens of {counted(len(report['sources']), 'file')}."
    return _section("Tokens per source", about, _bars([_bar(_path(path), n, top) for path, n in top.shown], top))


def _dropped(kind: str, title: str, counts: Mapping[str, int], report: Mapping[str, Any]) -> str:
    if not counts:
        return ""
    top = report_figures.ranked(counts)
    examples = [report_figures.examples_of(report, reason) for reason, _ in top.shown]
    letters = min(EXAMPLE_LETTERS, ALL_EXAMPLES_LETTERS // max(1, sum(map(len, examples))))
    items = [
        _bar(_text(reason, REASON_LETTERS), number, top) + _examples(some, letters)
        for (reason, number), some in zip(top.shown, examples, strict=True)
    ]
    records = sum(number for _, number in report_figures.fates_of_records(report))
    about = f"{counted(top.total, 'record')}, {share(top.total, records)} of all."
    return _section(title, about, _bars(items, top, kind), "wide long")


def _examples(examples: Sequence[Mapping[str, Any]], letters: int) -> str:
    if not examples:
        return ""
    figures = "".join(
        f'<figure class="example"><figcaption>{_path(example["file"])}:{example["row"]}</figcaption>'
        f'<pre dir="auto">{_text(example["text"], letters)}</pre></figure>'
        for example in examples
    )
    return f"<details><summary>{counted(len(examples), 'example')}</summary>{figures}</details>"


def _others(report: Mapping[str, Any]) -> str:
    lists = [
        _counts("bad", "Bad records", "not to be read, left out", report["bad"]),
        _counts("skipped", "Skipped", "left out under every policy", report["skipped"]),
        _counts("changed", "Changed", "changes of records that are kept", report["changed"]),
    ]
    told = "".join(lists)
    return _section("Bad, skipped and changed", "", f'<div class="columns">{told}</div>') if told else ""


def _counts(kind: str, title: str, about: str, counts: Mapping[str, int]) -> str:
    if not counts:
        return ""
    top = report_figures.ranked(counts)
    items = [_bar(_text(reason, REASON_LETTERS), number, top) for reason, number in top.shown]
    heading = f'<h3>{title}</h3><p class="about">{top.total:,} {about}</p>'
    return f"<div>{heading}{_bars(items, top, kind)}</div>\n"


def _recipe(steps: Sequence[Mapping[str, Any]]) -> str:
    if not steps:
        return _section("Recipe", "No steps: every record was taken as it is.", "")
    items = "".join(
        f"<li><b>{_text(name, PATH_LETTERS)}</b> <code>{_text(settings, STEP_LETTERS)}</code></li>\n"
        for name, settings in report_figures.steps_of_recipe(steps[:MOST_STEPS])
    )
    more = f'<p class="rest">{counted(len(steps) - MOST_STEPS, "more step")}</p>' if len(steps) > MOST_STEPS else ""
    return _section(
        "Recipe", "What every record went through, in this order.", f'<ol class="recipe">{items}</ol>{more}'
    )


def _source_table(sources: Sequence[Mapping[str, Any]]) -> str:
    weighted = any(source["weight"] is not None for source in sources)
    heads = ["file", "format", "bytes", "rows", "documents", "tokens"] + ["weight"] * weighted
    rows = [
        [_path(source["path"]), _text(source["format"], PATH_LETTERS), size(source["bytes"])]
        + [f"{source[head]:,}" for head in ("rows", "documents", "tokens")]
        + ["" if source["weight"] is None else f"{source['weight']:g}"] * weighted
        for source in sources[:MOST_ROWS]
    ]
    rest = len(sources) - MOST_ROWS
    more = f"The first {MOST_ROWS} files; {rest:,} more are in the JSON file beside this page"
    table = _table(more if rest > 0 else "All files", heads, rows)
    scroll = f'<div class="scroll" role="region" aria-label="Sources" tabindex="0">{table}</div>'
    return _section("Sources", "In the order of the store.", scroll, "wide long")


def _section(title: str, about: str, content: str, kind: str = "wide") -> str:
    said = f'<p class="about">{about}</p>\n' if about else ""
    return f'<section class="{kind}">\n<h2>{title}</h2>\n{said}{content}\n</section>\n'


def _bar(label: str, number: int, of: report_figures.Ranked) -> str:
    told = f'{number:,} <span class="soft">{share(number, of.total)}</span>'
    drawn = plots.bar(number, of.shown[0][1])
    return f'<div class="row"><span>{label}</span>{drawn}<span class="number">{told}</span></div>'


def _bars(items: Sequence[str], of: report_figures.Ranked, tone: str = "") -> str:
    listed = "".join(f"<li>{item}</li>\n" for item in items)
    if of.others:
        rest = f'<span class="rest">{of.others:,} more</span>'
        number = f'{of.others_sum:,} <span class="soft">{share(of.others_sum, of.total)}</span>'
        listed += f'<li><div class="row">{rest}<span class="number">{number}</span></div></li>\n'
    return f'<ul class="bars tone-{tone}">\n{listed}</ul>'


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table: the first column to the left, numbers to the right."""
    texts = {"file", "format"}
    kinds = ["path" if head == "file" else "" if head in texts else "number" for head in heads]
    head = "".join(f'<th scope="col" class="{kind}">{each}</th>' for kind, each in zip(kinds, heads, strict=True))
    body = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{cell}</td>' for kind, cell in zip(kinds, row, strict=True)) + "</tr>\n"
        for row in rows
    )
    return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"


def _text(text: str, most: int = 1 << 10) -> str:
    """A text that nothing in it can turn into anything else, cut at the end."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    return escape(visible(cut, keep="\n\t"))


def _path(path: str) -> str:
    """A path, cut in its middle."""
    half = PATH_LETTERS // 2
    return _text(path if len(path) <= PATH_LETTERS else f"{path[:half]}…{path[-half:]}")
