"""Streams of raw files: stores that grow window by window, in a cache, a cache with a limit, or in memory."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from hypothesis import strategies as st

from laws.case import Data, Kind, Row, Team
from laws.raw_files import EOS, TOKENIZER, RawFiles, corpora, cuts, tokens_of
from laws.token_kinds import Tokens, shuffles
from millstream import PretrainDataLoader, RowOrigin
from millstream.loaders.growing.stream import StreamSpan
from millstream.preparation import MEMORY_PER_CHUNK
from millstream.sources import Reading, discover, raw_record, read_file

LENGTH = 7
MOST_THREADS = 4
Place = Literal["cache", "limited", "memory"]
places: st.SearchStrategy[Place] = st.sampled_from(["cache", "limited", "memory"])


def kept_in(place: Place, folder: Path) -> dict[str, Any]:
    """Keywords for where windows are kept. A cache of one byte holds nothing but what is in use."""
    if place == "memory":
        return {"cache_dir": "memory://"}
    return {"cache_dir": folder, **({"cache_limit": 1} if place == "limited" else {})}


class Streaming(Tokens):
    """Data some of whose rows are made, and made again, while they are trained on."""

    place: Place
    ranks = (1, 2, 3, 5, 7)
    step_rows = (6, 10, 14, 15, 21, 35)
    steps = 9
    most_steps = 12
    epochs = 3
    grows = True
    warms = True

    @property
    def forgets(self) -> bool:  # type: ignore[override]
        return self.place == "memory"

    def ways(self) -> st.SearchStrategy[Data]:
        return places.map(lambda place: replace(self, place=place))  # type: ignore[type-var]

    def foretell(self, run: Team) -> None:
        """Behind a pass over the files all is known, and a state says so."""
        run.epoch()
        while not all("tokens" in each for each in run.state()["streams"].values()):
            run.epoch()

    def documents(self, run: Team) -> list[Any]:
        """Those that have come."""
        spans = (
            (span.document, span.source)
            for loader in run.loaders
            for step in range(loader.step)
            for origin in loader.explain(step)
            for span in origin.spans
        )
        return list(dict.fromkeys(spans))

    def forget(self, folder: Path) -> None:
        shutil.rmtree(folder / "streams", ignore_errors=True)


@dataclass(frozen=True)
class Stream(Streaming):
    """Raw files that are tokenised on the way."""

    raw: RawFiles
    cut: int | None = 64
    shuffle: Any = "global"
    tail: Any = "drop"
    isolation: Any = "attend"
    place: Place = "cache"
    spoils = True

    @property
    def names_budget(self) -> bool:  # type: ignore[override]
        """What windows in memory take is known when they are made."""
        return self.place != "memory"

    @property
    def budget(self) -> int:  # type: ignore[override]
        return max(1 << 20, 4 * MOST_THREADS * MEMORY_PER_CHUNK * (self.cut or 4096))

    def open(self, folder: Path, **how: Any) -> Any:
        reading = {**self.raw.reading, **({} if self.cut is None else {"chunk_bytes": self.cut})}
        own: dict[str, Any] = {"framework": "numpy", "chunk_size": LENGTH, "tokenizer": TOKENIZER, "streaming": True}
        own |= {"shuffle": self.shuffle, "tail": self.tail, "documents": self.isolation, "reading": reading}
        own |= {"on_bad": "skip"} if self.raw.bad else {}
        return PretrainDataLoader(self.raw.path, **{**own, **kept_in(self.place, folder), **how})

    @cached_property
    def tokens(self) -> int:
        return sum(map(len, self.raw.documents))

    @property
    def size(self) -> int:
        """Rows of an epoch."""
        inputs = self.tokens - 1
        return -(-inputs // LENGTH) if self.tail == "pad" else inputs // LENGTH

    def check_complete(self, run: Team, epochs: Sequence[list[Row]]) -> None:
        """Rows end to end, by the number that `explain` names, hold every document once; but for the tail."""
        assert [len(epoch) for epoch in epochs] == [self.size] * len(epochs)
        assert [{row.epoch for row in epoch} for epoch in epochs] == [{number} for number in range(len(epochs))]
        steps = run.loaders[0].step // len(epochs)
        told = [origin for step in range(steps) for loader in run.loaders for origin in loader.explain(step)]
        assert sorted(origin.sample for origin in told) == list(range(self.size))
        tokens = [
            token for _, row in sorted(zip((o.sample for o in told), epochs[0], strict=True)) for token in row.name
        ]
        *whole, cut = split(tokens)
        left = Counter(self.raw.documents)
        left.subtract(whole)
        assert min(left.values()) >= 0
        assert not cut or any(text[: len(cut)] == cut for text in left.elements())
        assert sum(map(len, left.elements())) - len(cut) == self.tokens - len(tokens) <= LENGTH
        for epoch in epochs[1:]:
            assert Counter((row.name, row.content) for row in epoch) == Counter(
                (row.name, row.content) for row in epochs[0]
            )

    def check_origin(self, loader: Any, origin: RowOrigin, row: Row) -> list[Any]:
        tokens: list[int] = []
        for span in origin.spans:
            assert isinstance(span, StreamSpan)
            tokens += tokens_of(self._text(span))[span.start : span.stop]
        assert tuple(tokens) == row.name
        assert origin.text == TOKENIZER.decode(tokens)
        return [(span.document, span.source) for span in origin.spans]

    def _text(self, span: StreamSpan) -> str:
        assert span.file is not None
        if span.row is not None:
            assert span.first_byte is None and span.last_byte is None
            return self.raw.texts[span.file][span.row]
        assert span.first_byte is not None and span.last_byte is not None
        text = self._records[span.file, span.first_byte]
        assert raw_record(self._files[span.file], Reading(**self.raw.reading), 0, span.first_byte, span.last_byte)
        return text

    @cached_property
    def _files(self) -> dict[str, Any]:
        return {file.name: file for file in discover(self.raw.path).files}

    @cached_property
    def _records(self) -> dict[tuple[str, int], str]:
        return {
            (file.name, record.start): record.text
            for file in self._files.values()
            for read in read_file(file, Reading(**self.raw.reading))
            for record in read.block
        }

    def spoiled(self) -> Stream:
        files = (*self.raw.files, ("jsonl", (2,) * 5))
        return replace(self, raw=RawFiles(files, self.raw.lines, bad=3), tail="pad")

    def given_units(self) -> int:
        return len(self.raw.documents) + self.raw.bad

    def kept_units(self, rows: Sequence[Row]) -> int:
        """The very last token, the end of a document, may be no input."""
        ends = sum(int(row.name.count(EOS)) for row in rows)
        return ends + self.tokens - sum(len(row.name) for row in rows)

    def lost_units(self, losses: Sequence[Mapping[str, int]]) -> int:
        (lost,) = {sum(count for name, count in each.items() if name.startswith("left_out:")) for each in losses}
        return lost

    def check_losses(self, rows: Sequence[Row], losses: Sequence[Mapping[str, int]]) -> None:
        left = self.tokens - 1 - self.size * LENGTH
        assert {each["tail_tokens:data"] for each in losses} == {max(0, left)}


def split(tokens: Sequence[int]) -> list[tuple[int, ...]]:
    """Documents, each with its last token; what comes after the last whole one is the last here."""
    found, begun = [], list[int]()
    for token in tokens:
        begun.append(token)
        if token == EOS:
            found.append(tuple(begun))
            begun = []
    return [*found, tuple(begun)]


def example(place: Place = "cache") -> Stream:
    """Some windows of every kind of file; a run of a dozen steps comes into its second epoch."""
    chats = ("jsonl", tuple(range(6)) * 2)
    return Stream(RawFiles((chats, ("jsonl.gz", (3,) * 5), ("csv", (5, 1, 4)), ("txt", (2,) * 5))), place=place)


KINDS = [
    Kind(
        "stream",
        st.builds(
            Stream,
            corpora,
            cuts,
            shuffles,
            st.sampled_from(["drop", "pad"]),
            st.sampled_from(["attend", "isolate"]),
            places,
        ),
        example,
        cases=10,
    ),
    Kind(
        "stream in memory",
        st.builds(Stream, corpora, cuts, place=st.just("memory")),
        lambda: example("memory"),
        cases=2,
    ),
]
