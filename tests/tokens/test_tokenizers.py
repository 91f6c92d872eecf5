"""Every tokenizer: texts survive, special tokens in texts stay texts, ids stay inside the vocabulary."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import MissingExtra, TokenizerError
from millstream.tokens import BPETokenizer, CharTokenizer, Tokenizer, load_tokenizer, resolve_eos
from unloading import unload

BPE = BPETokenizer.train(["the mill by the stream", "def f(x): return x"] * 3, vocab_size=290)


@given(st.text(st.characters(codec="utf-8")))
def test_byte_level_bpe_gives_any_text_back(text: str) -> None:
    assert BPE.decode(BPE.encode(text)) == text


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=20), min_size=1))
def test_a_char_tokenizer_gives_the_texts_back_that_it_learned(texts: list[str]) -> None:
    tokenizer = CharTokenizer.train(texts)

    assert [tokenizer.decode(tokenizer.encode(text)) for text in texts] == texts
    assert all(id < tokenizer.eos_id for text in texts for id in tokenizer.encode(text))


@pytest.fixture(params=["bpe", "char", "file", "folder", "tokenizers", "tiktoken", "transformers"])
def tokenizer(request: pytest.FixtureRequest, bpe: BPETokenizer, tokenizer_json: Path, encoding: Any) -> Tokenizer:
    ways: dict[str, object] = {
        "bpe": bpe,
        "char": CharTokenizer([chr(code) for code in range(32, 127)]),
        "file": tokenizer_json / "tokenizer.json",
        "folder": str(tokenizer_json),
        "tokenizers": tokenizers.Tokenizer.from_file(str(tokenizer_json / "tokenizer.json")),
        "tiktoken": encoding,
        "transformers": FastTokenizer(tokenizer_json),
    }
    return load_tokenizer(ways[request.param])


class FastTokenizer:
    """What a fast tokenizer of transformers looks like from outside."""

    def __init__(self, folder: Path) -> None:
        self.backend_tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.eos_token_id = self.backend_tokenizer.token_to_id("<|im_end|>")
        self.pad_token_id = None
        self.name_or_path = "acme/model"


def test_a_special_token_in_a_text_is_text(tokenizer: Tokenizer) -> None:
    text = "before<|endoftext|>after<|im_end|>"

    ids = tokenizer.encode(text)

    assert tokenizer.eos_id is not None
    assert tokenizer.token_id("<|endoftext|>") not in ids
    assert tokenizer.eos_id not in ids
    assert tokenizer.decode(ids) == text


def test_nothing_is_cut_padded_or_added(tokenizer: Tokenizer) -> None:
    text = "the mill by the stream " * 20

    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("x")) == 1


def test_one_text_or_many_give_the_same_ids_inside_the_vocabulary(tokenizer: Tokenizer) -> None:
    texts = ["the mill", "", "stream " * 50]

    batch = tokenizer.encode_batch(texts)

    assert [ids.tolist() for ids in batch] == [tokenizer.encode(text) for text in texts]
    assert all(0 <= id < tokenizer.vocab_size for ids in batch for id in ids)
    assert isinstance(tokenizer, Tokenizer)


def test_a_fingerprint_is_the_same_tomorrow_and_differs_with_the_vocabulary(tokenizer: Tokenizer) -> None:
    assert len(tokenizer.fingerprint) == 32
    assert tokenizer.fingerprint != BPE.fingerprint


def test_the_config_beside_a_tokenizer_file_names_its_special_tokens(tokenizer_json: Path) -> None:
    tokenizer = load_tokenizer(tokenizer_json)

    assert tokenizer.eos_id == tokenizer.token_id("<|im_end|>")
    assert tokenizer.pad_id == tokenizer.token_id("[PAD]")
    assert resolve_eos(tokenizer, "<|endoftext|>") == 0


def test_without_a_config_the_usual_end_of_text_token_is_found(tokenizer_json: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text((tokenizer_json / "tokenizer.json").read_text())

    assert load_tokenizer(tmp_path).eos_id == 0


def test_truncation_and_padding_do_not_change_the_fingerprint(tokenizer_json: Path, tmp_path: Path) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_json / "tokenizer.json"))
    before = load_tokenizer(tokenizer).fingerprint
    tokenizer.no_truncation()
    tokenizer.no_padding()

    assert load_tokenizer(tokenizer).fingerprint == before


def test_the_users_own_tokenizer_is_not_touched(tokenizer_json: Path) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_json / "tokenizer.json"))
    before = tokenizer.to_str()

    load_tokenizer(tokenizer).encode("the mill")

    assert tokenizer.to_str() == before
    assert not tokenizer.encode_special_tokens


def test_ids_above_the_number_of_tokens_are_inside_the_vocabulary() -> None:
    holes = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 70_000}, unk_token="a"))

    assert load_tokenizer(holes).vocab_size == 70_001


def test_training_gives_the_same_bpe_in_every_process(tmp_path: Path) -> None:
    code = "from millstream.tokens import BPETokenizer as T; print(T.train(['the mill by the stream', 'a mill'] * 9, vocab_size=280).fingerprint)"  # noqa: E501
    seen = {
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    }

    assert len(seen) == 1


def test_a_saved_bpe_is_the_same_after_loading(bpe: BPETokenizer, tmp_path: Path) -> None:
    bpe.save(tmp_path / "tokenizer.json")

    loaded = BPETokenizer.load(tmp_path / "tokenizer.json")

    assert loaded.fingerprint == bpe.fingerprint == load_tokenizer(tmp_path).fingerprint
    assert (loaded.eos_id, loaded.vocab_size) == (bpe.eos_id, bpe.vocab_size) == (0, 300)


def test_a_saved_char_tokenizer_is_the_same_after_loading(tmp_path: Path) -> None:
    tokenizer = CharTokenizer.train(["aé世\n"], unknown="replace")
    tokenizer.save(tmp_path / "char.json")

    loaded = CharTokenizer.load(tmp_path / "char.json")

    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.encode("a?世") == [1, 5, 3]
    assert loaded.decode([1, 5, 4]) == "a<|unknown|><|endoftext|>"


def test_an_unknown_character_is_named_with_its_place() -> None:
    with pytest.raises(TokenizerError, match=r"'é' \(U\+00E9\) at place 2 is not among the 2 known ones"):
        CharTokenizer("ab").encode("abé")


def test_an_id_outside_the_vocabulary_is_refused(encoding: Any) -> None:
    with pytest.raises(TokenizerError, match="outside the vocabulary"):
        CharTokenizer("ab").decode([9])
    with pytest.raises(TokenizerError, match="cannot decode"):
        load_tokenizer(encoding).decode([99_999])


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("char", "has to be learned from texts first"),
        ("bpe:4096", "has to be learned"),
        ("no-such-encoding", "tiktoken has no encoding"),
        ("missing/tokenizer.json", "there is no such file"),
        (42, "an object of type int"),
    ],
)
def test_what_is_no_tokenizer_gets_a_clear_error(wanted: object, message: str) -> None:
    with pytest.raises(TokenizerError, match=message) as caught:
        load_tokenizer(wanted)

    assert caught.value.hint


@pytest.mark.parametrize("content", ["not json", "{}", '{"model": {"type": "Martian"}}', "[1, 2]", "\x00"])
def test_a_file_that_is_no_tokenizer_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(content)

    with pytest.raises(TokenizerError, match=r"tokenizer\.json: not "):
        load_tokenizer(tmp_path)


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"this folder has no tokenizer\.json"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("content", [{"format": "millstream char tokenizer", "version": 9}, {"version": 1}, []])
def test_a_file_that_is_no_char_tokenizer_is_refused(content: object, tmp_path: Path) -> None:
    (tmp_path / "char.json").write_text(json.dumps(content))

    with pytest.raises(TokenizerError, match="not a saved char tokenizer"):
        CharTokenizer.load(tmp_path / "char.json")


def test_tiktoken_without_a_network_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    tiktoken = pytest.importorskip("tiktoken")

    def offline(name: str) -> None:
        raise ConnectionError("no route")

    monkeypatch.setattr(tiktoken, "get_encoding", offline)

    with pytest.raises(TokenizerError, match=r"could not fetch the vocabulary of 'gpt2'[\s\S]*TIKTOKEN_CACHE_DIR"):
        load_tokenizer("gpt2")


def test_without_the_fast_engine_the_reference_encodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "awkward", None)  # which gigatoken needs
    unload(monkeypatch, "millstream.tokens.gigatoken")
    monkeypatch.delattr("millstream.tokens.gigatoken", raising=False)
    tokenizer = BPETokenizer.train(["the mill"], vocab_size=260)

    assert tokenizer.engine == "tokenizers"
    assert tokenizer.encode_batch(["the mill"])[0].tolist() == tokenizer.encode("the mill")


@pytest.mark.parametrize("package", ["tokenizers", "tiktoken"])
def test_a_missing_library_names_its_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = {"tokenizers": "huggingface", "tiktoken": "tiktoken"}[package]
    monkeypatch.setitem(sys.modules, package, None)
    unload(monkeypatch, f"millstream.tokens.{module}")

    with pytest.raises(MissingExtra, match=re.escape(MissingExtra.of(package, "tokenizers").hint or "no hint")):
        if package == "tokenizers":
            BPETokenizer.train(["x"])
        else:
            load_tokenizer("gpt2")


def test_an_end_token_that_does_not_exist_is_refused() -> None:
    for eos in ("<|nope|>", 99_999, -1, False, True):
        with pytest.raises(TokenizerError, match="has no token") as refused:
            resolve_eos(BPE, eos)
        assert "eos=None for no token" in str(refused.value.hint)


def test_a_vocabulary_too_small_for_the_bytes_is_refused() -> None:
    with pytest.raises(TokenizerError, match="vocab_size=256 is too small"):
        BPETokenizer.train(["x"], vocab_size=256)
