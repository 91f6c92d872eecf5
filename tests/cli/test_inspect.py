"""The report of a run in the terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from command import Run
from millstream.cli.inspect import LABEL_LETTERS, show_report
from millstream.preparation import report_path
from millstream.store import TokenStore, TokenStoreWriter
from reports import HOSTILE, plain_report, rich_report, source


def test_the_terminal_holds_every_number_that_the_page_holds() -> None:
    report = rich_report(files=10)
    text = show_report(report)

    numbers = [report["tokens"], report["documents"], *report["dropped"].values(), *report["bad"].values()]
    numbers += [*report["skipped"].values(), *report["changed"].values(), *filter(None, report["lengths"])]
    numbers += [row["tokens"] for row in report["sources"]]
    for number in numbers:
        assert re.search(rf"(?<![\d,]){number:,}(?![\d,])", text), number
    for words in ("cl100k_base", "gigatoken", "uint32", report["fingerprint"], "12 found in the cache", "keep = ["):
        assert words in text


def test_what_did_not_happen_is_not_mentioned() -> None:
    text = show_report(plain_report())

    for title in ("rejected", "duplicates", "bad records", "skipped", "changed", "recipe", "speed over"):
        assert title not in text.split("records:")[1]
    assert "found in the cache: times are" in text


def test_sources_beyond_the_largest_are_summed_up() -> None:
    text = show_report(rich_report(files=30))
    rest = sorted(row["tokens"] for row in rich_report(files=30)["sources"])[:18]

    assert f"and 18 more with {sum(rest):,}" in text


def test_nothing_in_the_data_reaches_the_terminal_as_a_command() -> None:
    report = plain_report(
        dropped={HOSTILE: 2},
        bad={HOSTILE: 1},
        examples={HOSTILE: [{"file": HOSTILE, "row": 1, "text": HOSTILE}]},
        recipe=[{"name": HOSTILE, HOSTILE: HOSTILE}],
        sources=[source(HOSTILE, 363)],
        root=HOSTILE,
        fingerprint=HOSTILE,
    )
    text = show_report(report)

    assert all(line.isprintable() for line in text.splitlines())
    assert max(map(len, text.splitlines())) < 3 * LABEL_LETTERS


WRONG: list[object] = [None, "x", -1, [], {}, [1]]


@pytest.fixture(params=["corpus", "corpus.bin"])
def reported(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store with a report that was written for it."""
    path = tmp_path / str(request.param)
    with TokenStoreWriter(path) as writer:
        writer.append(np.arange(70, dtype=np.uint16))
    with TokenStore(path) as store:
        write(path, plain_report(fingerprint=store.fingerprint))
    return path


def write(store: Path, report: object) -> None:
    report_path(store, ".json").write_text(json.dumps(report))


def test_inspect_shows_the_report_of_a_store(reported: Path, run: Run) -> None:
    code, out, _ = run("inspect", reported)
    _, machine, _ = run("inspect", reported, "--json")

    report = json.loads(machine)["report"]
    assert code == 0
    assert show_report(report) in out


def test_inspect_does_not_show_the_report_of_another_version(reported: Path, run: Run) -> None:
    write(reported, plain_report())

    assert "found in the cache" not in run("inspect", reported)[1]


def test_inspect_does_without_a_damaged_report(reported: Path, run: Run) -> None:
    whole = json.loads(report_path(reported, ".json").read_text())
    for key in sorted(whole.keys() - {"fingerprint"}):
        for wrong in WRONG:
            write(reported, whole | {key: wrong})
            code, out, error = run("inspect", reported)
            assert (code, error) == (0, "")
            assert "tokens per document" in out or key == "lengths"
