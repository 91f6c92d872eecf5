"""Rollouts as people read them: all that was said, what was trained, how good each token was, how the others did."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream import BPETokenizer, RolloutDataLoader
from millstream.advantages import Overlong
from millstream.loaders.rollouts import show_rollout
from millstream.loaders.rollouts.marks import EDGE_TOKENS, MARKS, WIDTH, columns, pieces_of
from millstream.loaders.rollouts.show import MOST_ROWS, OF_EACH_END
from millstream.rollouts import block_of
from millstream.stats import Shown, visible

TOKENIZER = BPETokenizer.train(["the mill by the stream, 水車 🙂 é\n\t"], vocab_size=290)


def record(text: str, answer: str, number: int = 0, **more: Any) -> dict[str, Any]:
    prompt, said = TOKENIZER.encode(text), TOKENIZER.encode(answer)
    mask = [0] * len(prompt) + [1] * len(said)
    known = {"rollout_id": f"r{number}", "group_id": "g", "reward": float(number % 2), "finish": "stop"}
    return {**known, "token_ids": [*prompt, *said], "loss_mask": mask, **more}


def shown(records: list[dict[str, Any]], row: int = 0, *, whole: bool = False, **how: Any) -> Shown:
    with RolloutDataLoader(records, tokenizer=TOKENIZER, framework="numpy", **how) as loader:
        return loader.show(row, whole=whole)


def rated(answer: str, advantages: Any, prompt: str = "2+2?\n") -> Shown:
    """A rollout whose n tokens have the advantages `advantages(n)`."""
    block = block_of([record(prompt, answer)])
    columns = {"advantages": np.asarray(advantages(int(block.ends[-1])))}
    return show_rollout(block.with_columns(**columns), 0, [0], decode=TOKENIZER.decode)


def body(told: str) -> list[str]:
    """The lines between the legend and the table."""
    return told.splitlines()[2:-2]


@given(st.text(min_size=1, max_size=40))
def test_pieces_are_the_whole_text(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    ids = [int(each) for each in TOKENIZER.encode(text)]
    pieces = pieces_of(ids, np.ones(len(ids), bool), None, TOKENIZER.decode, whole=True)
    assert "".join(piece.text for piece in pieces) == visible(text, keep="\n\t")


@given(st.lists(st.integers(-9, 9), min_size=2, max_size=9))
def test_the_deviation_of_a_group_is_the_one_that_its_advantages_are_made_with(rewards: list[int]) -> None:
    records = [record("2+2?\n", "4.", number, reward=float(reward)) for number, reward in enumerate(rewards)]
    told = shown(records)  # grpo: (reward - mean) / (deviation + 1e-6)
    mean, deviation = (float(each) for each in re.findall(r"mean (\S+) ± ([^\s,]+)", told)[0])
    advantages = [float(each) for each in re.findall(r"advantage (\S+)", told)]

    assert len(advantages) == len(rewards)
    for reward, advantage in zip(rewards, advantages, strict=True):
        assert advantage * deviation == pytest.approx(reward - mean, abs=0.06)


def test_penalties_are_in_the_deviation_too() -> None:
    records = [record("2+2?\n", "4." * (1 + 8 * number), number) for number in range(2)]
    told = shown(records, advantages={"overlong": Overlong(max_length=20, buffer=18)})
    assert "with penalties mean" in told


def test_one_advantage_stands_behind_its_stretch() -> None:
    told = shown([record("2+2?\n", "4.", 1), record("2+2?\n", "5.", 2)], estimator="rloo")
    assert "\n2+2?\n⟦4.⟧+1\n" in told
    assert {part.style for part in told.parts if "⟦" in part.text} == {"better"}


def test_tokens_of_different_advantages_have_marks_below_them() -> None:
    told = rated("the 水車 🙂 mill", lambda n: np.linspace(3, -3, n), prompt="2?")
    assert body(told) == [
        "2?⟦the 水車 🙂 mill⟧",
        "   △   ▽    ▽  ▼",
    ]
    assert told.splitlines()[1] == "advantages from -3 to +0.6:  ▲ ▼ beyond ±1.8  △ ▽ beyond ±0.45  · about 0"


def test_lines_fit_a_terminal_and_ends_of_lines_have_marks_too() -> None:
    told = rated("the mill by the stream\n\n" * 9 + "the mill " * 40, lambda n: np.sin(np.arange(n)))
    assert max(map(columns, body(told))) <= WIDTH
    assert told.count("↵") == 18
    assert told.count("⟦") == told.count("⟧") == 1


def test_colours_say_what_the_marks_say() -> None:
    told = rated("the mill by the stream", lambda n: np.linspace(-2, 2, n), prompt="")
    styles = {part.text: part.style for part in told.parts if part.text in set(MARKS)}
    assert styles["▲"] == "much better" and styles["▼"] == "much worse"


def test_long_prompts_lose_their_middle_unless_the_whole_is_asked_for() -> None:
    records = [record("水" * 3 * EDGE_TOKENS + "the stream\n", "4.", number) for number in range(2)]
    cut, whole = shown(records), shown(records, whole=True)
    assert "⋯ " in cut and " tokens not shown ⋯" in cut and "the stream\n⟦4.⟧" in cut
    assert "⋯" not in whole and "水" * 3 * EDGE_TOKENS in whole


def test_what_is_trained_is_never_shortened() -> None:
    answer = "水" * 5 * EDGE_TOKENS
    assert answer in shown([record("2?", answer, number) for number in range(2)])
    marked = rated(answer, lambda n: np.sin(np.arange(n)))
    assert marked.count("水") == 5 * EDGE_TOKENS


def test_a_wide_group_shows_its_ends_and_the_rollout_among_them() -> None:
    records = [record("2?", "4.", number, reward=number / 100) for number in range(100)]
    told = shown(records, 50).split("group 'g': ")[1].splitlines()
    assert told[0] == "100 rollouts, rewards from 0 to 0.99, mean 0.495 ± 0.29"
    names = [line.split()[0] if line[0] == " " else line.split()[1] for line in told[1:] if "more" not in line]
    assert names == [f"'r{n}'" for n in [*range(99, 99 - OF_EACH_END, -1), 50, *range(OF_EACH_END - 1, -1, -1)]]
    assert [line.strip() for line in told if "more" in line] == ["… 41 more", "… 42 more"]
    assert len(shown(records[:MOST_ROWS]).split("group 'g': ")[1].splitlines()) == 1 + MOST_ROWS


def test_what_was_not_scored_is_said_to_be() -> None:
    told = shown([record("2?", "4.", 0, reward=None), record("2?", "4.", 1)])
    assert "  not scored, ended by stop" in told.splitlines()[0]
    assert "group 'g': 2 rollouts, 1 not scored" in told


def test_texts_give_no_orders_to_terminals() -> None:
    told = shown([record("\x1b[2J", "4\x07", number) for number in range(2)])
    assert "\x1b" not in told and "\x07" not in told


@pytest.mark.parametrize("estimator", ["grpo", "gae"])
def test_without_a_tokenizer_ids_are_shown(estimator: str) -> None:
    made = record("2?", "4 mill", values=None if estimator == "grpo" else [0.1] * 8)
    made["values"] = None if estimator == "grpo" else np.sin(np.arange(len(made["token_ids"])))
    made = {name: value for name, value in made.items() if value is not None}
    with RolloutDataLoader([made, {**made, "rollout_id": "b"}], estimator=estimator, framework="numpy") as loader:
        told = loader.show(0)
    assert f"⟦{made['token_ids'][2]} " in told and f"{made['token_ids'][0]} {made['token_ids'][1]} " in told
