"""Plain conversations that the core puts into the shapes of a format: the same tokens as by the slower road."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from chats.chatml import END, START, byte_level
from chats.talk import TEXTS
from millstream.chats import Boundary, Choice, Limit, Policy, encode_block
from millstream.chats.block import EncodedBlock
from millstream.chats.encode import Encoder
from millstream.chats.parse import Options, RowParser
from millstream.chats.templates import ChatTemplate, Variant
from millstream.chats.templates.builtin import BUILTINS
from millstream.sources import Record, RecordBlock
from millstream.tokens import BPETokenizer

KEEP = Limit(untrained="keep")
CALM = (
    "Hello",
    "two  words",
    "1.5 kg",
    "naïve café",
    "日本語。",
    "🙂",
    "👩‍👩‍👧",
    "x" * 40,
    '"{}"\\',
    "a\nb",
    "e\u0301",
    "Å",
)
ODD = (
    *TEXTS,
    "\u3000wide",
    "end\u2003",
    "\x1f",
    "\xa0",
    "\x85x",
    "</s>",
    START,
    "<|channel>x<channel|>",
    "\ue0001\ue001",
)
SEQUENCES = ("ua", "sua", "uaua", "suaua", "uua", "usua", "a", "au", "aa", "u", "du", "dua", "sdua", "saua", "ta")
NAMES = {"u": "user", "a": "assistant", "s": "system", "d": "developer", "t": "tool"}


@cache
def encoder(name: str, variant: Variant, boundary: Boundary, train: Choice) -> Encoder:
    """An encoder that checks no template: here it matters only that both roads agree."""
    tokenizer = BPETokenizer.train(["the mill by the stream\n\n\nuser assistant system: 12"] * 9, vocab_size=300)
    template = ChatTemplate.of(name, variant=variant)
    how: dict[str, Any] = {"policy": Policy(train), "boundary": boundary, "add_control_tokens": True, "check": False}
    return Encoder(tokenizer, template, **how)


def chats(count: int, texts: tuple[str, ...], seed: int = 0) -> list[dict[str, Any]]:
    """Conversations of all sequences of roles."""
    chance = random.Random(seed)
    return [
        {"messages": [{"role": NAMES[letter], "content": chance.choice(texts)} for letter in chance.choice(SEQUENCES)]}
        for _ in range(count)
    ]


def block(lines: list[str]) -> RecordBlock:
    """Lines as sources give them."""
    return RecordBlock.of([Record(line, "a", row, 0, len(line)) for row, line in enumerate(lines)], "a")


def both_roads(
    lines: list[str], encoder: Encoder, limit: Limit = KEEP, format: str = "messages"
) -> tuple[EncodedBlock, int]:
    """What rows become, which must not depend on the road; and how many documents the core made."""
    assert encoder.shapes is not None
    rows = block(lines)
    fast = encode_block(rows, RowParser(format), encoder, limit)
    shaped = encoder.shapes.encode(rows.text, rows.ends, RowParser(format), limit)
    shapes, encoder.shapes = encoder.shapes, None
    try:
        slow = encode_block(rows, RowParser(format), encoder, limit)
    finally:
        encoder.shapes = shapes
    for name in ("ids", "weights", "ends", "places"):
        assert np.array_equal(getattr(fast, name), getattr(slow, name)), name
    assert sorted(map(repr, fast.bad)) == sorted(map(repr, slow.bad))
    assert (fast.dropped, fast.notes) == (slow.dropped, slow.notes)
    return fast, 0 if shaped is None else len(shaped.places)


LINES = [json.dumps(chat) for chat in [*chats(120, CALM), *chats(120, CALM + ODD, seed=1)]]


@pytest.mark.parametrize("variant", ["prompt", "training"])
@pytest.mark.parametrize("name", BUILTINS)
def test_every_format_gives_the_same_tokens_by_both_roads(name: str, variant: Variant) -> None:
    assert both_roads(LINES, encoder(name, variant, "whole", "assistant"))[1] > 10


@pytest.mark.parametrize("train", ["all", "last", "last_round", "explicit"])
def test_every_policy_gives_the_same_weights_by_both_roads(train: Choice) -> None:
    for name in ("qwen3", "llama2"):
        assert both_roads(LINES, encoder(name, "training", "whole", train))[1] > 10


@pytest.mark.parametrize("name", ["chatml", "llama2", "gemma3"])
def test_parts_that_are_encoded_apart_are_the_same_by_both_roads(name: str) -> None:
    assert both_roads(LINES, encoder(name, "prompt", "split", "assistant"))[1] > 10


@pytest.mark.parametrize("limit", [Limit(24, cut, "keep") for cut in ("drop", "keep_start", "turns", "split", "error")])
def test_rows_that_are_too_long_take_the_slower_road(limit: Limit) -> None:
    lines = [json.dumps(chat) for chat in chats(200, CALM)]
    made, natively = both_roads(lines, encoder("chatml", "prompt", "whole", "assistant"), limit)
    assert 0 < natively < 200
    assert np.diff(made.ends, prepend=0).max() <= 24


@pytest.mark.parametrize("untrained", ["keep", "drop", "error"])
def test_rows_with_nothing_to_learn_are_what_the_limit_says(untrained: Any) -> None:
    rows = [*chats(100, ("", "x", " ")), {"messages": [{"role": NAMES[letter], "content": "x"} for letter in "au"]}]
    made, natively = both_roads(
        [json.dumps(row) for row in rows],
        encoder("chatml", "prompt", "whole", "last_round"),
        Limit(untrained=untrained),
    )
    assert natively > 0
    assert (len(rows) - 1 in made.places) == (untrained == "keep")  # nothing comes after its last question
    assert (made.dropped["nothing to train"] > 0) == (untrained == "drop")
    assert ("nothing to train" in {bad.reason for bad in made.bad}) == (untrained == "error")


def test_tokens_across_a_border_are_counted_or_refused() -> None:
    lines = [json.dumps(chat) for chat in chats(100, ("\nuser", "\n\nx", "y"))]
    known = encoder("chatml", "prompt", "whole", "assistant")
    made, natively = both_roads(lines, known)
    assert made.notes["straddlers"] > 0 and natively > 0
    strict = Encoder(known.tokenizer, known.template, strict=True, check=False)
    refused, _ = both_roads(lines, strict)
    assert {bad.reason for bad in refused.bad} >= {"straddler"}


@pytest.mark.parametrize(
    "make",
    [
        byte_level,
        lambda: byte_level(normalizer="NFC"),
    ],
    ids=["byte level", "composing"],
)
def test_other_vocabularies_too(make: Callable[[], Any]) -> None:
    known = Encoder(make(), ChatTemplate.of("chatml"), check=False)
    both_roads([json.dumps(chat) for chat in chats(150, CALM)], known)
    plain = [text for text in CALM if text != "e\u0301"]
    assert both_roads([json.dumps(chat) for chat in chats(150, tuple(plain))], known)[1] > 50


def test_sharegpt_is_read_too() -> None:
    lines = []
    for chat in chats(150, CALM + ODD):
        names = {"user": "human", "assistant": "gpt"}
        turns = [{"from": names.get(m["role"], m["role"]), "value": m["content"]} for m in chat["messages"]]
        lines.append(json.dumps({"conversations": turns, "id": 7}))
    lines.append(json.dumps({"conversations": [{"from": "human", "value": "x"}], "system": "y"}))
    assert both_roads(lines, encoder("chatml", "prompt", "whole", "assistant"), format="sharegpt")[1] > 20


def test_whatever_says_more_or_is_wrong_takes_the_slower_road() -> None:
    plain = {"role": "assistant", "content": "yes"}
    rows: list[Any] = [
        {"messages": [plain], "tools": [{"type": "function", "function": {"name": "f"}}]},
        {"messages": [plain], "chat_template_kwargs": {"enable_thinking": False}},
        {"messages": [{**plain, "weight": 0.5}]},
        {"messages": [{**plain, "name": "x"}]},
        {"messages": [{**plain, "content": None}]},
        {"messages": [{**plain, "content": ""}]},
        {"messages": [{**plain, "content": [{"type": "text", "text": "x"}]}]},
        {"messages": [{**plain, "role": "bot"}]},
        {"messages": []},
        {"messages": None},
        {"other": 1},
        [plain],
        7,
    ]
    lines = [json.dumps(row) for row in rows]
    lines += [
        '{"messages": [{"role": "assistant", "content": "\\ud800"}]}',
        '{"messages": [{"role": "assistant", "content": "a"}], "messages": [{"role": "assistant", "content": "b"}]}',
        '{"messages": [{"role": "assistant", "content": "a", "content": "b"}]}',
        '{"messages": [{"role": "assistant", "content": "a"}], "x": NaN}',
        '{"messages": [{"role": "assistant", "content": "a"}]',
        '{"messages": [{"role": "assistant", "content": "a"}]} x',
        '{"m\\u0065ssages": [{"role": "assistant", "content": "a"}]}',
        "",
    ]
    assert both_roads(lines, encoder("chatml", "prompt", "whole", "assistant"))[1] == 0
    beside = '{"id": [1, {"x": null}], "messages": [{"content": "\\u00e9", "role": "assistant"}], "source": "y"}'
    assert both_roads([beside], encoder("chatml", "prompt", "whole", "assistant"))[1] == 1


def test_only_what_is_known_to_follow_shapes_goes_through_the_core() -> None:
    known = encoder("chatml", "prompt", "whole", "assistant")
    jinja = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    assert known.shapes is not None
    assert Encoder(known.tokenizer, ChatTemplate.of(jinja, eos_token=END), check=False).shapes is None
    assert Encoder(known.tokenizer, known.template, trust_content=True, check=False).shapes is None
    for parser in (RowParser("alpaca"), RowParser(), RowParser("messages", Options(inline_think=True))):
        rows = block([json.dumps(chats(1, CALM)[0])])
        assert known.shapes.encode(rows.text, rows.ends, parser, KEEP) is None
