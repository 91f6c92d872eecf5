"""What becomes of bad records: an error, a counted skip, or a counted skip kept aside. Decided in one place."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self, get_args

from millstream.errors import MillstreamError, RecordError, SourceError, TemplateError, TokenizerError
from millstream.sources import BadRecord
from millstream.stats import Ledger
from millstream.storage import ZSTD_LEVEL, compress, has_zstd

LOUD = 5
OnBad = Literal["error", "skip", "quarantine"]

_log = logging.getLogger("millstream.preparation")


class KeptAside:
    """A file of JSON lines for records that did not get into a store; it comes to be with the first of them.

    With a compression level it is a `.zst` file of independent frames, where there is a zstd.

    >>> import tempfile
    >>> with KeptAside(Path(tempfile.mkdtemp()) / "rejected.jsonl", level=None) as kept:
    ...     kept.add({"row": 1})
    >>> kept.path.read_text()
    '{"row": 1}\\n'
    """

    FRAME_BYTES = 1 << 18

    def __init__(self, path: Path, *, level: int | None = ZSTD_LEVEL) -> None:
        level = level if has_zstd() else None
        self.path = path if level is None else path.with_name(path.name + ".zst")
        self.records = 0
        self._level = level
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._file: IO[bytes] | None = None

    def mark(self) -> tuple[int, int]:
        """Make what was kept so far durable; (bytes, records) of it, for `go_back`."""
        if self._held:
            self._flush()
        if self._file is None:
            return 0, self.records
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell(), self.records

    def go_back(self, size: int, records: int) -> None:
        """Continue after a mark of an earlier run."""
        if size:
            self._file = self.path.open("r+b")
            self._file.truncate(size)
            self._file.seek(size)
        self.records = records

    def add(self, entry: dict[str, object]) -> None:
        """Keep one record."""
        line = json.dumps(entry, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        self._held.append(line)
        self._held_bytes += len(line)
        self.records += 1
        if self._held_bytes >= self.FRAME_BYTES:
            self._flush()

    def _flush(self) -> None:
        data = b"".join(self._held)
        self._held, self._held_bytes = [], 0
        if self._file is None:
            self._file = self.path.open("wb")
        self._file.write(data if self._level is None else compress(data, self._level))

    def close(self) -> None:
        """Write what is held and close the file, if there is one."""
        if self._held:
            self._flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_on_bad(on_bad: str) -> None:
    """Insist on a policy that there is."""
    if on_bad not in get_args(OnBad):
        raise SourceError(f"on_bad={on_bad!r} is unknown", hint=f"choose one of {', '.join(get_args(OnBad))}")


class BadRecords:
    """The policy; what it costs is counted as `bad`, by reason.

    >>> records = BadRecords("skip")
    >>> records.take("chats.jsonl", [BadRecord("not JSON", 40, 0, 9, "Expecting value")])
    >>> records.losses.counts
    {'bad:not JSON': 1}
    >>> BadRecords("error").take("chats.jsonl", [BadRecord("not JSON", 40, 0, 9, "Expecting value", "one per line")])
    Traceback (most recent call last):
    millstream.errors.RecordError: chats.jsonl:41: not JSON: Expecting value
      hint: one per line; or pass on_bad="skip" to leave it out and count it
    """

    def __init__(self, on_bad: OnBad = "error", kept: KeptAside | None = None, losses: Ledger | None = None) -> None:
        check_on_bad(on_bad)
        self.on_bad = on_bad
        self.losses = Ledger() if losses is None else losses
        self._kept = kept if on_bad == "quarantine" else None

    def take(self, file: str, records: Iterable[BadRecord], *, rows_before: int = 0) -> None:
        """Raise for the first bad record of a part, or count them all and keep them aside."""
        seen = self.losses.reasons("bad")
        for bad in records:
            row = rows_before + bad.row
            where = f"{file}:{row + 1}"
            if self.on_bad == "error":
                way_out = 'pass on_bad="skip" to leave it out and count it'
                hint = f"{bad.hint}; or {way_out}" if bad.hint else way_out
                raise _error(bad, where, hint)
            self.losses.add("bad", bad.reason)
            seen[bad.reason] += 1
            loud = seen[bad.reason] <= LOUD  # a million of the same is told by the report
            _log.log(logging.WARNING if loud else logging.DEBUG, "%s: left out: %s: %s", where, bad.reason, bad.found)
            if self._kept is not None:
                raw = None if bad.raw is None else bad.raw.decode("utf-8", "backslashreplace")
                origin = {"file": file, "row": row, "start": bad.start, "stop": bad.stop}
                self._kept.add({**origin, "reason": bad.reason, "found": bad.found, "raw": raw})


def _error(bad: BadRecord, where: str, hint: str) -> MillstreamError:
    """The error of what cannot use the record: its tokenizer, its template, or any reader."""
    from millstream.chats import UNRENDERED
    from millstream.preparation.process import UNFIT

    unfit = {UNFIT: TokenizerError, UNRENDERED: TemplateError}.get(bad.reason)
    if unfit is None:
        return RecordError(bad.reason, bad.found, hint=hint, where=where)
    return unfit(f"{where}: {bad.reason}: {bad.found}", hint=hint)
