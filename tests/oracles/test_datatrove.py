"""datatrove's own filters on the same documents: the same verdicts, the same texts. `make oracles` installs it.

Its words and sentences are replaced by ours, so that the rules themselves are compared, exactly.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from millstream.records import DataProcessor, Reject
from millstream.records.pii import MaskPII
from millstream.records.quality import C4Quality, FineWebQuality, GopherQuality, GopherRepetition, words
from millstream.sources import Record
from records.reference import sentences
from records.texts import CORNERS, made_page, real_texts

C4 = {"lorem_ipsum": "lorem ipsum", "curly_bracket": "curly bracket", "too_few_sentences": "too few sentences"}
QUALITY = {
    "gopher_short_doc": "too few words",
    "gopher_long_doc": "too many words",
    "gopher_below_avg_threshold": "words too short",
    "gopher_above_avg_threshold": "words too long",
    "gopher_too_many_hashes": "too many hash signs",
    "gopher_too_many_ellipsis": "too many ellipses",
    "gopher_too_many_bullets": "too many bullet lines",
    "gopher_too_many_end_ellipsis": "too many lines ending in an ellipsis",
    "gopher_below_alpha_threshold": "too few words with letters",
    "gopher_enough_stop_words": "too few stop words",
}
REPETITION = {
    "empty": "empty",
    "dup_para_frac": "too many repeated paragraphs",
    "dup_para_char_frac": "too much text in repeated paragraphs",
    "dup_line_frac": "too many repeated lines",
    "dup_line_char_frac": "too much text in repeated lines",
    **{f"top_{n}_gram": f"one {n}-gram is too much of the text" for n in (2, 3, 4)},
    **{f"duplicated_{n}_n_grams": f"too much text in repeated {n}-grams" for n in (5, 6, 7, 8, 9, 10)},
}
FINEWEB = {
    "empty": "empty",
    "line_punct_ratio": "too few lines ending in punctuation",
    "short_line_ratio": "too many short lines",
    "char_dup_ratio": "too many repeated lines",
    "list_ratio": "a list",
}
RULES: dict[str, tuple[str, str, dict[str, str], Callable[[], DataProcessor]]] = {
    "c4": ("c4_filters", "C4QualityFilter", C4, C4Quality),
    "gopher quality": ("gopher_quality_filter", "GopherQualityFilter", QUALITY, GopherQuality),
    "gopher repetition": ("gopher_repetition_filter", "GopherRepetitionFilter", REPETITION, GopherRepetition),
    "fineweb": ("fineweb_quality_filter", "FineWebQualityFilter", FINEWEB, FineWebQuality),
}

Verdict = tuple[str, str]


@cache
def documents() -> list[str]:
    return [*CORNERS, *(made_page(seed) for seed in range(6000)), *real_texts()]


def ours(step: DataProcessor, text: str) -> Verdict:
    outcome = step.process(Record(text, "a", 0, 0, 0))
    if isinstance(outcome, Reject):
        return outcome.reason, ""
    assert isinstance(outcome, Record)
    return "", outcome.text


def theirs(judge: Any, reasons: dict[str, str], text: str) -> Verdict:
    from datatrove.data import Document

    document = Document(text=text, id="0")
    verdict = judge.filter(document)
    return ("", document.text) if verdict is True else (reasons[verdict[1]], "")


@pytest.mark.oracle
@pytest.mark.parametrize("rule", RULES)
def test_every_document_gets_the_verdict_and_the_text_that_datatrove_gives_it(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module_name, name, reasons, step = RULES[rule]
    module = importlib.import_module(f"datatrove.pipeline.filters.{module_name}")
    for splitter, replacement in (("split_into_words", words), ("split_into_sentences", sentences)):
        if hasattr(module, splitter):
            monkeypatch.setattr(module, splitter, lambda text, _, replacement=replacement: replacement(text))
    judge = getattr(module, name)()

    found = [(text, theirs(judge, reasons, text), ours(step(), text)) for text in documents()]

    assert [(text, wanted, got) for text, wanted, got in found if wanted != got][:3] == []
    assert {wanted for _, (wanted, _), _ in found} == {"", *reasons.values()}, "every rule must have had its victims"


@pytest.mark.oracle
def test_personal_data_is_masked_as_datatrove_masks_it() -> None:
    from datatrove.pipeline.formatters.pii import PIIFormatter

    texts = [text for text in documents() if "@" in text or any(digit in text for digit in "0123456789")]
    texts += ["a@b.co x.y+z@mail.example.org, 8.8.8.8 and 10.0.0.1; 1.2.3.4.5 256.1.1.1 01.2.3.4 a@[1.2.3.4]"] * 2

    for text in texts:
        assert ours(MaskPII(), text) == ("", PIIFormatter().format(text))


@pytest.mark.oracle
@pytest.mark.parametrize("rule", RULES)
def test_with_its_own_words_datatrove_agrees_on_nearly_all_documents(rule: str) -> None:
    importlib.import_module("spacy")
    module_name, name, reasons, step = RULES[rule]
    judge = getattr(importlib.import_module(f"datatrove.pipeline.filters.{module_name}"), name)()
    texts = [text for text in real_texts() if len(text) < 20_000][::4]

    same = sum((theirs(judge, reasons, text)[0] == "") == (ours(step(), text)[0] == "") for text in texts)

    print(f"{rule}: the same decision for {same} of {len(texts)} documents ({same / len(texts):.1%})")
    assert same / len(texts) > 0.9
