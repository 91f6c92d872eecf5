"""What cannot be trained on is an error that names it, or is counted: never trained on, never lost in silence.

Feeds that go away and come back are in `tests/feeds/test_crash.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream import MemoryFeed, RecordError, RolloutDataLoader, WaitTimeout
from millstream.feeds.spool import SpoolSource
from millstream.loaders.rollouts import rollout_set as rollout_gathering

LIVE = {"groups_per_batch": 2, "group_size": 2, "timeout_s": 20}


def record(number: int, **more: Any) -> dict[str, Any]:
    said = {"rollout_id": f"r{number}", "group_id": f"g{number // 2}", "token_ids": [7, 8, 9], "loss_mask": [0, 1, 1]}
    return {**said, "reward": float(number % 2), "finish": "stop", "policy_version": 0, **more}


GOOD = [record(number) for number in range(4)]
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unequal lengths": (record(4, loss_mask=[1]), "loss_mask has 1 values, and token_ids has 3"),
    "conflicting id": (record(0, reward=7.0), "r0"),
    "not finite": (record(4, reward=float("inf")), "reward is inf"),
}


def fixed(records: list[Any] | Path, **given: Any) -> RolloutDataLoader:
    return RolloutDataLoader(records, framework="numpy", batch_size=4, **given)


def live(feed: Any, records: list[dict[str, Any]] = GOOD, **given: Any) -> Any:
    if isinstance(feed, MemoryFeed):
        with feed.source() as source:
            for each in records:
                source.put(each)
    rules = {**LIVE, **given.pop("live", {})}
    return RolloutDataLoader(feed, live=rules, framework="numpy", batch_size=4, **given)


def seen(loader: Any) -> list[str]:
    return sorted(name for batch in loader for name in batch.metadata["rollout_id"])


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_record_is_an_error_that_names_its_line_or_is_counted(reason: str, tmp_path: Path) -> None:
    bad, told = BAD[reason]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in [*GOOD, bad]))
    with pytest.raises(RecordError, match=rf"a\.jsonl:5: .*{reason}.*{told}"):
        fixed(path)
    with fixed(path, on_bad="skip") as loader:
        assert loader.losses[f"left_out:rollouts:{reason}"] == 1
        assert seen(loader) == ["r0", "r1", "r2", "r3"]


@pytest.mark.parametrize("reason", ["unequal lengths", "not finite"])
def test_a_bad_record_is_refused_where_it_is_put(reason: str) -> None:
    bad, told = BAD[reason]
    with MemoryFeed().source() as source, pytest.raises(RecordError, match=told):
        source.put(bad)


def test_what_was_not_scored_has_no_advantage_and_is_counted() -> None:
    records = [*GOOD, record(4, reward=float("nan")), record(5, reward=None)]
    with fixed(records) as loader:
        assert loader.losses["unscored:rollouts"] == 2
        batches = list(loader)
    for batch in batches:
        for name, advantages in zip(batch.metadata["rollout_id"], batch.metadata["advantages"], strict=True):
            assert np.isfinite(advantages).all()
            assert bool(np.any(advantages)) == (name not in ("r4", "r5"))


def test_a_group_that_never_completes_is_told_and_dropped_when_its_time_is_over() -> None:
    feed = MemoryFeed()
    source = feed.source()
    for each in (*GOOD[:3], record(4), record(5)):
        source.put(each)
    with live(feed, [], live={"groups_per_batch": 3, "timeout_s": 0.1}) as loader:
        with pytest.raises(WaitTimeout, match="2 of 3 groups complete; 'g1' waits for 1 of 2"):
            loader.next()
        source.close()
        assert seen(loader) == ["r0", "r1", "r4", "r5"]
        assert loader.losses["incomplete"] == 1


@pytest.mark.parametrize(
    ("counter", "bad", "told", "how"),
    [
        ("conflicting", record(0, reward=7.0), "conflicting rollout: rollout 'r0'", {}),
        (
            "too_long",
            record(4, token_ids=[7] * 9, loss_mask=[1] * 9),
            "'r4' has 9 tokens",
            {"max_length": 8},
        ),
        ("future", record(4, policy_version=9), "'r4' has tokens of version 9", {}),
    ],
)
def test_what_a_feed_must_not_bring_is_an_error_or_counted(
    counter: str, bad: dict[str, Any], told: str, how: dict[str, Any]
) -> None:
    records = [*GOOD, bad, record(9, group_id=bad["group_id"], rollout_id="other")]
    with live(MemoryFeed(), records, **how) as loader, pytest.raises(RecordError, match=told):
        list(loader)
    with live(MemoryFeed(), records, on_bad="skip", **how) as loader:
        assert seen(loader) == ["r0", "r1", "r2", "r3"]
        assert loader.losses[counter] == 1


def test_a_rollout_above_the_cap_of_a_fixed_set_is_an_error() -> None:
    long = record(4, token_ids=[7] * 9, loss_mask=[1] * 9)
    with pytest.raises(RecordError, match="rollout 'r4' has 9 tokens, and 8 fit"):
        fixed([*GOOD, long, record(5)], max_length=8)
    with pytest.raises(RecordError, match="and 8 fit"):
        fixed([*GOOD, long, record(5)], micro_tokens=8)


def test_what_is_left_alone_by_what_was_left_out_is_left_out_and_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_gathering, "AT_A_TIME", 3)
    baseline = record(9, group_id="g2", kind="baseline")
    records = [GOOD[0], record(4), baseline, *GOOD[1:], record(5, reward=float("inf")), record(6, reward=None)]
    with pytest.raises(RecordError, match="not finite"):
        fixed(records)
    with fixed(records, on_bad="skip") as loader:
        assert seen(loader) == ["r0", "r1", "r2", "r3", "r6"]
        assert loader.losses == {
            "left_out:rollouts:not finite": 1,
            "left_out:rollouts:group of one": 2,
            "unscored:rollouts": 1,
        }
        assert [loader.rollouts.origin(number) for number in range(5)] == [f"rollouts:{row}" for row in (1, 4, 5, 6, 8)]
    with fixed(records, on_bad="skip", advantages={"allow_singleton": True}) as loader:
        assert "r4" in seen(loader)
    with pytest.raises(RecordError, match="group of one: group 'g0' has one rollout, 'r0', and 1 more groups"):
        fixed(GOOD[::2], on_bad="skip")


def test_a_producer_that_dies_in_the_middle_of_a_record_leaves_what_was_whole(tmp_path: Path) -> None:
    with SpoolSource(tmp_path, producer="whole") as source:
        source.put(GOOD)
    with SpoolSource(tmp_path, producer="dead") as source:
        source.put([record(4), record(5)])
    (shard,) = (tmp_path / "dead").glob("*.rollouts")
    half = shard.read_bytes()[:-9]
    shard.with_name("000002-00000000.tmp").write_bytes(half)  # not renamed yet: nobody sees it
    shard.write_bytes(half)  # torn by a disk that lied about what it had written
    with live(tmp_path) as loader:
        assert seen(loader) == ["r0", "r1", "r2", "r3"]
        assert loader.losses["feed_damaged"] == 1
