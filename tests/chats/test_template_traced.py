"""A traced text does what a text does, and its spans stay with their characters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.chats import Kind
from millstream.chats.templates.traced import LOST, Mark, Traced, TracedSpan, joined, spans_of

MINE = Mark(0, Kind.content)
TEXTS = st.text(" abİß\n\t", max_size=12)
SMALL = st.integers(-14, 14)
CALLS: dict[str, st.SearchStrategy[tuple[Any, ...]]] = {
    **dict.fromkeys(("strip", "lstrip", "rstrip"), st.one_of(st.just(()), st.tuples(TEXTS))),
    **dict.fromkeys(("removeprefix", "removesuffix"), st.tuples(TEXTS)),
    **dict.fromkeys(("split", "rsplit"), st.one_of(st.just(()), st.tuples(st.sampled_from("ab \n"), SMALL))),
    **dict.fromkeys(("partition", "rpartition"), st.tuples(st.sampled_from(["a", "b", "ab", "x"]))),
    **dict.fromkeys(("lower", "upper", "title", "capitalize", "casefold", "swapcase"), st.just(())),
    "splitlines": st.one_of(st.just(()), st.tuples(st.booleans())),
    "replace": st.tuples(TEXTS, TEXTS, SMALL),
    "join": st.tuples(st.lists(TEXTS, max_size=4)),
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), st.tuples(SMALL)),
    "__add__": st.tuples(TEXTS),
    "__mul__": st.tuples(st.integers(0, 3)),
    "__getitem__": st.tuples(st.builds(slice, SMALL, SMALL, st.sampled_from([None, 1, 2, -1]))),
}


def traced(text: str) -> Traced:
    return Traced(text, [TracedSpan(0, len(text), MINE)])


def flat(made: Any) -> list[str]:
    return [made] if isinstance(made, str) else list(made)


@pytest.mark.parametrize("name", CALLS)
@given(data=st.data(), text=TEXTS)
def test_it_does_what_a_text_does(name: str, data: st.DataObject, text: str) -> None:
    args = data.draw(CALLS[name])

    assert flat(getattr(traced(text), name)(*args)) == flat(getattr(text, name)(*args))


@given(st.lists(st.tuples(TEXTS, st.booleans()), max_size=6), SMALL, SMALL)
def test_spans_stay_with_their_characters(parts: list[tuple[str, bool]], start: int, stop: int) -> None:
    """Characters of two alphabets, of which one is traced: afterwards just these are in spans."""
    text = joined(
        traced(part.upper()) if mine else part.lower().replace("ß", "").replace("İ", "") for part, mine in parts
    )
    cut = text[start:stop].strip()
    inside = {at for span in spans_of(cut) for at in range(span.start, span.stop)}

    assert all((letter in "ABİS") <= (at in inside) for at, letter in enumerate(cut))
    assert all((letter in "ab") <= (at not in inside) for at, letter in enumerate(cut))


@given(TEXTS)
def test_what_cannot_be_followed_is_lost_and_not_forgotten(text: str) -> None:
    mixed = "x" + traced(text + "a")

    assert {span.mark for made in (mixed * 2, "%s!" % mixed, mixed[::-1]) for span in spans_of(made)} == {LOST}  # noqa: UP031
