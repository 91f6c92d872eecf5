"""Vocabularies of other libraries: tiktoken's ranks and SentencePiece models are masked by the same law."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from chats.chatml import END, START, ChatML, random_talks, talk
from millstream.chats.encode import Encoder
from millstream.chats.parse import Completion
from millstream.chats.show import show
from millstream.tokens import load_tokenizer
from tokens.vocabularies import gpt2_encoding


def test_a_tiktoken_encoding_gets_control_tokens_and_masks_by_bytes() -> None:
    encoder = Encoder(load_tokenizer(gpt2_encoding()), ChatML(), add_control_tokens=True)
    assert encoder.tokenizer.vocab_size == 50259
    found = encoder.encode([talk(f"hi{END}", "🙂 yes")]).rows[0][0]
    text = show(found, encoder.tokenizer.decode)
    assert text == f"{START}user\nhi{END}{END}\n{START}assistant\n⟦🙂 yes{END}⟧\n"
    assert (found.ids == encoder.control_ids[END]).sum() == 2
    rows = [ChatML().render(each) for each in random_talks(50)]
    for row, each in zip(rows, encoder.encode_rows(rows), strict=True):
        assert encoder.tokenizer.decode(each.ids.tolist()) == "".join(piece.text for piece in row)


@pytest.fixture(scope="module")
def sentencepiece_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sentencepiece = pytest.importorskip("sentencepiece")
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the mill by the stream grinds the grain", "a stream of words, 1234"] * 20),
        model_writer=written,
        model_type="bpe",
        vocab_size=310,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        hard_vocab_limit=False,
        control_symbols=["[INST]", "[/INST]"],
        minloglevel=2,
    )
    path = tmp_path_factory.mktemp("sp") / "tokenizer.model"
    path.write_bytes(written.getvalue())
    return path


def test_a_sentencepiece_model_says_which_characters_its_tokens_cover(sentencepiece_model: Path) -> None:
    tokenizer = load_tokenizer(sentencepiece_model)
    found = Encoder(tokenizer).encode([Completion("the mill", " 🙂 grinds"), Completion("the mi", "ll")])
    assert [tokenizer.decode(row.ids[row.weights > 0].tolist()) for (row,) in found.rows] == ["🙂 grinds", ""]
    assert found.counts["straddlers"] == 1
    assert [row.trained for (row,) in found.rows] == [len(tokenizer.encode("🙂 grinds")) + 1, 1]


def test_a_sentencepiece_model_covers_every_character_in_order(sentencepiece_model: Path) -> None:
    tokenizer = load_tokenizer(sentencepiece_model)
    for text in ("the mill", "é🙂x", " a  b", ""):
        ((ids, places),) = tokenizer.offsets([text])  # type: ignore[attr-defined]
        assert ids.tolist() == tokenizer.encode(text)
        covered = {at for begin, end in places.tolist() for at in range(begin, end)}
        assert covered == set(range(len(text))) and (places[:, 0] <= places[:, 1]).all()
