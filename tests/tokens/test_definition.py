"""A definition is read once, however big; what differs from it only around its model shares that."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from millstream.tokens import BPETokenizer, load_tokenizer
from millstream.tokens.definition import join_definition, split_definition, split_merges
from millstream.tokens.huggingface import HuggingFaceTokenizer
from millstream.tokens.probe import probe_texts
from millstream.tokens.tokenizer import canonical, fingerprint_of
from tokens.definitions import count_readings, gpt2


def worded() -> Any:
    """Added tokens of both kinds and with flags, one of them in the model; a normalizer; truncation."""
    made = tokenizers.Tokenizer.from_str(
        BPETokenizer.train(["the mill by the stream"] * 4, vocab_size=280).adapted.definition
    )
    made.normalizer = normalizers.NFC()
    made.add_tokens([AddedToken("chromosome", single_word=True, normalized=True), "th", AddedToken("<b>", lstrip=True)])
    made.add_special_tokens([AddedToken("<|im_end|>", rstrip=True)])
    made.enable_truncation(max_length=3)
    return made


def marked() -> Any:
    """Spaces are marks, with one in front."""
    letters = {letter: id for id, letter in enumerate("▁abcdehilmnrst")}
    made = tokenizers.Tokenizer(
        models.BPE({"<unk>": 14, **letters, "▁th": 15, "▁t": 16}, [("▁", "t"), ("▁t", "h")], unk_token="<unk>")
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    made.decoder = decoders.Metaspace()
    made.add_special_tokens(["<unk>", "</s>"])
    return made


def unigram() -> Any:
    made = tokenizers.Tokenizer(
        models.Unigram([("<unk>", 0.0), ("</s>", 0.0), ("▁", -2.0), ("▁the", -3.0), ("a", -4.0)], 0, True)
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.add_special_tokens(["<unk>", "</s>"])
    return made


def words() -> Any:
    made = tokenizers.Tokenizer(models.WordLevel({"a": 0, "[CLS]": 1, "?": 2, "b": 70}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.add_special_tokens(["[CLS]"])
    return made


MADE = [gpt2, worded, marked, unigram, words]


@pytest.fixture(params=MADE, ids=lambda make: make.__name__)
def own(request: pytest.FixtureRequest) -> HuggingFaceTokenizer:
    make: Callable[[], Any] = request.param
    return HuggingFaceTokenizer(make(), name="own")


def test_a_definition_is_its_head_and_its_model(own: HuggingFaceTokenizer) -> None:
    head, model = split_definition(own.definition)

    assert {**head, "model": json.loads(model)} == json.loads(own.definition)
    assert json.loads(join_definition(head, model)) == json.loads(own.definition)


def test_a_tokenizer_that_is_ours_is_read_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    read = count_readings(monkeypatch)
    path = tmp_path / "tokenizer.json"
    path.write_text(gpt2().to_str(), encoding="utf-8")
    tokenizer = load_tokenizer(path)
    assert len(read) == 1

    assert tokenizer.encode("the mill") == load_tokenizer(gpt2()).encode("the mill")
    assert len(read) == 2  # the other one is shared with its caller, and was copied


def test_a_variant_gives_the_ids_of_one_that_is_built_from_its_definition(own: HuggingFaceTokenizer) -> None:
    head, model = split_definition(own.definition)
    heads = [head, {**head, "normalizer": None}, {**head, "pre_tokenizer": {"type": "Whitespace"}}]
    texts = [*probe_texts(own._probe_tokens())[::5], "the chromosome by the <b>  mill<|im_end|> </s> a"]

    for changed, special in itertools.product(heads, ("text", "ids")):
        shared = own.variant(changed, special_in_text=special)
        built = own.variant(changed, model, special_in_text=special)
        assert [shared.encode(text) for text in texts] == [built.encode(text) for text in texts]
        assert (shared.fingerprint, shared.vocab_size) == (built.fingerprint, built.vocab_size)
        assert shared.definition == built.definition


def test_a_variant_whose_added_tokens_the_library_renumbers_is_what_the_library_makes_of_it() -> None:
    own = HuggingFaceTokenizer(gpt2(), name="own")
    head, model = split_definition(own.definition)
    head["added_tokens"] = [{**token, "id": token["id"] + 9} for token in head["added_tokens"]]
    shared, built = own.variant(head), own.variant(head, model)

    assert shared.definition == built.definition
    assert shared.token_id("<|im_end|>") == built.token_id("<|im_end|>") == 50258


def test_the_same_variant_is_given_again_so_that_its_engine_is_proven_once(own: HuggingFaceTokenizer) -> None:
    bare = {**own.head, "post_processor": None}

    assert own.variant(bare) is own.variant(dict(bare))
    others = [own.variant(bare, special_in_text="ids"), own.variant(bare, keep_names=True), own.variant(own.head)]
    assert len({id(each) for each in (own.variant(bare), *others)}) == 3 + (bare != own.head)
    assert not pickle.loads(pickle.dumps(own))._variants


def test_a_variant_can_be_pickled(own: HuggingFaceTokenizer) -> None:
    variant = own.variant({**own.head, "post_processor": None}, special_in_text="ids")
    copy = pickle.loads(pickle.dumps(variant))

    text = "the mill<|im_end|></s> by"
    assert (copy.encode(text), copy.fingerprint) == (variant.encode(text), variant.fingerprint)


def test_what_the_users_object_becomes_later_changes_no_variant() -> None:
    given = gpt2()
    own = HuggingFaceTokenizer(given, name="own")
    before = own.variant(own.head).encode("the mill")
    given.model = models.BPE()

    fresh = own._variant(own.head, None, keep_names=False)
    assert own.encode("the mill") == fresh.encode("the mill") == own.variant(own.head).encode("the mill") == before


def test_the_fingerprint_is_that_of_all_that_decides_the_ids(own: HuggingFaceTokenizer) -> None:
    content = json.loads(own.definition)
    model = content["model"]
    rest = {key: value for key, value in model.items() if key not in ("merges", "type")}
    added = [(token["id"], token["content"], token["special"]) for token in content["added_tokens"]]
    parts = [rest, model.get("merges", []), added, content["normalizer"], content["pre_tokenizer"]]

    assert own.fingerprint == fingerprint_of(parts)


@given(
    pairs=st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1)), min_size=1),
    tokens=st.lists(st.text('\\"},:[]merges', min_size=1)),
)
def test_merges_are_spelled_in_one_way_whatever_their_letters(pairs: list[tuple[str, str]], tokens: list[str]) -> None:
    tokens += ['},"merges":[[', '\\"', "\\", '"]]}']
    wild = {"type": "BPE", "vocab": {token: id for id, token in enumerate(tokens)}, "merges": pairs}
    model = json.dumps(wild, ensure_ascii=False, separators=(",", ":"))
    joined = {**wild, "merges": [" ".join(pair) for pair in pairs if " " not in pair[0]]}

    assert split_merges(model) == ({key: wild[key] for key in ("type", "vocab")}, canonical(pairs))
    assert split_merges(json.dumps(joined))[1] == canonical([pair for pair in pairs if " " not in pair[0]])


@pytest.mark.parametrize("merges", itertools.permutations([("a", ">"), ("<", "a"), ("<a", ">"), ("<", "a>")], 3))
def test_a_token_that_a_bpe_may_not_spell_never_comes_out_of_it(merges: Any) -> None:
    vocabulary = {"<": 0, "a": 1, ">": 2, "<a": 3, "a>": 4, "<a>": 5}
    tokenizer = HuggingFaceTokenizer(tokenizers.Tokenizer(models.BPE(vocabulary, list(merges))), name="own")
    texts = ["".join(letters) for length in range(7) for letters in itertools.product("<a>", repeat=length)]

    assert tokenizer.may_spell("<a>") == any(5 in tokenizer.encode(text) for text in texts)
