"""Where windows begin: the first token of each, as far as that is known, and the log that keeps it.

Rows are cut from the tokens of all windows end to end, so a row needs only this number to be found. Processes that
share a log write the same records, each at the place of its window; a torn or damaged one is as one that is not there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from millstream.errors import StateError
from millstream.storage import RecordLog, are_whole, disk, record_type, records_of
from millstream.streams.stored_parts import FULL

STARTS_FILE = "windows.log"
_KIND = record_type(("window", "<i8"), ("token", "<i8"))


class WindowStarts:
    """The first token of each of some windows; that after the last one is the number of all tokens.

    >>> starts = WindowStarts(3)
    >>> starts.learn(1, 500)
    >>> starts.token(0), starts.token(1), starts.token(2), starts.tokens
    (0, 500, None, None)
    """

    def __init__(self, windows: int, path: Path | None = None) -> None:
        self.windows, self._path = windows, path
        self.known = np.full(windows + 1, -1, np.int64)
        """What a run counts with."""
        self.known[0] = 0
        if path is not None and path.exists():
            with RecordLog(path, _KIND, writes=False) as log:
                found = log.read(0, windows + 1)
            whole = are_whole(found) & (found["window"] == np.arange(len(found))) & (found["token"] >= 0)
            self.known[: len(found)][whole] = found["token"][whole]
            if (np.diff(self.known[self.known >= 0]) < 0).any():  # not of one stream
                self.known[1:] = -1
        self.found = self.known.copy()
        """And what was found out ahead of it."""

    def token(self, window: int) -> int | None:
        """The first token of a window, if it is known."""
        found = int(self.known[window])
        return None if found < 0 else found

    @property
    def tokens(self) -> int | None:
        """Tokens of an epoch, if they have been counted."""
        return self.token(self.windows)

    def found_token(self, window: int) -> int:
        """The first token of a window that was found, perhaps ahead of the run."""
        return int(self.found[window])

    def publish(self) -> None:
        """Let the run count with all that was found."""
        self.known[:] = self.found

    def learn(self, window: int, token: int, *, counted: bool = True, ahead: bool = False) -> None:
        """Note where a window begins; refuses another place than the one that is known.

        What a state says, and was not counted, is not written down for others.
        """
        found = int(self.found[window])
        if found == token:
            if not ahead:
                self.known[window] = token
            return
        after = self.found[window + 1 :]
        before = int(self.found[: window + 1].max())
        if found >= 0 or token < before or (after[after >= 0] < token).any():
            raise StateError(
                f"window {window} of the stream begins at token {token:,}, and not where it was found to begin",
                hint="the files, the tokenizer or the recipe have changed: use a new cache_dir, or start a new run",
            )
        self.found[window] = token
        if not ahead:
            self.known[window] = token
        if self._path is not None and counted:
            with disk.reported(self._path, full=FULL), RecordLog(self._path, _KIND) as log:
                log.write(window, records_of(_KIND, (window, token)))
