"""The writer's journal (`writing.json`): how far a writer came."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from millstream.errors import StoreError
from millstream.storage import disk, read_json, sealed
from millstream.store.column import START_AGAIN
from millstream.store.format import DTYPES, index_kind, read_frame
from millstream.store.growing import Places
from millstream.store.manifest import check_keys, is_count, is_fingerprint
from millstream.store.table import Row

FORMAT = "millstream writing"


@dataclass(frozen=True)
class Journal:
    """A checkpoint: sealed shards, the open one, and the settings that must not change in between.

    `open` is the open shard as it would be if it ended at the checkpoint; `tail` is what its unfinished block holds,
    where it is packed (in base64); `sealing` is the version that was about to be.
    """

    dtype: str
    shard_tokens: int
    made_from: str
    parent: str | None
    first_file: int
    sealed: int = 0
    tokens: int = 0
    documents: int = 0
    open: Row | None = None
    sealing: str | None = None
    compress: int = 0
    tail: str = ""

    def save(self, path: Path) -> None:
        """Make the checkpoint durable."""
        disk.publish(path, sealed({"format": FORMAT, "format_version": 1, **asdict(self)}))


def is_row(value: Any) -> bool:
    """Tell whether this is the description of an open shard."""
    return value is None or (
        isinstance(value, dict)
        and set(value) == {"tokens", "documents", "tag", "bound", "file"}
        and all(is_count(value[key]) for key in ("tokens", "documents", "bound", "file"))
        and type(value["tag"]) is int
        and 0 <= value["tag"] < 1 << 64
    )


RULES = {
    "format": lambda value: value == FORMAT,
    "format_version": lambda value: type(value) is int and value == 1,
    "dtype": lambda value: isinstance(value, str) and value in DTYPES,
    "shard_tokens": is_count,
    "made_from": is_fingerprint,
    "parent": lambda value: value is None or is_fingerprint(value),
    "first_file": is_count,
    "sealed": is_count,
    "tokens": is_count,
    "documents": is_count,
    "open": is_row,
    "sealing": lambda value: value is None or is_fingerprint(value),
    "compress": is_count,
    "tail": lambda value: isinstance(value, str),
}


def load_journal(path: Path) -> Journal | None:
    """Read the journal, if there is one."""
    if not path.exists():
        return None
    fields = read_json(path)
    fields = {"compress": 0, "tail": "", **fields}  # what older writers did not know
    check_keys(path, fields, RULES)
    values = {key: value for key, value in fields.items() if not key.startswith("format")}
    row = values.pop("open")
    return Journal(**values, open=None if row is None else Row(**row))


def sealed_rows(places: Places, journal: Journal) -> list[Row]:
    """Read the sealed shards of a journal back from their frames."""
    rows = []
    for number in range(journal.first_file, journal.first_file + journal.sealed):
        frame = read_frame(places.final(number, ".bin"), "T")
        if frame.dtype != journal.dtype:
            raise StoreError(
                f"{places.final(number, '.bin')}: holds {frame.dtype}, not {journal.dtype}", hint=START_AGAIN
            )
        for suffix, kind in ((".idx", index_kind(journal.dtype)), (".sum", "C")):
            if read_frame(places.final(number, suffix), kind).tag != frame.tag:
                raise StoreError(f"{places.final(number, suffix)}: belongs to another shard", hint=START_AGAIN)
        rows.append(Row(frame.count, frame.documents, frame.tag, frame.bound, number))
    if (sum(r.tokens for r in rows), sum(r.documents for r in rows)) != (journal.tokens, journal.documents):
        raise StoreError(f"{places.journal}: the sealed shards are not those of the last checkpoint", hint=START_AGAIN)
    return rows
