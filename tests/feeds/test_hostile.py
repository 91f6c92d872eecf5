"""Records that mean no good, at every door: each is refused there with a reason, or it is trained on. None is fatal."""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from feeds.test_http import asked
from feeds.transports import Spool, record
from laws import examples
from millstream import LossWarning, MemoryFeed, RolloutDataLoader
from millstream.errors import MillstreamError, RecordError
from millstream.feeds import HttpFeed, SpoolFeed
from millstream.feeds.admission import admission
from millstream.feeds.admission import follower as follower_module
from millstream.feeds.shards import ProducerFolder
from millstream.feeds.spool import SpoolSource
from millstream.rollouts import RolloutBlock, block_of, content_hash, encode, read_rollouts
from millstream.rollouts.record import ALIASES, FIELDS, SIDES

LIVE = {"groups_per_batch": 1, "group_size": 1, "timeout_s": 20, "max_staleness": 5}
GOOD = record(8, policy_version=0)


def nested(depth: int, kind: str) -> Any:
    """Lists or mappings in one another."""
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"in": value}
    return value


def expanded(value: Any) -> Any:
    """A value with what is nested too deeply to be written otherwise."""
    if isinstance(value, Deep):
        return nested(value.depth, value.kind)
    if isinstance(value, dict):
        return {name: expanded(each) for name, each in value.items()}
    return value


def as_text(value: Any) -> str:
    """The same as JSON."""
    opened = {"list": ("[", "]"), "mapping": ('{"in":', "}")}
    text = json.dumps(value, default=lambda deep: f"deep {deep.kind} {deep.depth}")
    for kind, depth in re.findall(r'"deep (\w+) (\d+)"', text):
        begin, end = opened[kind]
        text = text.replace(f'"deep {kind} {depth}"', begin * int(depth) + "1" + end * int(depth), 1)
    return text


@dataclass(frozen=True)
class Deep:
    """So many lists or mappings in one another: most printers cannot show them."""

    depth: int
    kind: str


TEXTS = ("\ud800", "a\udfff", "\0", "", "\u202eabc", "\n", "rewards.", "x" * 300_000, "nan")
NUMBERS = (2**31, 2**32, 2**63, 2**64, -(2**63) - 1, 10**400, 1e308, float("nan"), float("inf"), -0.0, -1, 0.5, True)
SAID_IN_EXTRA = ("parts", "group_size", "group_index", "target_step", "turns", "env")


def hostile(seed: int) -> dict[str, Any]:
    """A record that would be good, but for some values or names in it."""
    chance, made = random.Random(seed), record(0, policy_version=0)
    for _ in range(chance.choice((1, 1, 2))):
        match chance.randrange(6):
            case 0 | 1:
                made[chance.choice([*FIELDS, *ALIASES, *SIDES])] = value(chance)
            case 2:
                made["rewards"] = {chance.choice(TEXTS): plain(chance) for _ in range(2)}
            case 3:
                made["extra"] = {chance.choice((*TEXTS, *SAID_IN_EXTRA)): value(chance) for _ in range(2)}
            case 4:
                column = chance.choice(["token_ids", "loss_mask", "sampling_logprobs", "policy_version"])
                made[column] = [plain(chance), *record(0)["token_ids"][1:]]
            case _:
                made[chance.choice(TEXTS)] = value(chance)
    return made


def plain(chance: random.Random) -> Any:
    return chance.choice((*TEXTS, *NUMBERS, None))


def value(chance: random.Random) -> Any:
    match chance.randrange(5):
        case 0:
            return Deep(chance.choice((3, 60, 150, 400, 900, 3000)), chance.choice(("list", "mapping")))
        case 1:
            return [plain(chance) for _ in range(chance.randrange(4))]
        case 2:
            return {chance.choice(TEXTS): plain(chance) for _ in range(2)}
        case _:
            return plain(chance)


def put_in(feed: MemoryFeed | Spool, *records: dict[str, Any]) -> int:
    """Put records where a producer does; how many were taken."""
    taken = 0
    with feed.source() as source:
        for each in records:
            try:
                source.put(each)
                taken += 1
            except MillstreamError as error:
                assert error.message
    return taken


@contextmanager
def trainer(feed: Any, folder: Path) -> Iterator[Any]:
    settings: dict[str, Any] = {
        "live": LIVE,
        "on_bad": "skip",
        "batch_size": 1,
        "framework": "numpy",
        "cache_dir": folder / "run",
    }
    with RolloutDataLoader(feed, compute_advantages=False, **settings) as loader:
        yield loader


