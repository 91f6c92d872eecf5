"""The native text functions say what a plain Python reference says, for any text."""

from __future__ import annotations

import unicodedata
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import _core
from millstream.records.dedup import ExactDedup, MinhashDedup
from millstream.records.normalize import Normalize
from millstream.records.phrases import fold
from millstream.records.quality import C4Quality, Length, words
from millstream.records.recipe import make_processor
from records import reference
from records.blocks import block_of, judged, record, texts_of
from records.texts import made_page

SAME_UNICODE = unicodedata.unidata_version == _core.unicode_version  # another one classes some characters differently
TRICKY = st.sampled_from(list("ab1_ .'’-…\n\r\t\"()!?,À\u0301٣９ß\u2028\x85\u200b\x0c"))
TEXTS = st.text(TRICKY | st.characters(codec="utf-8") if SAME_UNICODE else TRICKY)


@given(TEXTS)
def test_words_are_those_of_the_reference(text: str) -> None:
    assert words(text) == reference.words(text)


@given(TEXTS)
def test_sentences_are_those_of_the_reference(text: str) -> None:
    count = sum(len(reference.sentences(line.strip())) for line in text.splitlines())
    only: dict[str, Any] = {each.name: None if each.default is not True else False for each in fields(C4Quality)}

    assert judged(C4Quality(**only | {"min_sentences": count}), [text]) == [""]
    assert judged(C4Quality(**only | {"min_sentences": count + 1}), [text]) == ["too few sentences"]


@given(TEXTS)
def test_folded_texts_are_those_of_the_reference(text: str) -> None:
    assert fold(text) == reference.fold(text)


@pytest.mark.skipif(not SAME_UNICODE, reason="the native table is of another Unicode")
def test_every_character_is_what_python_says_it_is() -> None:
    everything = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]

    for begin in range(0, len(everything), 50_000):
        part = everything[begin : begin + 50_000]
        text = " ".join(part)
        assert words(text) == reference.words(text)
        assert fold(text) == reference.fold(text)


@given(st.lists(TEXTS))
def test_counts_are_those_of_python(texts: list[str]) -> None:
    block = block_of(texts)
    counts = np.zeros((2, len(block)), np.int64)
    _core.count_characters(block.text, block.ends, counts[0])
    _core.count_words(block.text, block.ends, counts[1])

    assert counts[0].tolist() == [len(text) for text in texts]
    assert counts[1].tolist() == [len(reference.words(text)) for text in texts]


def test_length_judges_by_every_unit() -> None:
    texts = ["é é", "a b c d", "x"]

    assert judged(Length(min_characters=3), texts) == ["", "", "too few characters"]
    assert judged(Length(max_words=3, min_words=2), texts) == ["", "too many words", "too few words"]
    assert judged(Length(max_bytes=5, min_bytes=2), texts) == ["", "too many bytes", "too few bytes"]


@given(st.lists(TEXTS), st.sampled_from(["NFC", "NFKC", None]), st.booleans())
def test_normalising_twice_changes_nothing_more(texts: list[str], form: str | None, whitespace: bool) -> None:
    step = Normalize(form=form, whitespace=whitespace)

    once = step.process_block(block_of(texts)).block
    twice = step.process_block(once).block

    assert texts_of(once) == texts_of(twice) or form is not None  # leaving a control out can make a new composition
    assert all("\r" not in text and "\x07" not in text and "\u200b" not in text for text in texts_of(once))


@given(TEXTS)
def test_unicode_form_alone_is_what_python_makes(text: str) -> None:
    step = Normalize(form="NFKC", controls=False, line_ends=False)

    assert texts_of(step.process_block(block_of(["a", text])).block) == ["a", unicodedata.normalize("NFKC", text)]


@given(TEXTS)
def test_ordered_spaces_are_those_of_the_reference(text: str) -> None:
    step = Normalize(form=None, controls=False, whitespace=True)
    lines = [" ".join(line.split()) for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    wanted = "\n".join(lines).strip("\n")
    while "\n\n\n" in wanted:
        wanted = wanted.replace("\n\n\n", "\n\n")

    assert step.process(record(text)).text == wanted  # type: ignore[union-attr]


@given(st.lists(TEXTS, max_size=5))
def test_exact_keys_are_equal_for_equal_texts_only(texts: list[str]) -> None:
    for folded in (False, True):
        keys = ExactDedup(folded=folded).keys(block_of(texts)).tolist()
        same = [(fold(text) or text) if folded else text for text in texts]
        assert [[a == b for a in keys] for b in keys] == [[a == b for a in same] for b in same]


def test_a_block_gives_what_its_records_give_one_by_one() -> None:
    texts = [made_page(seed) for seed in range(200)]
    step = Normalize(whitespace=True)

    together = texts_of(step.process_block(block_of(texts)).block)

    assert together == [step.process(record(text)).text for text in texts]  # type: ignore[union-attr]


@pytest.mark.parametrize("character", [" ", "a", ".", "\u0301", "[", "\n", "1", "@", "a@", "1.", "a-@", "a-", "a.b@"])
@pytest.mark.timeout(30)
def test_huge_and_monotonous_texts_are_judged_like_shorter_ones_in_linear_time(character: str) -> None:
    """Quadratic time would be minutes for each of them."""
    shorter, huge = character * 200_000, character * 1_000_000

    for name in ("c4_quality", "gopher_quality", "gopher_repetition", "fineweb_quality", "normalize", "pii"):
        step = make_processor(name)
        few, many = (step.process_block(block_of([text])) for text in (shorter, huge))
        assert [reason for _, reason in many.rejected] == [reason for _, reason in few.rejected]
        for beginning, whole in zip(texts_of(few.block), texts_of(many.block), strict=True):
            assert whole.startswith(beginning[:100_000])
    for dedup in (ExactDedup(folded=True), MinhashDedup()):
        first, again = dedup.keys(block_of([huge, huge])).tolist()
        assert first == again
