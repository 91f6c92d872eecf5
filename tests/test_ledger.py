"""The ledger: counts are right from any number of threads, after any place, and after any restart."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter

import pytest

from millstream.errors import StateError
from millstream.stats import Ledger


def test_threads_that_count_while_another_settles_lose_nothing() -> None:
    ledger, threads, each = Ledger(), 4, 2000

    def count(first: int) -> None:
        for place in range(first, each * threads, threads):
            ledger.add("left_out", "short", at=place)
            ledger.add("changed", "mended", source="web")

    workers = [threading.Thread(target=count, args=(first,)) for first in range(threads)]
    for worker in workers:
        worker.start()
    for place in range(0, each * threads, 100):
        ledger.settle(place)
    for worker in workers:
        worker.join()
    ledger.settle()
    assert ledger.counts == {"changed:web:mended": each * threads, "left_out:short": each * threads}
    assert not ledger.pending


@pytest.mark.parametrize("seed", range(5))
def test_what_lies_after_a_place_is_counted_once_however_often_a_run_is_restarted(seed: int) -> None:
    chance = random.Random(seed)
    losses = {place: chance.choice("abc") for place in range(100) if chance.random() < 0.5}
    ledger, place = Ledger("a"), 0
    while place < 100:
        for ahead in sorted(range(place, min(place + 30, 100)), key=lambda _: chance.random()):
            if ahead in losses:
                ledger.add("", losses[ahead], at=ahead)
        place += chance.randint(1, 20)
        ledger.settle(place)
        assert ledger.counts == {"a": 0, **Counter(losses[each] for each in losses if each < place)}
        ledger.restart(json.loads(json.dumps(ledger.counts)))


def test_what_was_not_delivered_is_counted_by_who_makes_it_again() -> None:
    ledger = Ledger("cut_tokens")
    for _ in range(3):
        ledger.add("cut_tokens", count=7, at=0)
        ledger.forget()
    assert ledger.counts == {"cut_tokens": 0}
    ledger.add("cut_tokens", count=7, at=0)
    ledger.settle(1)
    assert (ledger.counts, ledger.unplaced) == ({"cut_tokens": 7}, {"cut_tokens": 0})


@pytest.mark.parametrize("saved", [None, [1], "a", {"a": -1}, {"a": "1"}, {"a": True}, {"a": 1.0}, {1: 1}])
def test_counts_of_a_state_are_not_trusted_and_change_nothing(saved: object) -> None:
    ledger = Ledger()
    ledger.add("left_out", "not JSON", 2, source="web")
    ledger.add("left_out", "empty", at=4, source="web")
    with pytest.raises(StateError, match="what was left out"):
        ledger.restart(saved)
    ledger.settle()
    assert ledger.counts == {"left_out:web:not JSON": 2, "left_out:web:empty": 1}


def test_reasons_may_hold_what_names_are_joined_with() -> None:
    ledger = Ledger()
    ledger.add_all("dropped", {"exact_dedup: duplicate": 2, "none": 0})
    ledger.add_all("left_out", {"a: b": 1}, source="web")
    assert ledger.reasons("dropped") == {"exact_dedup: duplicate": 2}
    assert ledger.reasons("left_out", source="web") == {"a: b": 1}