def assert_is_trained(feed: Any, folder: Path, taken: int) -> None:
    """Everything that was taken is trained on, or has a fate that is counted; also behind a state."""
    with trainer(feed, folder) as loader:
        names = [name for batch in loader for name in batch.metadata["rollout_id"]]
        losses = dict(loader.losses)
        state = json.loads(json.dumps(loader.state_dict()))
        loader.load_state_dict(state)
    fates = {fate for fate in losses if f"{fate}_tokens" in losses} - {"arrived", "stale_masked"}
    assert GOOD["rollout_id"] in names
    assert losses["arrived"] == taken == sum(losses[fate] for fate in fates), losses
    assert losses["cut"] == len(names)


@given(seed=st.integers(0, 2**63))
@examples(60)
def test_a_record_is_refused_where_it_is_put_or_trained_on(seed: int) -> None:
    bad = hostile(seed)
    with tempfile.TemporaryDirectory() as folder:
        spool, memory = Spool(Path(folder, "spool")), MemoryFeed()
        for at, feed in ((spool, spool.feed()), (memory, memory)):
            assert_is_trained(feed, Path(folder, type(at).__name__), put_in(at, GOOD, expanded(bad)))


@given(seed=st.integers(0, 2**63))
@examples(60)
def test_a_record_over_http_is_refused_with_400_or_trained_on(seed: int) -> None:
    bad = hostile(seed)
    bodies = [as_text([each]).encode() for each in (GOOD, bad)]
    with tempfile.TemporaryDirectory() as folder:
        feed = HttpFeed(Path(folder, "inbox"), token="secret")
        taken = 0
        for body in bodies:
            status, said = asked(feed, "/rollouts", body, "application/json")
            assert status == 200 or (status == 400 and said["error"]), said
            taken += said.get("rollouts", 0)
        assert asked(feed, "/close")[0] == 200
        assert_is_trained(feed, Path(folder), taken)


POISON: dict[str, dict[str, Any]] = {
    "impossible name": {"rewards": {"\ud800": 1.0}},
    "impossible name: a long one": {"rewards": {"x" * 2000: 1.0}},
    "impossible id": {"rollout_id": "\ud800"},
    "impossible id: a group": {"group_id": 1 << 64},
    "impossible id: a prompt": {"prompt_id": "x" * 100_000},
    "wrong type": {"extra": nested(100, "mapping")},
    "too many rewards": {"rewards": {f"reward {number}": 1.0 for number in range(5000)}},
}


@pytest.mark.parametrize("reason", POISON)
def test_poison_is_refused_at_every_door(reason: str, tmp_path: Path) -> None:
    """Each of these stopped a trainer before its first batch, or could eat its memory."""
    bad, called = record(0, **POISON[reason]), reason.partition(":")[0]
    feed = HttpFeed(tmp_path / "inbox", token="secret")
    status, said = asked(feed, "/rollouts", json.dumps(bad).encode(), "application/json")
    assert (status, called in said["error"]) == (400, True)
    feed.close()
    for source in (MemoryFeed().source(), SpoolSource(tmp_path / "spool")):
        with source, pytest.raises(RecordError, match=called):
            source.put(bad)
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps(bad))
    for given_ in (file, [bad]):
        with pytest.raises(RecordError, match=called):
            list(read_rollouts(given_))


@given(seed=st.integers(0, 2**63))
@examples(60)
def test_a_record_of_a_list_or_a_file_is_refused_or_read(seed: int) -> None:
    bad = hostile(seed)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "a.jsonl")
        file.write_text(f"{as_text(GOOD)}\n{as_text(bad)}\n")
        for source in (file, [GOOD, expanded(bad)]):
            (chunk,) = read_rollouts(source, on_bad="skip")
            assert len(chunk.block) + len(chunk.bad) == 2
            assert GOOD["rollout_id"] in chunk.block["rollout_id"].tolist()
            with pytest.raises(MillstreamError) if chunk.bad else tempfile.TemporaryDirectory():
                list(read_rollouts(source))


