"""Stream: what a streaming run goes over. Files, their ranges and lanes, and the way from a chunk to its tokens."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from millstream.errors import OrderError
from millstream.loaders.lane import LaneReader, Place
from millstream.loaders.ranges import LaneOrder, Ranges, cut_for_lanes, fingerprint_files
from millstream.loaders.raw import RawSettings, check_streamable
from millstream.loaders.settings import LoaderSettings
from millstream.order.shuffle import Shuffle
from millstream.parts.policy import OnBad
from millstream.parts.process import Job
from millstream.records import Recipe
from millstream.sources import Found
from millstream.storage import key_of
from millstream.tokens import Tokenizer, resolve_eos
from millstream.tokens.keep import smallest_dtype


@dataclass(frozen=True)
class Stream:
    """The lanes of some files under some settings: equal on every rank."""

    name: str
    found: Found
    ranges: Ranges
    job: Job
    shuffle: Shuffle
    seed: int
    on_bad: OnBad = "error"

    @classmethod
    def open(cls, path: Any, tokenizer: Tokenizer, raw: RawSettings, settings: LoaderSettings, name: str) -> Stream:
        """Find the files, and deal their ranges to lanes; hardly anything is read."""
        found, reading, recipe = raw.found(path), raw.how(), Recipe.of(raw.recipe)
        check_streamable(recipe)
        if "chunk_bytes" not in raw.reading:
            reading = cut_for_lanes(found.files, reading)
        job = Job(reading, recipe, tokenizer, resolve_eos(tokenizer, raw.eos), smallest_dtype(tokenizer))
        stream = cls(name, found, Ranges(found.files, reading), job, settings.shuffle, settings.seed, raw.on_bad)
        check_ranks(stream.lanes, settings.world_size)
        return stream

    @property
    def lanes(self) -> int:
        """How many lanes there are."""
        return self.ranges.lanes

    @cached_property
    def orders(self) -> list[LaneOrder]:
        """The order of the ranges of each lane."""
        how: dict[str, Any] = {"shuffle": self.shuffle, "seed": self.seed, "name": self.name}
        return [LaneOrder(self.ranges, lane, **how) for lane in range(self.lanes)]

    @cached_property
    def data(self) -> dict[str, Any]:
        """What decides the tokens of every lane, as a state keeps it."""
        job = self.job
        return {
            "fingerprint": fingerprint_files(self.found.files),
            "files": len(self.found.files),
            "bytes": self.found.bytes,
            "ranges": self.ranges.count,
            "reading": key_of(asdict(job.reading)),
            "recipe": job.recipe.digest(),
            "tokenizer": job.tokenizer.fingerprint,
            "eos": job.eos_id,
            "shuffle": self.shuffle,
            "name": self.name,
        }

    def reader(self, lane: int, place: Place) -> LaneReader:
        """Read a lane from a place on."""
        return LaneReader(self.ranges, self.orders, lane, self.job, place)

    def log_folder(self, cache_dir: Path | None) -> Path | None:
        """Where the log lies; nowhere if a step of the recipe cannot be identified."""
        if cache_dir is None or self.job.identity is None:
            return None
        return cache_dir / "streams" / key_of("stream", self.data, self.seed)


def check_ranks(lanes: int, ranks: int) -> None:
    """Refuse ranks that would share a lane."""
    if lanes % ranks:
        raise OrderError(
            f"{ranks} ranks cannot share {lanes} lanes evenly",
            hint=f"use a number of ranks that divides {lanes}, cut the data into more files, or prepare it",
        )
