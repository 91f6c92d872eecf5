"""What is shown of a row: every token is there, brackets stand around what is learned and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.chats import Supervised, show_row
from millstream.stats import Shown


def letters(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids))


def row_of(text: str, weights: Sequence[float], messages: Sequence[int] | None = None, **more: object) -> Supervised:
    ids = np.array([ord(letter) for letter in text], np.uint32)
    places = np.array(messages if messages is not None else [-1] * len(text), np.int32)
    return Supervised(ids, np.array(weights, np.float32), places, **more)  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.sampled_from("ab\n"), st.sampled_from([0, 1, 0.5, 2])), max_size=30))
def test_the_text_without_its_marks_is_the_row_and_between_the_marks_is_what_is_learned(
    tokens: list[tuple[str, float]],
) -> None:
    text = "".join(letter for letter, _ in tokens)

    shown = Shown(show_row(row_of(text, [weight for _, weight in tokens]), letters))

    body = shown.partition("\n")[2]
    plain = re.sub(r"⟦|⟧(×[\d.]+)?", "", body)
    assert plain in (text, text + "\n")
    learned = "".join(re.findall(r"⟦([^⟧]*)⟧", body))
    assert learned == "".join(letter for letter, weight in tokens[1:] if weight)  # nothing predicts the first


def test_the_parts_joined_are_the_text_and_its_repr() -> None:
    shown = Shown(show_row(row_of("abc", [0, 1, 1]), letters, "here"))

    assert "".join(part.text for part in shown.parts) == shown == repr(shown)
    assert [part.text for part in shown.parts if part.style == "trained"] == ["⟦bc⟧"]


def test_what_was_lost_is_said_above_the_row() -> None:
    heading = show_row(row_of("ab", [0, 1], straddlers=1, truncated=True), letters, "a.jsonl:3")[0].text

    assert heading == (
        "a.jsonl:3  2 tokens, 1 trained (50.0 %); shortened: tokens of the conversation are missing; "
        "1 token half in what is learned: learned at the smaller weight\n"
    )


def test_every_message_begins_with_a_note_of_its_own_line() -> None:
    shown = Shown(show_row(row_of("abcd", [0, 0, 1, 1], [0, 0, 1, 1]), letters, roles=["user", "assistant"])[1:])

    assert shown == "── 0 user\nab\n── 1 assistant\n⟦cd⟧\n"


def test_nothing_in_the_data_gives_orders_to_the_terminal() -> None:
    shown = Shown(show_row(row_of("a\x1b[2Jb\u202e", [0, 0, 1, 1, 1, 1, 0]), letters))

    assert "\x1b" not in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize("size", [0, 1])
def test_rows_of_no_or_one_token_are_shown_too(size: int) -> None:
    assert Shown(show_row(row_of("a" * size, [1] * size), letters)).startswith(f"{size} token")


def test_a_tokenizer_that_drops_the_space_of_a_beginning_shows_it_where_it_is_none() -> None:
    def decode(ids: Sequence[int]) -> str:
        return letters(ids).removeprefix(" ")

    assert Shown(show_row(row_of(" a b", [0, 0, 1, 1]), decode)[1:]) == "a⟦ b⟧\n"
