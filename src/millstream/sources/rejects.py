"""What becomes of input that cannot be used: an error, a counted skip, or a counted skip kept aside."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self, get_args

from millstream.errors import MillstreamError, SourceError

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

    def __init__(self, on_bad: OnBad = "error", quarantine: Path | None = None, *, quiet: bool = False) -> None:
        if on_bad not in get_args(OnBad):
            raise SourceError(f"on_bad={on_bad!r} is unknown", hint=f"choose one of {', '.join(get_args(OnBad))}")
        if on_bad == "quarantine" and quarantine is None:
            raise SourceError(
                'on_bad="quarantine" needs a file to put the records into', hint="pass the path of a file to write"
            )
        self.on_bad = on_bad
        self.counts: Counter[str] = Counter()
        self.kept: Path | None = None
        """The file with what was kept aside, once there is one."""
        self._quarantine = quarantine if on_bad == "quarantine" else None
        self._file: IO[str] | None = None
        self._level = logging.DEBUG if quiet else logging.WARNING

    def reject(
        self,
        reason: str,
        file: str,
        *,
        row: int,
        found: str,
        hint: str | None = None,
        span: tuple[int, int | None] = (0, None),
        raw: bytes = b"",
        error: type[MillstreamError] = SourceError,
    ) -> None:
        """Raise `error`, or count a bad record and keep it aside. `row` counts from 0; `found` says why.

        The record lies at bytes `span` of the file (without a stop: to its end); `raw` is the record, or its beginning.
        """
        where = f"{file}:{row + 1}"
        if self.on_bad == "error":
            way_out = 'pass on_bad="skip" to leave it out and count it'
            raise error(f"{where}: {reason}: {found}", hint=f"{hint}; or {way_out}" if hint else way_out)
        self.counts[reason] += 1
        _log.log(self._level, "%s: left out: %s: %s", where, reason, found)
        if self._quarantine is not None:
            place = {"file": file, "row": row, "start": span[0], "stop": span[1]}
            self._keep(self._quarantine, {**place, "reason": reason, "found": found, "raw": _readable(raw)})

    def skip(self, reason: str) -> None:
        """Count something that is left out under every policy, such as an empty line."""
        self.counts[reason] += 1

    def _keep(self, path: Path, entry: dict[str, object]) -> None:
        if self._file is None:
            self._file, self.kept = path.open("w", encoding="utf-8"), path
        self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Close the quarantine file, if one was needed."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _readable(raw: bytes) -> str:
    """Bytes as text; what is not UTF-8 is written as \\xNN."""
    return raw.decode("utf-8", "backslashreplace")
