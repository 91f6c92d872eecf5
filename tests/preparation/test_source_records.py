"""The raw record of a document is had again from its file, years later; a file that is another one is never quoted."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest

from millstream.api import prepare
from millstream.errors import SourceError, StoreError
from millstream.preparation import raw_record
from millstream.preparation import source_records as raw_module
from millstream.store import TokenStore, TokenStoreWriter
from sources.samples import PACKERS

TEXTS = ["the mill by the stream", "grinds, the grain", "日本語 ünï and more"]
LINES = [json.dumps({"text": text, "id": place}, ensure_ascii=False) for place, text in enumerate(TEXTS)]


def tar(members: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return written.getvalue()


def table_of(texts: list[str]) -> bytes:
    written = io.StringIO(newline="")
    csv.writer(written).writerows([["id", "text"], *enumerate(texts)])
    return written.getvalue().encode()


JSONL = "\n".join(LINES).encode()
ROWS = table_of(TEXTS).decode().splitlines()[1:]
UTF16 = "\n".join(["", *LINES]).encode("utf-16")
TWO_KINDS = {"0.jsonl": LINES[0].encode(), "1.jsonl": "\n".join(["", *LINES[1:]]).encode("utf-16")}

KINDS: dict[str, tuple[bytes, list[str]]] = {
    "a.txt": ("<|>".join(TEXTS).encode(), TEXTS),
    "a.jsonl": (JSONL, LINES),
    "marked.jsonl": (b"\xef\xbb\xbf" + JSONL, LINES),
    "wide.jsonl": (UTF16, LINES),
    "a.csv": (table_of(TEXTS), ROWS),
    "a.tar": (tar({f"{place}.txt": text.encode() for place, text in enumerate(TEXTS)}), TEXTS),
    "lines.tar": (tar({"x.bin": b"?", "a.jsonl": JSONL}), LINES),
    "wide.tar": (tar({f"{place}.txt": text.encode("utf-16") for place, text in enumerate(TEXTS)}), TEXTS),
    "wide-lines.tar": (tar(TWO_KINDS), LINES),
}


def stored(path: Path, output: Path) -> TokenStore:
    return TokenStore(prepare(path, output, "char", separator="<|>").path)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("packed", PACKERS)
def test_each_document_gives_its_raw_record_back(tmp_path: Path, name: str, packed: str) -> None:
    data, records = KINDS[name]
    (tmp_path / f"{name}{packed}").write_bytes(PACKERS[packed](data))

    with stored(tmp_path / f"{name}{packed}", tmp_path / "corpus") as store:
        found = [raw_record(store, document) for document in range(store.documents)]

    assert [record.text for record in found] == records
    assert all(record.hashed and record.path == tmp_path / f"{name}{packed}" for record in found)


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_a_row_of_a_table_is_given_back_by_its_number(tmp_path: Path, ending: str) -> None:
    table, path = pyarrow.table({"text": ["", *TEXTS]}), str(tmp_path / f"a.{ending}")
    if ending == "parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=2)
    else:
        pyarrow.feather.write_feather(table, path)

    with stored(Path(path), tmp_path / "corpus") as store:
        found = [raw_record(store, document) for document in range(store.documents)]

    assert [record.text for record in found] == TEXTS
    assert [(record.origin.row, record.origin.start) for record in found] == [(1, None), (2, None), (3, None)]


def test_files_that_were_moved_are_found_below_another_root(tmp_path: Path) -> None:
    (tmp_path / "raw" / "deep").mkdir(parents=True)
    (tmp_path / "raw" / "deep" / "a.jsonl").write_text(LINES[0])
    (tmp_path / "raw" / "b.txt").write_text(TEXTS[1])
    store = stored(tmp_path / "raw", tmp_path / "data.bin")
    (tmp_path / "raw").rename(tmp_path / "moved")

    with pytest.raises(
        SourceError, match=r"(?s)b\.txt: the file that the document came from is gone.*hint: pass root="
    ):
        raw_record(store, 0)
    assert raw_record(store, 0, tmp_path / "moved").text == TEXTS[1]
    assert raw_record(store, 1, str(tmp_path / "moved")).text == LINES[0]


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def other(path: Path) -> None:
    path.write_bytes(path.read_bytes().swapcase())


@pytest.mark.parametrize(("change", "found"), [(longer, "bytes then"), (other, "the same size and other bytes")])
def test_a_file_that_has_changed_is_told_and_not_quoted(
    tmp_path: Path, change: Callable[[Path], None], found: str
) -> None:
    (tmp_path / "a.jsonl").write_bytes(JSONL)
    store = stored(tmp_path / "a.jsonl", tmp_path / "corpus")
    change(tmp_path / "a.jsonl")

    with pytest.raises(SourceError, match=rf"a\.jsonl: the file has changed since the store was made: .*{found}"):
        raw_record(store, 0)


def test_a_file_that_was_only_touched_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(JSONL)
    store = stored(tmp_path / "a.jsonl", tmp_path / "corpus")
    shutil.copyfile(tmp_path / "a.jsonl", tmp_path / "copy")
    (tmp_path / "copy").rename(tmp_path / "a.jsonl")
    os.utime(tmp_path / "a.jsonl", (1, 1))

    assert raw_record(store, 2).text == LINES[2]


def test_a_huge_file_is_compared_by_size_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_module, "HASHED_BYTES", 10)
    (tmp_path / "a.jsonl").write_bytes(JSONL)
    store = stored(tmp_path / "a.jsonl", tmp_path / "corpus")

    assert not raw_record(store, 0).hashed
    assert raw_record(store, 0, hashed=True).hashed


def test_a_store_that_does_not_say_where_it_came_from_says_that(tmp_path: Path) -> None:
    with TokenStoreWriter(tmp_path / "corpus", dtype="uint16") as writer:
        writer.append(np.array([1]))
    (tmp_path / "a.jsonl").write_bytes(JSONL)
    prepared = stored(tmp_path / "a.jsonl", tmp_path / "prepared")
    (tmp_path / "prepared" / "report.json").unlink()

    with pytest.raises(StoreError, match="does not say where its documents came from"):
        raw_record(TokenStore(tmp_path / "corpus"), 0)
    with pytest.raises(SourceError, match="has no report that says where its files were"):
        raw_record(prepared, 0)


@pytest.mark.parametrize("name", ["../a.jsonl", "/etc/passwd"])
def test_a_manifest_cannot_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(JSONL)
    store = stored(tmp_path / "a.jsonl", tmp_path / "corpus")
    manifest = {**store.manifest, "sources": [{**store.manifest["sources"][0], "path": name}]}
    store.manifest = manifest

    with pytest.raises(StoreError, match="leads out of the folder"):
        raw_record(store, 0, tmp_path)
