"""The page of a report: well-formed, complete, bounded, and nothing in the data can break out of its place."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.preparation import plots, report_figures
from millstream.preparation.page import render
from millstream.stats import bit_span, visible
from reports import HOSTILE, plain_report, rich_report, source

VOID = {"meta", "img", "br", "link"}


class Page(HTMLParser):
    """Checks that tags are nested as they should be, and collects what a reader sees."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


REPORTS = {
    "a long run": rich_report(),
    "found in the cache": plain_report(),
    "nothing in it": plain_report(
        documents=0, tokens=0, source_bytes=0, text_bytes=0, sources=[], lengths=[0] * 48, pace=[], seconds=0.0
    ),
    "no tokenizer": plain_report(tokenizer=None),
    "two notes at once": plain_report(pace=[[0.0, 10, 1], [0.0, 20, 2], [0.0, 360, 363]]),
    "an idle run": plain_report(pace=[[1.0, 0, 0], [2.0, 0, 0], [3.0, 0, 0], [4.0, 0, 0]]),
}


@pytest.mark.parametrize("report", REPORTS.values(), ids=list(REPORTS))
def test_the_page_is_well_formed_and_asks_for_nothing_from_elsewhere(report: dict[str, Any]) -> None:
    html = render(report, "corpus")
    page = Page(html)

    assert {"script", "link", "img", "iframe", "object", "base"}.isdisjoint(tag for tag, _ in page.tags)
    assert not [
        each for _, attributes in page.tags for each in attributes if each in ("src", "href") or each[:2] == "on"
    ]
    assert not re.search(r"url\(|@import|https?:", html)


@pytest.mark.parametrize("report", REPORTS.values(), ids=list(REPORTS))
def test_every_picture_says_what_it_shows_and_every_table_has_a_caption(report: dict[str, Any]) -> None:
    page = Page(render(report, "corpus"))
    inner = [each for each in page.all("svg") if "viewbox" in each]

    for picture in page.all("svg"):
        said = picture.get("role") == "img" and picture.get("aria-label")
        assert said or picture.get("aria-hidden") == "true" or picture in inner
    assert len(page.all("caption")) == len(page.all("table")) > 0
    assert len(page.all("h1")) == 1


def test_the_page_holds_every_number() -> None:
    report = rich_report()
    text = Page(render(report, "corpus")).text

    whole = [report["tokens"], *report["dropped"].values(), *report["bad"].values(), *report["skipped"].values()]
    whole += [*report["changed"].values(), *filter(None, report["lengths"]), report["documents"]]
    whole += [row[key] for row in report["sources"] for key in ("rows", "documents", "tokens")]
    for number in whole:
        assert re.search(rf"(?<![\d,]){number:,}(?![\d,])", text), number
    said = ["419.34 M", "41.1 GB", "1.70 M", "166.9 MB/s", "4 min 6 s", "1.3 GB", "cl100k_base", "gigatoken", "uint32"]
    for words in [*said, report["fingerprint"], *report["bad"], *report["changed"], 'keep = ["en"]']:
        assert words in text


def test_every_rule_shows_examples_with_their_origin() -> None:
    report = rich_report()
    text = Page(render(report, "corpus")).text

    for examples in report["examples"].values():
        for example in examples:
            assert f"{example['file']}:{example['row']}" in text
    assert "Home | About | Contact" in text


def test_only_the_twenty_largest_sources_are_drawn_and_the_others_are_summed_up() -> None:
    text = Page(render(rich_report(files=64), "corpus")).text
    rest = sorted(row["tokens"] for row in rich_report(files=64)["sources"])[:44]

    assert f"44 more {sum(rest):,}" in text


def test_weights_are_shown_if_there_are_any() -> None:
    weighted = plain_report(sources=[source("a.txt", 300, weight=0.25), source("b.txt", 63)])

    assert "weight" not in Page(render(plain_report(), "corpus")).text
    assert "weight a.txt jsonl 1.2 kB 1 1 300 0.25 b.txt" in Page(render(weighted, "corpus")).text


hostile = st.text(st.sampled_from("<>&\"'/ab\x00\x1b\u202e\u2066\ud800\n")) | st.just(HOSTILE)


@given(hostile, hostile)
def test_nothing_in_the_data_can_break_out_of_its_place(text: str, name: str) -> None:
    texts = {"rule: " + text: 3}
    report = plain_report(
        dropped=texts,
        bad={text: 1},
        skipped={text: 2},
        changed={text: 4},
        examples={reason: [{"file": text, "row": 7, "text": text}] for reason in texts},
        recipe=[{"name": text, text or "empty": text}],
        root=text,
        dtype=text,
        fingerprint=text,
        tokenizer_engine=text,
        tokenizer={"name": text, "vocab_size": 29},
        sources=[source(text, 363, format=text)],
    )
    harmless = {key: re.sub(r"[^a]", "a", text) if value == text else value for key, value in report.items()}
    html = render(report, name)

    html.encode("utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", html)
    assert {tag for tag, _ in Page(html).tags} == {tag for tag, _ in Page(render(harmless, "corpus")).tags}


