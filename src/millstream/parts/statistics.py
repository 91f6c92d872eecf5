"""What a run of `prepare` did, in numbers that can be added up part by part: the content of its report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from millstream.parts.part import Part, Rejected
from millstream.sources import FoundFile
from millstream.stats import Ledger
from millstream.store import carries_loss

MOST_EXAMPLES = 5
MOST_SAMPLES = 200
LENGTH_BINS = 48
LEFT_OUT = ("skipped", "dropped", "bad")
"""Why a record of a source is not in its store: it holds nothing, a rule says so, or it cannot be used."""


@dataclass(slots=True)
class FileCounts:
    """What one source file gave."""

    rows: int = 0
    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0


@dataclass(slots=True)
class Statistics:
    """Counts of a whole run; `losses` has what was skipped, bad, dropped by a rule and changed, by reason.

    `lengths[b]` counts documents of [2^(b-1), 2^b) tokens (0: none). `pace` holds (seconds, source bytes, tokens) as
    time went by. Of dropped records there are a few examples of each reason. Of `weighted` tokens
    those are counted that the loss is computed of: not the first of a document, which nothing comes before.
    """

    files: list[FileCounts]
    started: float = field(default_factory=time.perf_counter)
    lengths: list[int] = field(default_factory=lambda: [0] * LENGTH_BINS)
    losses: Ledger = field(default_factory=Ledger)
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    pace: list[tuple[float, int, int]] = field(default_factory=list)
    source_bytes: int = 0
    writing_cpu_seconds: float = 0.0
    weighted: bool = False
    trained_tokens: int = 0

    @classmethod
    def of(cls, files: Sequence[FoundFile], *, weighted: bool = False) -> Statistics:
        """Counts of a run that has done nothing yet."""
        return cls([FileCounts() for _ in files], weighted=weighted)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Statistics:
        """Counts as `to_json` gave them."""
        losses = Ledger()
        losses.restart(content["losses"])
        files = [FileCounts(**counts) for counts in content["files"]]
        pace = [(seconds, source_bytes, tokens) for seconds, source_bytes, tokens in content["pace"]]
        return cls(**{**content, "losses": losses, "files": files, "pace": pace, "started": time.perf_counter()})

    def to_json(self) -> dict[str, Any]:
        """The counts as plain values.

        >>> counts = Statistics.of([])
        >>> counts.losses.add("changed", "repaired", 2)
        >>> Statistics.from_json(counts.to_json()).losses.counts
        {'changed:repaired': 2}
        """
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return plain | {"files": [asdict(counts) for counts in self.files], "losses": self.losses.counts}

    def left_out(self, part: Part, file: FoundFile, rows_before: int) -> None:
        """Count what a part left out and changed."""
        for what, reasons in (("skipped", part.skipped), ("changed", part.changed), ("dropped", part.reasons)):
            self.losses.add_all(what, reasons)
        for rejected in part.rejected:
            self.example(rejected, file.name, rows_before)

    def example(self, rejected: Rejected, file: str, rows_before: int) -> None:
        """Keep an example of what a rule dropped, if there are not enough of them."""
        kept = self.examples.setdefault(rejected.reason, [])
        if len(kept) < MOST_EXAMPLES:
            kept.append({"file": file, "row": rows_before + rejected.row, "text": rejected.text[:2000]})

    def wants(self, reason: str) -> int:
        """How many more examples of a reason are welcome."""
        return MOST_EXAMPLES - len(self.examples.get(reason, ()))

    def written(self, part: Part, file: int) -> None:
        """Count the documents of a part that got into the store."""
        counts = self.files[file]
        counts.rows += part.rows
        counts.documents += len(part.ends)
        counts.tokens += len(part.tokens)
        counts.text_bytes += part.text_bytes
        lengths = np.diff(part.ends, prepend=0)
        bins = np.bincount(np.ceil(np.log2(lengths + 1)).astype(np.int64), minlength=LENGTH_BINS)
        self.lengths = (np.asarray(self.lengths) + bins[:LENGTH_BINS]).tolist()
        if self.weighted:
            trained = carries_loss(part.tokens)
            trained[(part.ends - lengths)[lengths > 0]] = False
            self.trained_tokens += int(np.count_nonzero(trained))

    def tick(self, source_bytes: int, tokens: int) -> None:
        """Note how far the run is; of a long one, every other note but the newest is forgotten now and then."""
        self.source_bytes = source_bytes
        self.pace.append((round(time.perf_counter() - self.started, 3), source_bytes, tokens))
        if len(self.pace) > MOST_SAMPLES:
            self.pace = [*self.pace[:-1:2], self.pace[-1]]

    @property
    def documents(self) -> int:
        """Documents in the store."""
        return sum(counts.documents for counts in self.files)

    @property
    def tokens(self) -> int:
        """Tokens in the store."""
        return sum(counts.tokens for counts in self.files)
