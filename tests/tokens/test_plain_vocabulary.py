"""A tokenizer without its control strings: another only where it has to be."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tokenizers

from chats.chatml import PROSE, bpe
from millstream.tokens import load_tokenizer, plain_tokenizer, with_control_tokens
from millstream.tokens.huggingface import HuggingFaceTokenizer
from millstream.tokens.plain_vocabulary import _unspelled
from millstream.tokens.probe import probe_texts
from tokens.definitions import CONTROLS, count_readings, gpt2
from tokens.vocabularies import EOS


def spelling() -> HuggingFaceTokenizer:
    """A BPE that has learned to spell one of its control strings."""
    content = json.loads(bpe().adapted.definition)
    control, vocabulary = "<|im_end|>", content["model"]["vocab"]
    content["model"]["merges"] = [[control[:stop], control[stop]] for stop in range(1, len(control))]
    for left, right in content["model"]["merges"]:
        vocabulary.setdefault(left + right, 1000 + len(vocabulary))
    content["pre_tokenizer"]["use_regex"] = False
    content["added_tokens"] = []
    made = tokenizers.Tokenizer.from_str(json.dumps(content))
    made.add_special_tokens(["<|im_end|>"])
    return HuggingFaceTokenizer(made, name="spelling")


def test_the_parts_of_a_conversation_are_encoded_with_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    read = count_readings(monkeypatch)
    tokenizer = load_tokenizer(gpt2())
    plain_tokenizer(with_control_tokens(tokenizer, ["<tool>"]), CONTROLS)

    assert [length for length in read if length > 100_000] == [len(gpt2().to_str())]


def test_a_control_token_that_the_model_knows_but_never_spells_leaves_the_model_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = count_readings(monkeypatch)
    tokenizer = load_tokenizer(gpt2())
    assert tokenizer.token_id(EOS) == 50256 and isinstance(tokenizer, HuggingFaceTokenizer)

    made = plain_tokenizer(tokenizer, CONTROLS)

    assert [length for length in read if length > 100_000] == [len(gpt2().to_str())]
    assert 50256 not in made.opening.encode(f"a{EOS}b")
    assert made.whole is not None and 50256 in made.whole.encode(f"a{EOS}b")


@pytest.mark.parametrize("make", [spelling, lambda: load_tokenizer(gpt2()), lambda: bpe().adapted])
def test_plain_text_has_the_ids_of_a_model_that_cannot_spell_its_control_strings(make: Any) -> None:
    tokenizer = make()
    names = {token["content"] for token in tokenizer.head["added_tokens"]}
    bare = {**tokenizer.head, "post_processor": None, "added_tokens": []}
    unspelled = tokenizer.variant(bare, json.dumps(_unspelled(tokenizer.model(), names, always=True)))
    opening = plain_tokenizer(tokenizer).opening

    for text in [*probe_texts(sorted(names))[::7], *PROSE, *names]:
        assert opening.encode(text) == unspelled.encode(text)


def test_a_control_string_that_the_model_spells_is_text_without_it() -> None:
    tokenizer = spelling()
    control = tokenizer.token_id("<|im_end|>")

    assert tokenizer.encode("<|im_end|>") == [control]
    assert control not in plain_tokenizer(tokenizer).opening.encode("a<|im_end|>b")
