"""What a worker needs may be sent to another machine: there it makes the same parts."""

from __future__ import annotations

import json
import pickle
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from millstream import prepare
from millstream.errors import MillstreamError, MissingExtra, SourceError
from millstream.preparation import Job, make_part
from millstream.preparation.part import encode_part
from millstream.records import Recipe
from millstream.records.recipe import _known
from millstream.sources import Reading, discover, format_named
from millstream.tokens import BPETokenizer, CharTokenizer, Tokenizer
from records.texts import real_texts

NEEDED: dict[str, dict[str, Any]] = {
    "blocklist": {"phrases": ["import this", "License"]},
    "decontaminate": {"texts": ["the quick brown fox jumps over the lazy dog"], "words": 5},
    "language": {"keep": ["en"]},
    "regex": {"drop": ["<script"]},
}
STEPS = sorted(name for name, factory in _known().items() if factory.__module__.startswith("millstream."))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in islice(real_texts(), 40)))
    return path


def assert_travels(job: Job, corpus: Path) -> None:
    (file,) = discover(corpus).files
    (chunk,) = format_named(file.format).chunks(file, job.reading)
    sent = pickle.loads(pickle.dumps((job, file, chunk)))

    assert sent[0].identity == job.identity
    assert encode_part(make_part(*sent)) == encode_part(make_part(job, file, chunk))


@pytest.mark.parametrize("tokenizer", [CharTokenizer("ab"), BPETokenizer.train(["the mill"], vocab_size=300)])
def test_a_job_that_was_sent_makes_the_same_part(tokenizer: Tokenizer, corpus: Path) -> None:
    assert_travels(Job(Reading(), Recipe(), tokenizer, tokenizer.eos_id, "uint16"), corpus)


@pytest.mark.parametrize("step", STEPS)
def test_every_step_of_ours_can_be_sent(step: str, corpus: Path) -> None:
    recipe = Recipe.of([{"name": step, **NEEDED.get(step, {})}])
    tokenizer = CharTokenizer.train(islice(real_texts(), 40))

    assert_travels(Job(Reading(), recipe, tokenizer, None, "uint16", keep_rejected=True), corpus)


def test_without_ray_its_engine_is_refused(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(MissingExtra, match=r"pip install .*\[ray\]"):
        prepare(corpus, tmp_path / "corpus", "char", engine="ray")


@pytest.mark.parametrize("error", [SourceError("a.jsonl:3: not JSON", hint="mend it"), MissingExtra.of("ray", "ray")])
def test_an_error_that_was_sent_says_the_same(error: MillstreamError) -> None:
    sent = pickle.loads(pickle.dumps(error))

    assert (type(sent), str(sent), sent.message, sent.hint) == (type(error), str(error), error.message, error.hint)