@given(seed=st.integers(0, 2**63))
@examples(60)
def test_a_block_that_passed_no_door_is_put_aside_or_trained_on(seed: int) -> None:
    """As an older version, or any process that can write to the spool, may have left it there."""
    chance, block = random.Random(seed), block_of(record(0, policy_version=0, rewards={"a": 1.0}, extra={"b": 1}))
    rows, tokens = dict(block.rows), dict(block.tokens)
    for _ in range(chance.choice((1, 2))):
        name = chance.choice(["rollout_id", "group_id", "prompt_id", "extra"])
        match chance.randrange(4):
            case 0:
                rows[f"{chance.choice(('rewards.', ''))}{chance.choice(TEXTS)}"] = np.ones(1)
            case 1:
                rows[name] = objects([value(chance) if name != "extra" else {chance.choice(TEXTS): value(chance)}])
            case 2:
                rows[chance.choice(["group_size", "parts", "odd"])] = np.ones((1, 2)[: chance.randint(1, 2)], np.int8)
            case _:
                tokens[chance.choice(TEXTS)] = np.ones(block.ends[-1], np.float32)
    assume(not isinstance(rows["rollout_id"][0], Deep))
    try:
        data = encode(RolloutBlock(block.ends, {name: opened(each) for name, each in rows.items()}, tokens))
    except (MillstreamError, RecursionError):
        return
    with tempfile.TemporaryDirectory() as folder:
        for producer, each in (("a", encode(block_of(GOOD))), ("b", data)):
            shards = ProducerFolder(Path(folder, "spool"), producer)
            shards.write([each])
            shards.end()
            shards.close()
        feed = SpoolFeed(Path(folder, "spool"))
        with trainer(feed, Path(folder)) as loader:
            names = [name for batch in loader for name in batch.metadata["rollout_id"]]
            losses = loader.losses
        assert GOOD["rollout_id"] in names
        assert losses["feed_damaged"] + losses["arrived"] == 2


def objects(values: list[Any]) -> Any:
    column = np.empty(len(values), object)
    column[:] = values
    return column


def opened(column: Any) -> Any:
    """A column of objects with what is nested deeply."""
    return objects([expanded(each) for each in column]) if column.dtype == object else column


def fails_over(name: str) -> Any:
    """What hashes contents, but for one rollout."""

    def hashes(block: RolloutBlock) -> Any:
        if name in block["rollout_id"].tolist():
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
        return content_hash(block)

    return hashes


def poisoned(folder: Path) -> Path:
    with SpoolSource(folder / "spool", producer="engine") as source:
        for number in range(8):
            source.put(record(number, policy_version=0))
    return folder / "spool"


def test_a_rollout_that_admission_fails_over_is_set_aside_and_counted_in_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is that no door has seen: the spool gives it to every run, and it must stop none."""
    monkeypatch.setattr(admission, "content_hash", fails_over("2"))
    spool = poisoned(tmp_path)
    live = {**LIVE, "group_size": 4, "min_group_size": 3, "group_timeout_s": 0.0}
    settings: dict[str, Any] = {"live": live, "batch_size": 8, "framework": "numpy", "cache_dir": tmp_path / "run"}
    for run in range(2):
        with RolloutDataLoader(spool, **settings) as loader:
            with pytest.warns(LossWarning, match="group 0 has 3 rollouts"):
                names = [name for batch in loader for name in batch.metadata["rollout_id"]]
            assert sorted(names) == ["0", "1", "3", "4", "5", "6", "7"]
            assert (loader.losses["arrived"], loader.losses["unreadable"]) == (8, 1)
            state = loader.state_dict() if run else {}
    (kept,) = (tmp_path / "run" / "quarantine").iterdir()
    (chunk,) = read_rollouts(kept)
    assert chunk.block["rollout_id"].tolist() == ["2"]
    with RolloutDataLoader(spool, **settings) as again:
        again.load_state_dict(json.loads(json.dumps(state)))
        assert again.losses["unreadable"] == 1
        assert list(again) == []


def test_a_rank_that_follows_passes_over_what_was_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (admission, follower_module):
        monkeypatch.setattr(module, "content_hash", fails_over("5"))
    poisoned(tmp_path)
    settings: dict[str, Any] = {"batch_size": 4, "framework": "numpy", "cache_dir": tmp_path / "run"}
    live = {"groups_per_batch": 1, "group_size": "any", "group_timeout_s": 0.0, "timeout_s": 20}
    seen = []
    with RolloutDataLoader(SpoolFeed(tmp_path / "spool"), live=live, world_size=2, rank=0, **settings) as leader:
        seen += [name for batch in leader for name in batch.metadata["rollout_id"]]
        follower = SpoolFeed(tmp_path / "spool", follow=True)
        with RolloutDataLoader(follower, live=live, world_size=2, rank=1, **settings) as other:
            seen += [name for batch in other for name in batch.metadata["rollout_id"]]
    assert "5" not in seen
    assert set(seen) <= {record(number)["rollout_id"] for number in range(8)}
    assert len(seen) == len(set(seen)) >= 3


def test_what_admission_itself_refuses_or_breaks_over_stays_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only looking at single rollouts is forgiven: what fails over none of them is a fault of ours."""

    def broken(block: RolloutBlock) -> Any:
        if len(block) > 1:
            raise ZeroDivisionError
        return content_hash(block)

    monkeypatch.setattr(admission, "content_hash", broken)
    feed = MemoryFeed()
    with feed.source() as source:
        source.put([record(0), record(1)])
    loader = RolloutDataLoader(feed, live=LIVE, batch_size=8, compute_advantages=False)
    with loader, pytest.raises(ZeroDivisionError):
        loader.next()
