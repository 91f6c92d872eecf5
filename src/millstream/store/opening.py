"""From a path to a checked layout: a directory, a file of ours, a Megatron pair or a bare file.

Opening never looks at anything of the size of the data: the manifest, the table, a few frames.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

from millstream.errors import MillstreamError, StoreError
from millstream.sources import Reading, discover, first_row, format_of
from millstream.storage import COPY_AGAIN, disk, staging_folder
from millstream.store.compressed_blocks import BLOCK_TOKENS
from millstream.store.foreign import is_megatron_index, open_bare, open_megatron
from millstream.store.frames import MAGIC, read_frame
from millstream.store.layout import DOCUMENTS, Layout, Row, load_table, rows_of
from millstream.store.manifest import check_agreement, describe, load_manifest, manifest_path, table_path
from millstream.store.origins import Origins
from millstream.store.shard_files import check_shard

CHECKED_AT_OPEN = 64


@dataclass(frozen=True)
class Opened:
    """A store that passed every check that opening makes."""

    kind: str  # "directory", "file", "megatron" or "bare"
    layout: Layout
    manifest: dict[str, Any]
    origins: Origins | None = None
    """Where documents came from, if that is not what the manifest says."""


def open_store(path: Path, dtype: str | None, version: str | None) -> Opened:
    """Recognise what lies at `path`, and check it."""
    if path.is_dir():
        opened = open_directory(path, version)
    elif version is not None:
        raise StoreError(f"{path}: only a directory has versions", hint="leave out version=")
    else:
        opened = open_file(find_file(path), dtype)
    if dtype is not None and dtype != opened.layout.dtype:
        raise StoreError(f"{path}: the ids are {opened.layout.dtype}, not {dtype}", hint="leave out dtype=")
    return opened


def find_file(path: Path) -> Path:
    """Find the token file: the path itself, or the `.bin` of a pair named by its prefix or its `.idx`."""
    if path.suffix == ".idx" and path.exists():
        path = path.with_suffix(".bin")
    if path.exists():
        return path
    beside = path.with_name(path.name + ".bin")
    if path.suffix != ".bin" and beside.exists():
        return beside
    if path.with_name(path.name + ".part").exists() or path.with_suffix(".writing.json").exists():
        raise StoreError(f"{path}: was not finished; its writer was stopped", hint=RESUME)
    if staging_folder(path).exists():
        raise StoreError(f"{path}: is being prepared, or its `prepare` was killed", hint=PREPARE)
    hint = "check the name; a store is made with `millstream prepare`"
    raise StoreError(f"{path}: there is no such file or directory", hint=hint)


PREPARE = "wait for it, or prepare it again: a store that was to be replaced is then put back first"
RESUME = "resume it with TokenStoreWriter(path, resume=True)"


def open_file(path: Path, dtype: str | None) -> Opened:
    """Open one token file, ours or foreign."""
    with os.fdopen(disk.open_regular(path), "rb") as file:
        start = file.read(len(MAGIC))
    if start == MAGIC:
        return open_single(path)
    if is_megatron_index(path.with_suffix(".idx")):
        layout = open_megatron(path)
        return Opened("megatron", layout, foreign_manifest("Megatron pair", layout))
    if dtype is None and (kind := format_of(path)) is not None:
        raise StoreError(f"{path}: this is raw data ({kind}), not a store", hint=to_prepare(path))
    if dtype is None:
        raise StoreError(
            f"{path}: no Millstream header and no Megatron index beside it",
            hint='for a bare array of ids (nanoGPT) pass dtype="uint16", or the dtype it was written with',
        )
    layout = open_bare(path, dtype)
    return Opened("bare", layout, foreign_manifest("bare token file", layout))


def foreign_manifest(form: str, layout: Layout) -> dict[str, Any]:
    """Describe what is known of a foreign file."""
    facts = describe(layout.dtype, layout.table)
    return {**facts, "format": form, "id_bound": None, "fingerprint": None}


def open_single(path: Path) -> Opened:
    """Open a `.bin` of ours with the companions that are there."""
    frame = read_frame(path, "T")
    row = Row(frame.count, frame.documents, frame.tag, frame.bound, 0)
    rows = rows_of([row] if frame.documents else [])
    manifest = describe(frame.dtype, rows)
    described = path.with_suffix(".json")
    if described.exists():
        manifest = load_manifest(described)
        check_agreement(described, manifest, rows)
    index = path.with_suffix(".idx")
    if index.exists():
        layout = Layout("", str(path), frame.dtype, 64, rows, "ends", str(index), block_tokens=frame.block)
        if len(rows):
            check_shard(layout, 0)
    else:
        rows = rows_of([Row(frame.count, 1, frame.tag, frame.bound, 0)])
        layout = Layout("", str(path), frame.dtype, 64, rows, "none", block_tokens=frame.block)
        manifest = {**manifest, "documents": int(rows[0, DOCUMENTS])}
    return Opened("file", layout, manifest)


def open_directory(path: Path, version: str | None) -> Opened:
    """Open a version of a directory store; the newest unless told."""
    source = manifest_path(path, version)
    if not source.exists():
        raise missing_manifest(path)
    manifest = load_manifest(source)
    if version is not None and manifest["fingerprint"] != source.stem:
        raise StoreError(f"{source}: this manifest describes version {manifest['fingerprint']}", hint=COPY_AGAIN)
    rows = load_table(table_path(path, manifest["fingerprint"]), manifest["dtype"])
    check_agreement(source, manifest, rows)
    layout = Layout(str(path), "", manifest["dtype"], 64, rows, "ends")
    few = len(rows) <= CHECKED_AT_OPEN
    looked_at = range(len(rows)) if few else (0, len(rows) - 1)
    blocks = [check_shard(layout, shard).block for shard in looked_at]
    largest = max(blocks, default=0) if few else max(*blocks, BLOCK_TOKENS)  # others may be packed
    return Opened("directory", replace(layout, block_tokens=largest), manifest)


def missing_manifest(path: Path) -> StoreError:
    """Say what a directory without a manifest is."""
    if (path / "writing.json").exists():
        return StoreError(f"{path}: was not finished; its writer was stopped", hint=RESUME)
    return StoreError(
        f"{path}: this is not a store (it has no manifest.json)",
        hint=f"if it holds raw data: {to_prepare(path)}",
    )


def to_prepare(path: Path) -> str:
    """How raw data becomes a store, or what is done with rollouts, which become none.

    >>> to_prepare(Path("my texts.txt"))
    "prepare it first: millstream prepare 'my texts.txt' corpus, or millstream.prepare() in Python"
    """
    from millstream.rollouts import holds_rollouts

    named = quote(str(path))
    row, format = _first_row(path)
    if row is not None and holds_rollouts(row):
        return (
            f"these are rollouts, which are used as they are: millstream show {named}, millstream lint {named}, or "
            "RolloutDataLoader in Python"
        )
    if format not in (None, "text"):
        return (
            f"these are conversations: millstream prepare {named} corpus --kind chat --template … --tokenizer …, or "
            "ConversationDataLoader in Python"
        )
    return f"prepare it first: millstream prepare {named} corpus, or millstream.prepare() in Python"


def _first_row(path: Path) -> tuple[Mapping[str, Any] | None, str | None]:
    """The first row of raw data, and which format of conversations it has, as far as that can be told."""
    from millstream.chats.parse import Options, format_of_rows

    try:
        file = discover(path).files[0]
        row = first_row(file)
        return row, None if row is None else format_of_rows(file, Reading(whole_rows=True), Options())
    except (MillstreamError, OSError):
        return None, None
