"""Steps in a row: nothing is lost in silence, and a processor's failure is its record's alone."""

from __future__ import annotations

import importlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import RecipeError
from millstream.records import CleaningPipeline, DataProcessor, Recipe, Reject
from millstream.records.dedup import ExactDedup
from millstream.records.normalize import Normalize, Regex
from millstream.records.phrases import Blocklist, Decontaminate
from millstream.records.pii import MaskPII
from millstream.records.processor import FunctionProcessor, Outcome
from millstream.records.quality import Language, Length
from millstream.sources import Record
from records.blocks import block_of, judged, record, texts_of
from records.texts import made_page


def per_letter(record: Record) -> Outcome:
    """Splits "ab" into two records, drops "drop", fails on "fail"."""
    if record.text == "fail":
        raise ValueError("no")
    if record.text == "drop":
        return Reject("asked to")
    return [replace(record, text=letter) for letter in record.text]


TEXTS = st.lists(st.sampled_from(["ab", "c", "", "drop", "fail", "xyz"]), max_size=12)


@given(TEXTS)
def test_every_record_comes_out_is_rejected_or_failed(texts: list[str]) -> None:
    done = CleaningPipeline([FunctionProcessor(per_letter), Length(max_words=1)]).run(block_of(texts))

    assert texts_of(done.block) == [letter for text in texts if text not in ("drop", "fail") for letter in text]
    assert done.counts["per_letter: asked to"] == texts.count("drop")
    assert [bad.row for bad in done.bad] == [row for row, text in enumerate(texts) if text == "fail"]
    rows = {*done.block.rows.tolist(), *(bad.row for bad in done.bad)}
    rows |= {row for each in done.rejected for row in each.block.rows.tolist()}
    assert rows == {row for row, text in enumerate(texts) if text}  # an empty text became no record, by its own wish


@given(TEXTS)
def test_callbacks_see_every_record_before_and_what_became_of_it_after(texts: list[str]) -> None:
    seen: list[str] = []
    outcomes: dict[int, Outcome] = {}
    pipeline = CleaningPipeline(
        [FunctionProcessor(per_letter), Regex(drop=("b",))],
        before=lambda record: seen.append(record.text),
        after=lambda record, outcome: outcomes.update({record.row: outcome}),
    )

    pipeline.run(block_of(texts))

    assert seen == texts
    for row, text in enumerate(texts):
        outcome = outcomes.get(row)
        if text in ("fail", ""):
            assert outcome is None
        elif text == "drop":
            assert outcome == Reject("per_letter: asked to")
        elif text == "xyz":
            assert [each.text for each in outcome] == ["x", "y", "z"]  # type: ignore[union-attr]


def test_a_failure_names_the_processor_the_record_and_the_error() -> None:
    done = CleaningPipeline([FunctionProcessor(per_letter)]).run(block_of(["ab", "fail"]))

    (bad,) = done.bad
    assert (bad.reason, bad.row, bad.start, bad.raw) == ("processor failed", 1, 10, b"fail")
    assert bad.found == "per_letter raised ValueError: no"


@pytest.mark.parametrize("wrong", [None, "text", ["text"], record("\ud800")])
def test_an_outcome_that_is_none_is_a_failure_not_a_crash(wrong: object) -> None:
    done = CleaningPipeline([FunctionProcessor(lambda _: wrong)]).run(block_of(["a"]))  # type: ignore[arg-type,return-value]

    assert len(done.bad) == 1
    assert len(done.block) == 0


def test_a_block_that_fails_as_a_whole_is_tried_record_by_record() -> None:
    class Careless(DataProcessor):
        name = "careless"

        def process_block(self, block: object) -> object:  # type: ignore[override]
            raise RuntimeError("a bug")

        def process(self, record: Record) -> Outcome:
            return record

    assert texts_of(CleaningPipeline([Careless()]).run(block_of(["a", "b"])).block) == ["a", "b"]