@pytest.mark.parametrize("letter", ["a", "&", "<", "\U0001f980", "\x00"])
def test_the_page_stays_small_whatever_the_run_was(letter: str) -> None:
    long = letter * 5_000
    dropped = {f"rule {n}: {long}{': duplicate' * (n % 2)}": n + 1 for n in range(2_000)}
    report = rich_report(
        sources=[source(f"{n:06}{long}", n) for n in range(100_000)],
        dropped=dropped,
        examples={reason: [{"file": long, "row": 1, "text": long}] * 5 for reason in dropped},
        bad={f"{n}{long}": 1 for n in range(2_000)},
        changed={f"{n}{long}": 1 for n in range(2_000)},
        recipe=[{"name": long, "words": [long]}] * 200,
        root=long,
    )
    html = render(report, long)

    assert len(html.encode("utf-8")) < 1_000_000
    assert "99,500 more" in Page(html).text


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_letters_and_bars_stand_out_by_day_and_by_night() -> None:
    """The limits of WCAG 2: 4.5 for letters, 3 for what is drawn."""
    css = render(plain_report(), "corpus").split("<style>")[1].split("* {")[0]

    for scheme in css.split("@media"):
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", scheme))
        for ground in (colours["paper"], colours["panel"]):
            assert min(contrast(colours[each], ground) for each in ("ink", "soft", "water")) >= 4.5
        assert min(contrast(colours[each], colours["panel"]) for each in ("wheat", "clay", "plum", "stone")) >= 3
        assert contrast(colours["ink"], colours["water-soft"]) >= 4.5


def test_what_is_bad_is_not_green_and_every_fate_has_a_colour_of_its_own() -> None:
    css = render(rich_report(), "corpus").split("<style>")[1].split("</style>")[0]
    fates = [fate for fate, _ in report_figures.fates_of_records(rich_report())]
    filled = dict(re.findall(r"^\.([a-z]+) \{ fill: var\(--([a-z]+)\)", css, re.MULTILINE))
    variables = [filled[fate] for fate in fates]

    assert len({*variables}) == len(fates) == 5
    for scheme in css.split("* {")[0].split("@media"):
        colour = dict(re.findall(r"--([a-z-]+): #([0-9a-f]{6})", scheme))[variables[3]]
        red, green, blue = (int(colour[place : place + 2], 16) for place in (0, 2, 4))
        assert fates[3] == "bad" and red > green and red > blue


CHAT_REPORT = {"template": "chatml", "train": {"train": "assistant"}, "max_length": None, "truncation": "drop"}


@pytest.mark.parametrize("chat", [None, {**CHAT_REPORT, "boundary": "whole", "trained_tokens": 100}])
def test_no_tile_of_the_headline_is_empty(chat: dict[str, Any] | None) -> None:
    """The grid has four columns, or two on a phone."""
    tiles = report_figures.main_figures(rich_report(chat=chat))

    assert len(tiles) == 8
    assert all(name and value and remark for name, value, remark in tiles)


def test_the_numbers_of_a_plot_stand_beside_it() -> None:
    html = render(rich_report(), "corpus")
    levels = [text for text in Page(html).all("text") if text["class"] == "level"]

    assert levels and all(int(text["x"] or 0) < 0 for text in levels)
    assert "margin-left: var(--beside)" in html


@given(st.lists(st.integers(0, 10**9), min_size=48, max_size=48).filter(any))
def test_every_document_is_in_one_column(lengths: list[int]) -> None:
    drawn = plots.histogram(report_figures.length_bins(lengths))

    for bits, documents in enumerate(lengths):
        if documents:
            assert f"<title>{bit_span(bits)} tokens: {documents:,} documents" in drawn
    assert drawn.count('class="column"') >= 8


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 10**9)), max_size=200))
def test_speeds_add_up_to_all_that_was_read(steps: list[tuple[float, int]]) -> None:
    seconds, read, pace = 0.0, 0, []
    for took, more in steps:
        seconds, read = seconds + took, read + more
        pace.append((seconds, read, 0))
    speeds = report_figures.speed_over_time(pace)

    assert len(speeds) <= report_figures.MOST_INTERVALS
    if speeds:
        assert sum(speeds) / len(speeds) * seconds == pytest.approx(read, rel=1e-6, abs=1e-3)


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 10**9)), st.integers(0, 5))
def test_ranking_loses_nothing(counts: dict[str, int], most: int) -> None:
    top = report_figures.ranked(counts, most)

    assert len(top.shown) + top.others == len(counts)
    assert top.total == sum(counts.values())
    assert [number for _, number in top.shown] == sorted(counts.values(), reverse=True)[:most]


@given(st.text())
def test_a_visible_text_is_as_long_as_it_was_and_can_be_written(text: str) -> None:
    seen = visible(text, keep="\n")

    assert len(seen) == len(text)
    assert all(letter == "\n" or letter.isprintable() for letter in seen)
    seen.encode("utf-8")
