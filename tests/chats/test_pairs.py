"""Preference pairs: both sides keep the same prompt and the cap, and an answer is never silently empty."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.chats import Supervised
from millstream.chats.truncate import Pair, PairLimit, fit_pair
from millstream.errors import RecipeError

lengths = st.integers(0, 60)


def row(count: int, first: int = 0) -> Supervised:
    return Supervised(
        np.arange(first, first + count, dtype=np.uint32), np.ones(count, np.float32), np.zeros(count, np.int32)
    )


@given(prompt=lengths, chosen=lengths, rejected=lengths, cap=st.integers(1, 80), least=st.integers(0, 79))
def test_a_pair_keeps_the_cap_the_same_prompt_and_answers_that_are_not_empty(
    prompt: int, chosen: int, rejected: int, cap: int, least: int
) -> None:
    least = min(least, cap - 1)
    pair = Pair(row(prompt), row(chosen, 100), row(rejected, 200))
    found = fit_pair(pair, PairLimit(cap, least))
    if found is None:
        assert not (chosen and rejected)
        return
    answers = (found.chosen, found.rejected)
    assert all(len(found.prompt) + len(answer) <= cap and len(answer) for answer in answers)
    assert len(found.prompt) >= min(prompt, least)
    assert found.prompt.ids.tolist() == pair.prompt.ids[prompt - len(found.prompt) :].tolist()  # its end
    assert all(
        whole.ids[: len(part)].tolist() == part.ids.tolist() for whole, part in zip(pair[1:], answers, strict=True)
    )
    assert all(part.truncated == (len(part) < len(whole)) for whole, part in zip(pair, found, strict=True))
    if prompt + max(chosen, rejected) <= cap:
        assert found == pair


def test_a_least_prompt_that_leaves_no_room_for_an_answer_is_refused() -> None:
    with pytest.raises(RecipeError, match="no room"):
        PairLimit(10, min_prompt=10)
