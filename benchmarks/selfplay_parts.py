"""What each part of the road from a chunk of self-play games to tensors costs, in frames per CPU second.

    python benchmarks/selfplay_parts.py [--games 60] [--rounds 7] [--output benchmarks/results/selfplay_parts.md]

One thread, chunks in memory, the best of some rounds. Needs what requirements-selfplay.txt lists.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import deflate
import numpy as np

import machine
from millstream.games import (
    FrameBlock,
    Rescorer,
    RescoreSettings,
    Reservoir,
    checked,
    fill_boards,
    fill_tensors,
    read_chunk,
)
from millstream.games.codec import inflate, read_frames
from millstream.games.tensors import FrameTensors
from processes import best_cpu_seconds

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
BATCH = 1024
CHANGED = RescoreSettings(deblunder_threshold=0.10, deblunder_width=0.06, new_input_format=4)


def isize(chunk: bytes) -> int:
    return int.from_bytes(chunk[-4:], "little")


def each(work: Callable[..., object], items: list[bytes] | list[FrameBlock]) -> Callable[[], None]:
    def run() -> None:
        for item in items:
            work(item)

    return run


def parts(packed: list[bytes]) -> dict[str, tuple[int, Callable[[], object]]]:
    """Each part by its name: how many frames it takes, and what it does."""
    raw = [bytes(inflate(chunk)) for chunk in packed]
    games = [read_frames(chunk) for chunk in raw]
    frames = sum(map(len, games))
    everything = FrameBlock.concat(games)
    batch = everything.select(np.random.default_rng(0).permutation(frames)[:BATCH])
    whole, half = FrameTensors.empty(len(batch)), FrameTensors.empty(len(batch), np.float16)
    boards, rule50 = np.empty((len(batch), 112), np.uint64), np.empty(len(batch), np.float32)
    reservoir = Reservoir(20_000, 0)
    while len(reservoir) < reservoir.capacity:
        reservoir.exchange(everything)
    one = np.zeros(1, np.uint32)
    return {
        "inflate, ours": (frames, each(inflate, packed)),
        "inflate, deflate": (frames, each(lambda chunk: deflate.gzip_decompress(chunk, isize(chunk)), packed)),
        "inflate, zlib": (frames, each(lambda chunk: zlib.decompress(chunk, 31), packed)),
        "read_frames": (frames, each(read_frames, raw)),
        "read_chunk: inflate and read": (frames, each(read_chunk, packed)),
        "read_chunk, one frame of each game": (len(packed), each(lambda chunk: read_chunk(chunk, one), packed)),
        "rules: values": (frames, each(lambda game: checked(game, "values"), games)),
        "rules: moves": (frames, each(lambda game: checked(game, "moves"), games)),
        "rules: legal": (frames, each(lambda game: checked(game, "legal"), games)),
        "rescored: averages": (frames, each(Rescorer().rescore, games)),
        "rescored: no blunders, input format 4": (frames, each(Rescorer(CHANGED).rescore, games)),
        "reservoir of 20 000, exchange": (frames, each(reservoir.exchange, games)),
        "fill_tensors, float32": (BATCH, lambda: fill_tensors(batch, whole.planes, whole.policy, whole.values)),
        "fill_tensors, float16": (BATCH, lambda: fill_tensors(batch, half.planes, half.policy, half.values)),
        "fill_boards": (BATCH, lambda: fill_boards(batch, boards, rule50)),
    }


def main() -> None:
    from games.chunks import games, zipped

    parser = argparse.ArgumentParser()
    parser.add_argument("--games", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "selfplay_parts.md")
    given = parser.parse_args()
    packed = [zipped(frames) for _, frames in games(given.games, seed=7, plies=150)]
    lines = [
        "# Parts of the self-play road",
        "",
        machine.one_line(machine.facts(["deflate", "numpy", "millstream"])),
        "",
        f"{given.games} games of version 6, {sum(map(len, packed)) / 1e6:.1f} MB packed.",
        "",
        "| part | k frames per CPU s |",
        "|---|---:|",
    ]
    for name, (frames, work) in parts(packed).items():
        lines.append(f"| {name} | {frames / best_cpu_seconds(work, given.rounds) / 1e3:.1f} |")
        print(lines[-1], flush=True)
    given.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
