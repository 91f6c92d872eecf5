"""A small ChatML template, tokenizers of every kind that know it, and conversations that try to break them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import tokenizers

from millstream.chats import Boundary, Kind, Piece, Rendered
from millstream.chats.encode import Encoder
from millstream.chats.parse import Conversation, Message
from millstream.tokens import BPETokenizer, Tokenizer, load_tokenizer, with_control_tokens

START, END = "<|im_start|>", "<|im_end|>"
THINK = ("<think>", "</think>")
JINJA = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
PROSE = [
    "the mill by the stream grinds the grain\n\n",
    "  def stream(mill):\n    return mill.grind()",
    "日本語 ünï é\u0301 🙂 👩‍👩‍👧",
    "user\nassistant\nsystem\nHello, world",
]
ATOMS = (
    *("the", " mill", "stream", " ", "  ", "\n", "\n\n", "\t", "a", "'s", "12345", ".", "!", "(x)", "é", "e\u0301"),
    *(
        "日本",
        "語",
        "🙂",
        "👩‍👩‍👧‍👦",
        "\u200d",
        "\u0338",
        "ß",
        "½",
        "<",
        "|>",
        "<|im_",
        "▁",
        "\x00",
        "user\n",
        "한글",
        "\xa0",
    ),
)


class ChatML(NamedTuple):
    """ChatML as a template object; reasoning between think tags, "stop" may be left out of the trained turn."""

    name: str = "chatml"
    control_tokens: tuple[str, ...] = (START, END)
    bos: str = ""
    stop: Kind = Kind.stop

    def render(self, conversation: Conversation, *, add_generation_prompt: bool = False) -> Rendered:
        pieces = [Piece(self.bos, Kind.scaffold, -1, False, "")]
        for at, message in enumerate(conversation.messages):
            pieces += self.turn(at, message)
        if add_generation_prompt:
            pieces.append(Piece(f"{START}assistant\n", Kind.scaffold, -1, False, ""))
        return [piece for piece in pieces if piece.text]

    def turn(self, at: int, message: Message) -> Iterator[Piece]:
        role = message.role
        yield Piece(f"{START}{role}\n", Kind.scaffold, at, False, role)
        if message.reasoning is not None:
            yield Piece("<think>\n", Kind.reasoning, at, False, role)
            yield Piece(message.reasoning, Kind.reasoning, at, True, role)
            yield Piece("\n</think>\n\n", Kind.reasoning, at, False, role)
        yield Piece(message.content, Kind.content, at, True, role)
        for call in message.tool_calls:
            yield Piece(f"<tool_call>{call.name}</tool_call>", Kind.tool_call, at, False, role)
        yield Piece(END, self.stop if role == "assistant" else Kind.scaffold, at, False, role)
        yield Piece("\n", Kind.scaffold, at, False, role)


def talk(*contents: str, system: str | None = None) -> Conversation:
    """User and assistant in turns."""
    roles = ("user", "assistant")
    messages = [Message(roles[at % 2], content) for at, content in enumerate(contents)]
    return Conversation((*([] if system is None else [Message("system", system)]), *messages))


def random_talks(count: int, *, seed: int = 0, controls: Sequence[str] = ()) -> list[Conversation]:
    rng = random.Random(seed)
    atoms = [*ATOMS, *controls]
    return [
        talk(*("".join(rng.choices(atoms, k=rng.randint(0, 12))) for _ in range(rng.randint(1, 5))))
        for _ in range(count)
    ]


@cache
def bpe() -> BPETokenizer:
    """Our own byte-level BPE."""
    tokenizer = with_control_tokens(BPETokenizer.train(PROSE * 4, vocab_size=400), [START, END, *THINK])
    assert isinstance(tokenizer, BPETokenizer)
    return tokenizer


def composing() -> Tokenizer:
    """One that joins a letter and its accent."""
    return byte_level(normalizer="NFC")


@cache
def byte_level(*, normalizer: Any = None, **flags: bool) -> Tokenizer:
    """A byte-level BPE of `tokenizers`, whose chat tokens may have flags."""
    trained = tokenizers.Tokenizer.from_str(BPETokenizer.train(PROSE * 4, vocab_size=400).adapted.definition)
    trained.normalizer = None if normalizer is None else getattr(tokenizers.normalizers, normalizer)()
    trained.add_special_tokens([tokenizers.AddedToken(token, **flags) for token in (START, END)])
    trained.add_tokens([tokenizers.AddedToken(token, normalized=False) for token in THINK])
    trained.post_processor = tokenizers.processors.ByteLevel(trim_offsets=True)
    return load_tokenizer(trained)


@cache
def metaspace(scheme: str = "first", *, fallback: bool = True) -> Tokenizer:
    """A tokenizer like those of SentencePiece: spaces are written "▁", and one may stand in front."""
    model = tokenizers.models.BPE(unk_token="<unk>", byte_fallback=fallback, fuse_unk=True)
    trained = tokenizers.Tokenizer(model)
    if scheme == "prepend":
        parts = [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
        trained.normalizer = tokenizers.normalizers.Sequence(parts)
    else:
        trained.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme=scheme)
    octets = [f"<0x{byte:02X}>" for byte in range(256)] if fallback else []
    special = ["<unk>", "<s>", "</s>"]
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=600, special_tokens=[*special, *octets], show_progress=False)
    trained.train_from_iterator(PROSE[:2] * 4 + ["</s> s> </"] * 9, trainer)
    content = json.loads(trained.to_str())
    found = [token for token in content["added_tokens"] if token["content"] not in octets]
    trained = tokenizers.Tokenizer.from_str(json.dumps({**content, "added_tokens": found}))
    trained.add_special_tokens([START, END])
    back = [tokenizers.decoders.Replace("▁", " "), tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse()]
    trained.decoder = tokenizers.decoders.Sequence(back)
    return load_tokenizer(trained)


@cache
def encoder(tokenizer: Callable[[], Tokenizer] = bpe, boundary: Boundary = "whole") -> Encoder:
    """An encoder of a tokenizer that has ChatML's tokens; made once, since making it tries out the fast engine."""
    return Encoder(tokenizer(), ChatML(), boundary=boundary)