def test_threads_share_a_pipeline() -> None:
    names = ["normalize", "c4_quality", "gopher_quality", "gopher_repetition", "fineweb_quality", "pii"]
    recipe = Recipe.of([*names, "exact_dedup", "minhash_dedup"])
    pipeline = recipe.pipeline()
    blocks = [block_of([made_page(seed) for seed in range(first, first + 100)]) for first in range(0, 800, 100)]
    alone = [pipeline.run(block) for block in blocks]

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(pipeline.run, blocks))

    assert [done.counts for done in together] == [done.counts for done in alone]
    assert [texts_of(done.block) for done in together] == [texts_of(done.block) for done in alone]
    assert [[keys.tolist() for keys in done.keys] for done in together] == [
        [keys.tolist() for keys in done.keys] for done in alone
    ]


def test_global_steps_come_last_and_give_keys_for_what_remains() -> None:
    with pytest.raises(RecipeError, match="put deduplication last"):
        CleaningPipeline([ExactDedup(), Length(min_words=1)])

    done = CleaningPipeline([Length(min_words=1), ExactDedup()]).run(block_of(["a", "", "b", "a"]))

    assert [keys.shape for keys in done.keys] == [(3, 2)]
    assert done.keys[0][0].tolist() == done.keys[0][2].tolist() != done.keys[0][1].tolist()


def test_a_step_changes_the_text_and_keeps_its_origin() -> None:
    block = block_of(["  A\u0308 ", "x@home.org"])

    done = Recipe.of([{"name": "normalize", "whitespace": True}, "pii"]).pipeline().run(block)

    assert texts_of(done.block) == ["Ä", "email@example.com"]
    assert done.block.rows.tolist() == block.rows.tolist()
    assert done.block.starts.tolist() == block.starts.tolist()
    assert dict(done.notes) == {"pii: mail addresses replaced": 1}


def test_phrases_are_found_whatever_their_spelling() -> None:
    step = Blocklist(phrases=("Forbidden Word", "naïve"))

    texts = ["a FORBIDDEN, word!", "forbiddenword", "NAIVE", "forbidden words"]
    assert judged(step, texts) == ["blocked phrase", "", "blocked phrase", ""]


def test_shared_runs_of_words_are_contamination() -> None:
    question = "A train leaves the station at 9.40 and meets another train after 25 minutes of travel"
    step = Decontaminate(texts=(question, "too short"), words=13)

    texts = [f"So: {question.upper()}!", question.replace("9.40", "7.15"), question[:50], "too short"]
    assert judged(step, texts) == ["overlaps the given texts"] * 2 + [""] * 2


def test_masks_are_pure_and_leave_private_addresses() -> None:
    text = "me@a.org you@b.org us@c.org 8.8.8.8 192.168.0.1"

    masked = MaskPII().process(record(text))

    assert isinstance(masked, Record)
    mails = "email@example.com firstname.lastname@example.org email@example.com"
    assert masked.text == f"{mails} 22.214.171.124 192.168.0.1"
    assert MaskPII().process(record(text)) == masked
    phone = MaskPII(phones=True).process(record("call +1 (212) 736-5000 or 20 August 1999 12345"))
    assert isinstance(phone, Record) and phone.text == "call 555-0100 or 20 August 1999 12345"


def test_languages_are_outcomes_apart() -> None:
    importlib.import_module("py3langid")
    english = "The water of the river turns the wheel of the old mill, and the miller looks at it."
    german = "Das Wasser des Flusses dreht das Rad der alten Mühle, und der Müller sieht ihm dabei zu."

    assert judged(Language(), [english, german]) == ["", "language is de"]
    assert judged(Language(keep=("de",)), [german]) == [""]


def test_patterns_drop_need_and_replace() -> None:
    reasons = judged(Regex(drop=("^#",), need=("[0-9]",)), ["# 1", "a", "a1"])

    assert reasons == ["matches '^#'", "does not match '[0-9]'", ""]
    assert Regex(replace=((r"\s+", " "),)).process(record("a  b")) == record("a b")


def test_normalize_refuses_an_unknown_form() -> None:
    with pytest.raises(RecipeError, match="choose one of NFC"):
        Normalize(form="NFX")
