"""What a writer is asked for, where its files lie, and how far it came: its journal (`writing.json`).

What the caller asks for is checked before anything is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from millstream.errors import StoreError
from millstream.storage import ZSTD_LEVEL, digest, disk, need_zstd, read_json, sealed
from millstream.store.column_writers import START_AGAIN
from millstream.store.frames import (
    DTYPES,
    index_kind,
    read_frame,
    shard_name,
    token_dtype,
)
from millstream.store.layout import Row
from millstream.store.manifest import check_keys, is_count, is_fingerprint, is_sources, plain

MOST_LEVEL = 19


@dataclass
class WriterSettings:
    """What the caller asked for; None means: as it was, or the default."""

    dtype: str | None
    shard_tokens: int | None
    resume: bool
    append: bool
    sources: list[Any]
    tokenizer: Any
    recipe: Any
    compress: int | None = None
    """A level of zstd; 0 is none."""

    @property
    def made_from(self) -> str:
        """Digest of what the store is made from: a resumed writer must be given the same."""
        return digest([self.sources, self.tokenizer, self.recipe])


def checked_settings(
    dtype: str | None,
    shard_tokens: int | None,
    resume: bool,  # noqa: FBT001 - handed on by the constructor
    append: bool,  # noqa: FBT001
    sources: Iterable[Mapping[str, Any]],
    tokenizer: Mapping[str, Any] | None,
    recipe: Any,
    compress: bool | int | None = None,  # noqa: FBT001
) -> WriterSettings:
    """Check what the caller asked for and bring it into plain JSON."""
    if dtype is not None:
        token_dtype(dtype)
    if shard_tokens is not None and (type(shard_tokens) is not int or shard_tokens < 1):
        raise StoreError(
            f"shard_tokens must be a whole number from 1 on, not {shard_tokens!r}",
            hint="leave it out for shards of 2^28 tokens",
        )
    listed = plain(list(sources), "sources")
    if not is_sources(listed):
        raise StoreError(
            "`sources` must be a list of {path, bytes, blake2b}",
            hint="path and blake2b are text, bytes is a whole number",
        )
    known = None if tokenizer is None else plain(dict(tokenizer), "tokenizer")
    return WriterSettings(
        dtype, shard_tokens, resume, append, listed, known, plain(recipe, "recipe"), checked_level(compress)
    )


def checked_level(compress: bool | int | None) -> int | None:  # noqa: FBT001 - a level, or whether to have one
    """Turn what the caller asked for into a level of zstd.

    >>> checked_level(True), checked_level(False), checked_level(9)
    (1, 0, 9)
    """
    if compress is None or (isinstance(compress, int) and 0 <= compress <= MOST_LEVEL):
        if compress:
            need_zstd()
        return ZSTD_LEVEL if compress is True else None if compress is None else int(compress)
    raise StoreError(
        f"compress must be True, False or a level from 1 to {MOST_LEVEL}, not {compress!r}",
        hint="True is the level that costs least",
    )


@dataclass(frozen=True)
class WriterPaths:
    """Where a writer puts things: a directory of numbered shards, or one file and its companions."""

    path: Path
    single: bool

    @property
    def directory(self) -> Path:
        """The directory that holds every name."""
        return self.path.parent if self.single else self.path

    @property
    def journal(self) -> Path:
        """The file that says how far the writer came."""
        return self.path.with_suffix(".writing.json") if self.single else self.path / "writing.json"

    @property
    def lock(self) -> Path:
        """The file that the writer holds with flock."""
        return self.path.with_suffix(".writer.lock") if self.single else self.path / "writer.lock"

    @property
    def manifest(self) -> Path:
        """The file that describes the newest version."""
        return self.path.with_suffix(".json") if self.single else self.path / "manifest.json"

    def final(self, number: int, suffix: str) -> Path:
        """Name a shard's finished file."""
        return self.path.with_suffix(suffix) if self.single else self.path / (shard_name(number) + suffix)

    def part(self, number: int, suffix: str) -> Path:
        """Name a shard's unfinished file."""
        whole = self.final(number, suffix)
        return whole.with_name(whole.name + ".part")

    def clear(self, number: int) -> None:
        """Remove what is left of a shard that no checkpoint speaks of."""
        for suffix in (".bin", ".idx", ".sum"):
            disk.remove(self.part(number, suffix))
            disk.remove(self.final(number, suffix))


FORMAT = "millstream writing"


@dataclass(frozen=True)
class WriterJournal:
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


def load_journal(path: Path) -> WriterJournal | None:
    """Read the journal, if there is one."""
    if not path.exists():
        return None
    fields = read_json(path)
    fields = {"compress": 0, "tail": "", **fields}  # what older writers did not know
    check_keys(path, fields, RULES)
    values = {key: value for key, value in fields.items() if not key.startswith("format")}
    row = values.pop("open")
    return WriterJournal(**values, open=None if row is None else Row(**row))


def sealed_rows(paths: WriterPaths, journal: WriterJournal) -> list[Row]:
    """Read the sealed shards of a journal back from their frames."""
    rows = []
    for number in range(journal.first_file, journal.first_file + journal.sealed):
        frame = read_frame(paths.final(number, ".bin"), "T")
        if frame.dtype != journal.dtype:
            raise StoreError(
                f"{paths.final(number, '.bin')}: holds {frame.dtype}, not {journal.dtype}", hint=START_AGAIN
            )
        for suffix, kind in ((".idx", index_kind(journal.dtype)), (".sum", "C")):
            if read_frame(paths.final(number, suffix), kind).tag != frame.tag:
                raise StoreError(f"{paths.final(number, suffix)}: belongs to another shard", hint=START_AGAIN)
        rows.append(Row(frame.count, frame.documents, frame.tag, frame.bound, number))
    if (sum(r.tokens for r in rows), sum(r.documents for r in rows)) != (journal.tokens, journal.documents):
        raise StoreError(f"{paths.journal}: the sealed shards are not those of the last checkpoint", hint=START_AGAIN)
    return rows
