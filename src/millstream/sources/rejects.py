"""What becomes of input that cannot be used: an error, a counted skip, or a counted skip kept aside."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self, get_args

from millstream.errors import SourceError
from millstream.sources.chunk import ChunkRead

OnBad = Literal["error", "skip", "quarantine"]

_log = logging.getLogger("millstream.sources")


class Rejects:
    """The policy for bad records, and the count of what it cost, by reason.

    >>> rejects = Rejects("skip")
    >>> rejects.reject("not JSON", "chats.jsonl", row=40, found="Expecting value")
    >>> dict(rejects.counts)
    {'not JSON': 1}
    >>> Rejects().reject("not JSON", "chats.jsonl", row=40, found="Expecting value", hint="one per line")
    Traceback (most recent call last):
    millstream.errors.SourceError: chats.jsonl:41: not JSON: Expecting value
      hint: one per line; or pass on_bad="skip" to leave it out and count it
    """

    def __init__(self, on_bad: OnBad = "error", quarantine: Path | None = None) -> None:
        if on_bad not in get_args(OnBad):
            raise SourceError(f"on_bad={on_bad!r} is unknown", hint=f"choose one of {', '.join(get_args(OnBad))}")
        if on_bad == "quarantine" and quarantine is None:
            raise SourceError('on_bad="quarantine" needs a file to put the records into')
        self.on_bad = on_bad
        self.counts: Counter[str] = Counter()
        self.quarantine = quarantine if on_bad == "quarantine" else None
        self._kept: IO[str] | None = None

    def reject(
        self,
        reason: str,
        file: str,
        *,
        row: int,
        found: str,
        hint: str | None = None,
        raw: bytes | None = None,
    ) -> None:
        """Raise, or count a bad record and keep `raw` aside. `row` counts from 0; `found` says why."""
        where = f"{file}:{row + 1}"
        if self.on_bad == "error":
            way_out = 'pass on_bad="skip" to leave it out and count it'
            raise SourceError(f"{where}: {reason}: {found}", hint=f"{hint}; or {way_out}" if hint else way_out)
        self.counts[reason] += 1
        _log.warning("%s: left out: %s: %s", where, reason, found)
        if self.quarantine is not None:
            self._keep({"file": file, "row": row, "reason": reason, "found": found, "raw": _readable(raw)})

    def take(self, read: ChunkRead, file: str) -> None:
        """Judge what a chunk could not give, and count what it left out; its rows count from the start of the file."""
        for bad in read.bad:
            self.reject(bad.reason, file, row=bad.row, found=bad.found, hint=bad.hint, raw=bad.raw)
        self.counts.update(read.skipped)

    def _keep(self, entry: dict[str, object]) -> None:
        assert self.quarantine is not None
        if self._kept is None:
            self._kept = self.quarantine.open("w", encoding="utf-8")
        self._kept.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Close the quarantine file, if one was needed."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _readable(raw: bytes | None) -> str | None:
    """Bytes as text; what is not UTF-8 is written as \\xNN."""
    return None if raw is None else raw.decode("utf-8", "backslashreplace")
