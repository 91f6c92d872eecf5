"""The rules give the verdicts that were compared with datatrove's own (tests/oracles/test_datatrove.py).

`python tests/records/test_quality.py` writes the golden file anew; run `make oracles` before it is committed.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from millstream.records import DataProcessor
from millstream.records.quality import C4Quality, FineWebQuality, GopherQuality, GopherRepetition
from records.blocks import block_of, judged, texts_of
from records.texts import CORNERS, made_page

GOLDEN = Path(__file__).parent / "golden" / "verdicts.json"
STEPS: dict[str, DataProcessor] = {
    step.name: step for step in (C4Quality(), GopherQuality(), GopherRepetition(), FineWebQuality())
}
PAGES = 600


def verdicts(step: DataProcessor) -> dict[str, list[int]]:
    """Reason -> numbers of the pages it drops; the kept ones are under ""."""
    out: dict[str, list[int]] = {}
    for page, reason in enumerate(judged(step, [*CORNERS, *(made_page(seed) for seed in range(PAGES))])):
        out.setdefault(reason, []).append(page)
    return dict(sorted(out.items()))


@pytest.mark.parametrize("name", STEPS)
def test_the_verdicts_are_those_that_were_compared_with_datatrove(name: str) -> None:
    assert verdicts(STEPS[name]) == json.loads(GOLDEN.read_text(encoding="utf-8"))[name]


def test_c4_keeps_lines_of_prose_and_counts_the_others() -> None:
    lines = ("Home | About", "The first line has a citation.[12] It goes on.", "We use cookies here.", "Two words.")
    page = "\n".join([*lines, "More. " * 5])

    done = C4Quality().process_block(block_of([page]))

    assert texts_of(done.block) == ["The first line has a citation. It goes on.\nMore. More. More. More. More."]
    assert {note: count for note, count in done.notes.items() if count} == {
        "lines left out: no punctuation at the end": 1,
        "lines left out: policy notice": 1,
        "lines left out: too few words": 1,
    }


def test_a_rule_that_is_switched_off_drops_nothing() -> None:
    off: dict[str, Any] = {name: None for name in GopherQuality().settings() if name != "stop_words"}
    texts = ["", "# # #", "...", "x" * 99, "- a"]

    assert judged(GopherQuality(**off), texts) == [""] * 5
    assert judged(C4Quality(min_sentences=None, need_punctuation=False, min_words_per_line=None), ["no prose"]) == [""]


def test_a_rule_judges_the_text_alone_not_its_neighbours() -> None:
    pages = [made_page(seed) for seed in range(300)]

    for step in STEPS.values():
        together = judged(step, pages)
        assert together == [judged(step, [page])[0] for page in pages]
        assert together[::-1] == judged(step, pages[::-1])
        assert len(Counter(together)) > 2


def test_own_limits_and_words_count() -> None:
    assert judged(GopherRepetition(top_n_grams=(), repeated_n_grams=((1, 0.4),)), ["a a a a"]) == [
        "too much text in repeated 1-grams"
    ]
    assert judged(FineWebQuality(line_ends=";"), ["a long enough line of code, with a semicolon;"]) == [""]


if __name__ == "__main__":
    lines = [f'"{name}": {json.dumps(verdicts(step))}' for name, step in STEPS.items()]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
