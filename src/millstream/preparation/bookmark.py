"""How far a run has come, so that the next one goes on there: written whenever the store's writer makes a checkpoint.

The writer may be ahead of the bookmark, never behind: whatever it wrote since is made again, found equal in number, and
not written twice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from millstream.preparation.process import Job
from millstream.sources import FoundFile
from millstream.storage import disk, key_of

log = logging.getLogger("millstream.preparation")

NAME = ".bookmark.json"
_VERSION = 2


@dataclass(frozen=True)
class Bookmark:
    """Parts and documents that are safe in the unfinished store, and what was counted with them.

    `identity` names what the run makes of which files: only a run that would make the same may go on. `rows_before`
    counts the rows of file number `file` before the next part. `kept` holds (bytes, records) of each file of records
    that were kept aside.
    """

    identity: str
    parts: int = 0
    documents: int = 0
    file: int = -1
    rows_before: int = 0
    statistics: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, tuple[int, int]] = field(default_factory=dict)


def identity_of(job: Job, files: Sequence[FoundFile], writing: object) -> str | None:
    """Name what a run makes of which files, and how it writes them; None if that cannot be known."""
    if job.identity is None or any(file.data is not None for file in files):
        return None
    return key_of(
        "run", job.identity, repr(writing), [[file.name, file.bytes, file.mtime_ns, file.inode] for file in files]
    )


def save_bookmark(folder: Path, bookmark: Bookmark) -> None:
    """Write a bookmark; a reader sees the old one or the new one."""
    disk.publish(folder / NAME, json.dumps({"version": _VERSION, **asdict(bookmark)}).encode())


def load_bookmark(folder: Path, identity: str | None) -> Bookmark | None:
    """Read the bookmark of an unfinished run that was making the same, or None.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> save_bookmark(folder, Bookmark("ab", parts=3))
    >>> load_bookmark(folder, "ab").parts, load_bookmark(folder, "cd")
    (3, None)
    """
    try:
        content = json.loads((folder / NAME).read_bytes())
        version = content.pop("version")
        if version == 1:
            content = _from_first_version(content)
        if version not in (1, _VERSION) or identity is None or content["identity"] != identity:
            log.warning("the unfinished run was making something else, or of other files: it is begun anew")
            return None
        return Bookmark(**content)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _from_first_version(content: dict[str, Any]) -> dict[str, Any]:
    """A bookmark whose counts lie apart by what became of records.

    >>> counts = {"skipped": {"empty": 1}, "changed": {}, "dropped": {}, "files": []}
    >>> _from_first_version({"bad": {"not JSON": 2}, "statistics": counts})
    {'statistics': {'files': [], 'losses': {'skipped:empty': 1, 'bad:not JSON': 2}}}
    """
    statistics = dict(content["statistics"])
    counts = {what: statistics.pop(what, {}) for what in ("skipped", "changed", "dropped")} | {"bad": content["bad"]}
    losses = {f"{what}:{reason}": count for what, reasons in counts.items() for reason, count in reasons.items()}
    rest = {key: value for key, value in content.items() if key not in ("bad", "statistics")}
    return {**rest, "statistics": {**statistics, "losses": losses} if statistics else {}}
