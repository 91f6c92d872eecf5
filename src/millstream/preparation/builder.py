"""Parts -> a store: documents in the order of the files, with their origins; everything counted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from millstream.errors import SourceError
from millstream.preparation.bad_records import BadRecords, KeptAside
from millstream.preparation.earlier import Bookmark, save_bookmark
from millstream.preparation.mixing import Mixing, WaitingPart, mixed
from millstream.preparation.part import Part, RejectedRecord
from millstream.preparation.process import Made, PrepareRun
from millstream.preparation.report import LEFT_OUT, Statistics
from millstream.sources import FoundFile
from millstream.stats import OnProgress, Progress, counted
from millstream.storage import disk
from millstream.store import COUNTS, ORIGINS, WEIGHTED, OriginsWriter, TokenStoreWriter
from millstream.tokens import describe_tokenizer

MARK_BYTES = 64 << 20
_NO_TEXT = "look at what was left out and why; is it the right source and text_field?"
_NO_CONVERSATION = (
    'look at what was left out and why: what is too long needs a larger max_length, or truncation="keep_end" where one '
    "exchange alone does not fit; what has nothing to train another train=; `millstream lint` names the rows"
)


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """A part whose place is known: its file and the rows of that file before it."""

    file: int
    rows_before: int
    part: Part
    key: str | None


@dataclass(frozen=True, slots=True)
class Accounts:
    """Where everything is counted and kept that does not get into the store."""

    statistics: Statistics
    bad: BadRecords
    aside: dict[str, KeptAside]

    @property
    def rejected(self) -> KeptAside | None:
        """Where all records go that rules dropped, if they are kept."""
        return self.aside.get("rejected")

    @property
    def counts(self) -> dict[str, Any]:
        """What a manifest says of the rows that were read, left out and changed."""
        losses = self.statistics.losses
        return {
            "rows": sum(file.rows for file in self.statistics.files),
            "left_out": dict(sorted(losses.reasons(*LEFT_OUT).items())),
            "changed": dict(sorted(losses.reasons("changed").items())),
        }


def placed(made: Iterable[Made], file: int = -1, rows: int = 0) -> Iterator[PlacedPart]:
    """Count the rows of each file; `rows` of the first one are already counted."""
    for each in made:
        if each.file != file:
            file, rows = each.file, 0
        yield PlacedPart(file, rows, each.part, each.key)
        rows += each.part.rows


def accounted(run: PrepareRun, parts: Iterable[PlacedPart], accounts: Accounts) -> Iterator[PlacedPart]:
    """Apply the policy for bad records, and count what each part left out."""
    for each in parts:
        file = run.files[each.file]
        accounts.bad.take(file.name, each.part.bad, rows_before=each.rows_before)
        accounts.statistics.left_out(each.part, file, each.rows_before)
        if accounts.rejected is not None:
            for rejected in each.part.rejected:
                keep(accounts.rejected, rejected, file.name, each.rows_before)
        yield each


class StoreBuilder:
    """Writes parts into an unfinished store, with their origins; and bookmarks, from which a later run resumes.

    After a resumed start the writer may be ahead of the bookmark: the first `_surplus` documents are there already.
    """

    def __init__(
        self,
        run: PrepareRun,
        path: Path,
        accounts: Accounts,
        mark: Bookmark,
        compress: int | None,
        mixing: Mixing | None = None,
    ) -> None:
        self._run, self._accounts, self._folder, self._mark = run, accounts, path.parent, mark
        job = run.job
        self.writer = TokenStoreWriter(
            path,
            dtype=job.dtype,
            tokenizer=describe_tokenizer(job.tokenizer),
            resume=bool(mark.parts),
            compress=compress,
        )
        _take_back_origins(path)
        self.origins = OriginsWriter(path.parent / ORIGINS, documents=mark.documents)
        self._surplus = self.writer.documents - mark.documents
        self._documents, self._unmarked = mark.documents, 0
        self._mixing, self._parts = mixing, mark.parts
        self._held: list[WaitingPart] = []

    def add(self, each: PlacedPart) -> None:
        """Write the documents of a part, and where they came from."""
        part = each.part
        self._accounts.statistics.written(part, each.file)
        self._unmarked += part.tokens.nbytes
        if self._mixing is None:
            self._put(part.tokens, part.ends, part.origins + np.array([each.rows_before, 0, 0]))
            return
        self._held.append(WaitingPart(part, each.file, each.rows_before))
        self._parts += 1
        if self._mixing.ends_group(self._parts):
            self.finish_group()

    def finish_group(self) -> None:
        """Write the documents that wait to be mixed, and let a follower see them."""
        if self._mixing is not None and self._held:
            for group in mixed(self._held, self._mixing, self._parts):
                self._put(group.tokens, group.ends, group.origins)
            self._held = []
            self.origins.checkpoint()
            disk.publish(self._folder / COUNTS, json.dumps(self._accounts.counts).encode())
            self.writer.finish_shard()

    def _put(self, tokens: NDArray[Any], ends: NDArray[np.int64], origins: NDArray[np.int64]) -> None:
        there = min(self._surplus, len(ends))
        begin = int(ends[there - 1]) if there else 0
        began = time.thread_time()
        if there < len(ends):
            rest, rest_ends = tokens[begin:], ends[there:] - begin
            extend = self.writer.extend_weighted if self.writer.dtype == WEIGHTED else self.writer.extend
            extend(rest, rest_ends)
        self._accounts.statistics.writing_cpu_seconds += time.thread_time() - began
        self._surplus -= there
        self.origins.extend(origins)
        self._documents += len(ends)

    def mark_if_due(self, each: PlacedPart, parts: int) -> None:
        """Let a later run resume after this part, the `parts`-th, if enough was written since the last time."""
        follows = self._mixing is not None  # then a follower reads what is there already
        if (follows or self._unmarked >= MARK_BYTES) and not self._held:
            self._unmarked = 0
            self.writer.checkpoint()
            self.origins.checkpoint()
            kept = {name: aside.mark() for name, aside in self._accounts.aside.items()}
            self._mark = replace(
                self._mark,
                parts=parts,
                documents=self._documents,
                file=each.file,
                rows_before=each.rows_before + each.part.rows,
                statistics=self._accounts.statistics.to_json(),
                kept=kept,
            )
            save_bookmark(self._folder, self._mark)


def _take_back_origins(path: Path) -> None:
    """Open the origins again of a store whose maker was stopped between sealing them and moving it to its place."""
    growing = path.with_name(f"{ORIGINS}.part")
    for sealed in [path.with_suffix(".org")] if path.suffix == ".bin" else (path / "versions").glob("*.org"):
        if sealed.exists() and not growing.exists():
            disk.rename(sealed, growing)


def keep(kept: KeptAside, rejected: RejectedRecord, file: str, rows_before: int) -> None:
    """Keep a record aside that a rule dropped."""
    origin = {"file": file, "row": rows_before + rejected.row, "start": rejected.start, "stop": rejected.stop}
    kept.add({**origin, "reason": rejected.reason, "text": rejected.text})


def refuse_nothing(run: PrepareRun, accounts: Accounts) -> None:
    """A store without a document is no store."""
    if not accounts.statistics.documents:
        counts = accounts.statistics.losses.reasons(*LEFT_OUT)
        left_out = ", ".join(f"{count} {reason}" for reason, count in counts.items()) or "nothing at all"
        raise SourceError(
            f"{_named(run.files)}: no document was found (left out: {left_out})",
            hint=_NO_TEXT if run.job.chat is None else _NO_CONVERSATION,
        )


def _named(files: Sequence[FoundFile]) -> str:
    """Files in few words."""
    more = f" and {counted(len(files) - 1, 'other file')}" if len(files) > 1 else ""
    return f"{files[0].name}{more}"


def progressing(
    run: PrepareRun, parts: Iterable[PlacedPart], accounts: Accounts, progress: OnProgress
) -> Iterable[PlacedPart]:
    """Say how far the run is."""
    total = sum(file.bytes for file in run.files)
    before, file = 0, 0
    tokens, documents = accounts.statistics.tokens, accounts.statistics.documents
    progress(Progress("prepare", 0, total, "bytes", tokens=tokens))
    for each in parts:
        while file < each.file:
            before, file = before + run.files[file].bytes, file + 1
        tokens += len(each.part.tokens)
        documents += len(each.part.ends)
        done = min(before + each.part.source_stop, total)
        accounts.statistics.tick(done, tokens)
        dropped = accounts.statistics.losses.reasons("dropped").total()
        share = f", {100 * dropped / max(1, dropped + documents):.1f} % rejected" if dropped else ""
        progress(Progress("prepare", done, total, "bytes", f"{_amounts(documents, tokens)}{share}", tokens))
        yield each
    progress(Progress("prepare", total, total, "bytes", _amounts(documents, tokens), tokens))


def _amounts(documents: int, tokens: int) -> str:
    return f"{counted(documents, 'document')}, {counted(tokens, 'token')}"
