"""Special tokens in a text: its letters, or their ids when asked for; every engine agrees, and a store keeps to it."""

from __future__ import annotations

import importlib
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from millstream.api import prepare
from millstream.errors import TokenizerError
from millstream.store import TokenStore
from millstream.tokens import BPETokenizer, CharTokenizer, Tokenizer, describe_tokenizer, find_tokenizer, load_tokenizer
from millstream.tokens.fast_engine import EngineChoice, EngineTokenizer, SpecialInText
from tokens.vocabularies import ALL, EOS, gpt2_encoding, gpt2_json

FEW = 300


def hugging_face(merges: int = FEW) -> Any:
    tokenizer = tokenizers.Tokenizer.from_str(gpt2_json(merges))
    tokenizer.add_special_tokens(["<|im_end|>"])
    return tokenizer


def sentencepiece(kind: str = "bpe") -> Any:
    library = importlib.import_module("sentencepiece")
    written = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(["the mill by the stream grinds the grain", "a stream of words, 1234"] * 20),
        model_writer=written,
        model_type=kind,
        vocab_size=310,
        byte_fallback=True,
        normalization_rule_name="identity",
        control_symbols=[EOS],
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return library.SentencePieceProcessor(model_proto=written.getvalue())


LIBRARIES: dict[str, Callable[[], Any]] = {
    "tokenizers": hugging_face,
    "tiktoken": lambda: gpt2_encoding(FEW),
    "sentencepiece bpe": sentencepiece,
    "sentencepiece unigram": lambda: sentencepiece("unigram"),
}


@pytest.fixture(scope="module", params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Any:
    return LIBRARIES[request.param]()


def loaded(library: Any, special: SpecialInText | None = None, engine: EngineChoice = "auto") -> Any:
    tokenizer = load_tokenizer(library, special_tokens=special, engine=engine)
    assert isinstance(tokenizer, EngineTokenizer)
    return tokenizer


def eos_of(tokenizer: Any) -> int:
    found: int = tokenizer.token_id(EOS)
    return found


WORDS = st.sampled_from([EOS, "<|im_end|>", "<|endof", "text|>", " ", "\n", "mill", "é", "世", "\u0378", "1"])


@pytest.fixture(scope="module", params=LIBRARIES | {"whole tokenizers": None, "whole tiktoken": None})
def vocabulary(request: pytest.FixtureRequest) -> Any:
    whole = {"whole tokenizers": lambda: hugging_face(ALL), "whole tiktoken": gpt2_encoding}
    return (LIBRARIES | whole)[request.param]()


@pytest.fixture(scope="module", params=["text", "ids"])
def tokenizer(request: pytest.FixtureRequest, vocabulary: Any) -> Any:
    return loaded(vocabulary, request.param)


@given(texts=st.lists(st.lists(WORDS, max_size=8).map("".join), max_size=4))
def test_every_engine_gives_the_ids_of_the_reference(tokenizer: EngineTokenizer, texts: list[str]) -> None:
    expected = [ids.tolist() for ids in tokenizer._reference_batch(texts)]

    assert [ids.tolist() for ids in tokenizer.encode_batch(texts)] == expected
    found = sum(ids.count(eos_of(tokenizer)) for ids in expected)
    assert found == (sum(text.count(EOS) for text in texts) if tokenizer.special_in_text == "ids" else 0)


def test_the_fast_engine_is_proven_in_both_ways(tokenizer: EngineTokenizer) -> None:
    assert tokenizer.engine == "gigatoken" or tokenizer.reference == "sentencepiece"


def test_ids_of_special_tokens_decode_to_their_spelling(library: Any) -> None:
    tokenizer = load_tokenizer(library, special_tokens="ids")

    ids = tokenizer.encode(f"the mill{EOS}")

    assert ids[-1] == eos_of(tokenizer)
    assert tokenizer.decode(ids) == f"the mill{EOS}"
    assert tokenizer.encode_batch([f"the mill{EOS}"])[0].tolist() == ids


def test_the_two_ways_have_different_fingerprints_and_the_same_vocabulary(library: Any) -> None:
    text, ids = loaded(library, "text"), loaded(library, "ids")

    assert text.fingerprint == loaded(library).fingerprint != ids.fingerprint
    assert ids.fingerprint == loaded(library, "ids", "reference").fingerprint
    same = ("vocab_size", "eos_id", "pad_id")
    assert [getattr(text, name) for name in same] == [getattr(ids, name) for name in same]


@pytest.mark.parametrize("special", ["text", "ids"])
def test_a_saved_or_pickled_tokenizer_keeps_to_its_way(library: Any, special: SpecialInText, tmp_path: Path) -> None:
    tokenizer = loaded(library, special)
    tokenizer.save(tmp_path / "tokenizer.json")

    for again in (load_tokenizer(tmp_path), pickle.loads(pickle.dumps(tokenizer))):
        assert again.fingerprint == tokenizer.fingerprint
        assert (again.name, again.eos_id) == (tokenizer.name, tokenizer.eos_id) or special == "text"
        assert again.encode(f"a{EOS}b") == tokenizer.encode(f"a{EOS}b")
    turned: SpecialInText = "ids" if special == "text" else "text"
    assert load_tokenizer(tmp_path, special_tokens=turned).fingerprint == loaded(library, turned).fingerprint


@pytest.mark.parametrize("output", ["corpus", "data.bin"])
def test_a_store_keeps_to_the_way_of_its_tokenizer(library: Any, output: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": f"the{EOS}mill"}) + "\n")
    tokenizer = loaded(library, "ids")

    report = prepare(tmp_path / "a.jsonl", tmp_path / output, tokenizer, eos=None)

    with TokenStore(report.path) as store:
        found = find_tokenizer(report.path, store.manifest["tokenizer"])
        assert found is not None
        assert store.document(0).tolist() == found.encode(f"the{EOS}mill")
        assert store.document(0).tolist().count(eos_of(found)) == 1


def test_a_tokenizer_that_is_found_by_name_keeps_to_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiktoken = importlib.import_module("tiktoken")
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: gpt2_encoding())
    tokenizer = load_tokenizer("gpt2", special_tokens="ids")

    found = find_tokenizer(tmp_path, describe_tokenizer(tokenizer))

    assert found is not None
    assert found.fingerprint == tokenizer.fingerprint
    assert find_tokenizer(tmp_path, describe_tokenizer(tokenizer) | {"special_in_text": 7}) is None


def test_our_own_bpe_finds_special_tokens_when_it_is_loaded_so(tmp_path: Path) -> None:
    BPETokenizer.train(["the mill"], vocab_size=260).save(tmp_path / "tokenizer.json")

    tokenizer = load_tokenizer(tmp_path, special_tokens="ids")

    assert tokenizer.encode(f"{EOS}") == [tokenizer.eos_id]


@pytest.mark.parametrize("tokenizer", [CharTokenizer("abc"), BPETokenizer.train(["the mill"], vocab_size=260)])
def test_a_tokenizer_that_is_made_already_is_not_turned(tokenizer: Tokenizer) -> None:
    assert load_tokenizer(tokenizer, special_tokens="text") is tokenizer
    with pytest.raises(TokenizerError, match="its special tokens in a text are text, not ids"):
        load_tokenizer(tokenizer, special_tokens="ids")


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(TokenizerError, match="special_tokens='both' is unknown"):
        loaded(gpt2_encoding(), "both")  # type: ignore[arg-type]
