"""What a feed costs: rollouts put in and received again, against the same bytes moved by the barest means.

    python benchmarks/rollout_feeds.py

Groups of 16 rollouts of 500 tokens on average are put in by one process, as a producer has them, and received and
decoded by another. The spool is compared with writing the same bytes into files of the same size, each synced, and then
reading them; Redis on loopback with the same entries added and then read by redis-py alone. Rounds are interleaved.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import redis

import machine
from millstream.feeds import Feed, Gather, RolloutSource, SpoolFeed
from millstream.feeds.redis_feed import RedisFeed
from millstream.feeds.redis_source import RedisSource
from millstream.feeds.spool import SpoolSource
from millstream.rollouts import RolloutBlock, block_of

sys.path.insert(0, os.fspath(Path(__file__).resolve().parents[1] / "tests"))

from feeds.redis_server import RedisServer

SHARD_BYTES = 8 << 20
GROUP, MEAN_TOKENS = 16, 500


def groups(rollouts: int) -> list[list[dict[str, Any]]]:
    """Rollouts as an engine gives them."""
    rng = np.random.default_rng(0)
    made = []
    for group in range(rollouts // GROUP):
        lengths = rng.poisson(MEAN_TOKENS, GROUP) + 2
        made.append([_rollout(rng, group, sample, int(length)) for sample, length in enumerate(lengths)])
    return made


def _rollout(rng: np.random.Generator, group: int, sample: int, length: int) -> dict[str, Any]:
    mask = np.arange(length) >= length // 4
    return {
        "rollout_id": f"{group}-{sample}",
        "group_id": f"{group}",
        "token_ids": rng.integers(0, 150_000, length, dtype=np.uint32),
        "loss_mask": mask,
        "sampling_logprobs": np.where(mask, -rng.random(length), 0).astype(np.float32),
        "policy_version": np.full(length, group, np.uint32),
        "reward": float(sample % 2),
        "finish": "stop",
    }


def through(open_source: Callable[[], RolloutSource], open_feed: Callable[[], Feed], puts: Sequence[Any]) -> float:
    """Put everything in here, receive everything in another process; the seconds from the first to the last."""
    context = multiprocessing.get_context("fork")
    ready, received = context.Event(), context.SimpleQueue()
    consumer = context.Process(target=receive, args=(open_feed, ready, received))
    consumer.start()
    ready.wait()
    began = time.perf_counter()
    with open_source() as source:
        for each in puts:
            source.put(each)
    count = received.get()
    taken = time.perf_counter() - began
    consumer.join()
    if count != sum(map(len, puts)):
        raise ValueError(f"{count} rollouts came out")
    return taken


def receive(open_feed: Callable[[], Feed], ready: Any, received: Any) -> None:
    feed, count = open_feed(), 0
    ready.set()
    while not feed.ended:
        count += sum(len(arrival.block) for arrival in feed.receive(timeout_s=10))
    received.put(count)
    feed.close()


def spool(scratch: Path | None, puts: Sequence[Any]) -> float:
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        return through(partial(SpoolSource, folder, gather=Gather(SHARD_BYTES)), partial(SpoolFeed, folder), puts)


def files(scratch: Path | None, shards: list[bytes]) -> float:
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        paths = [Path(folder) / str(number) for number in range(len(shards))]
        began = time.perf_counter()
        for path, shard in zip(paths, shards, strict=True):
            with path.open("wb") as file:
                file.write(shard)
                file.flush()
                os.fsync(file.fileno())
        size = sum(len(path.read_bytes()) for path in paths)
        taken = time.perf_counter() - began
    if size != sum(map(len, shards)):
        raise ValueError("something is missing")
    return taken


def redis_feed(server: RedisServer, puts: Sequence[Any]) -> float:
    with redis.Redis(port=server.port) as client:
        client.flushall()
    url = server.url("feed")
    source = partial(RedisSource, url, gather=Gather(SHARD_BYTES), most_entries=1 << 30)
    return through(source, partial(RedisFeed, url), puts)


def redis_alone(server: RedisServer, entries: list[bytes]) -> float:
    client: Any = redis.Redis(port=server.port, protocol=2)
    client.flushall()
    began = time.perf_counter()
    for entry in entries:
        client.pipeline(transaction=False).xadd("bare", {"blocks": entry}).execute()
    last, size = b"0-0", 0
    while came := client.pipeline(transaction=False).xread({"bare": last}, count=8).execute()[0]:
        last, size = came[0][1][-1][0], size + sum(len(fields[b"blocks"]) for _, fields in came[0][1])
    taken = time.perf_counter() - began
    client.close()
    if size != sum(map(len, entries)):
        raise ValueError("something is missing")
    return taken


def shards_of(scratch: Path | None, blocks: Sequence[RolloutBlock]) -> list[bytes]:
    """The same bytes, as a spool has them."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        with SpoolSource(folder, gather=Gather(SHARD_BYTES)) as source:
            for block in blocks:
                source.put(block)
        return [path.read_bytes() for path in sorted(Path(folder).rglob("*.rollouts"))]


def rows(
    name: str, ours: Mapping[str, Callable[[], float]], bare: Callable[[], float], size: int, rounds: int
) -> list[str]:
    """Ratios to the bare means, round by round."""
    times: dict[str, list[float]] = {each: [] for each in ("bare", *ours)}
    for turn in range(rounds + 1):
        for each, work in {"bare": bare, **ours}.items():
            taken = work()
            if turn:  # the first one warms up
                times[each].append(taken)
    table = []
    for each in ours:
        ratios = [a / b for a, b in zip(times["bare"], times[each], strict=True)]
        rates = [size / 1e6 / statistics.median(times[side]) for side in (each, "bare")]
        spread = f"{100 * min(ratios):.0f} – {100 * max(ratios):.0f}"
        table.append(
            f"| {name}, {each} | {rates[0]:.0f} | {rates[1]:.0f} | {100 * statistics.median(ratios):.0f} % | {spread} |"
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=32_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scratch", type=Path, help="a folder on the disk to measure")
    settings = parser.parse_args()
    records = groups(settings.rollouts)
    blocks = [block_of(group) for group in records]
    shards = shards_of(settings.scratch, blocks)
    size = sum(map(len, shards))
    print(f"# Feeds of rollouts\n\n{machine.one_line(machine.facts(['numpy', 'redis', 'millstream']))}\n")
    print(f"{settings.rollouts} rollouts in groups of {GROUP}, {size / 1e6:.0f} MB in {len(shards)} shards.\n")
    print("| feed | MB/s | bare MB/s | of bare | spread % |\n|---|---:|---:|---:|---:|")
    ways: dict[str, Sequence[Any]] = {"put as blocks": blocks, "put as records": records}
    spools = {name: partial(spool, settings.scratch, puts) for name, puts in ways.items()}
    print("\n".join(rows("spool", spools, partial(files, settings.scratch, shards), size, settings.rounds)), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder))
        server.start()
        try:
            streams = {name: partial(redis_feed, server, puts) for name, puts in ways.items()}
            print("\n".join(rows("Redis", streams, partial(redis_alone, server, shards), size, settings.rounds)))
        finally:
            server.kill()


if __name__ == "__main__":
    main()
