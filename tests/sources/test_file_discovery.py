"""Files are found once, in one order, and what is skipped is counted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from millstream.api import prepare
from millstream.errors import SourceError
from millstream.sources import discover


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b/two.txt", "a.jsonl", "b/one.md", "photo.png", ".secret.txt", ".git/c.txt", "README"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "data"


def names(source: object, **settings: Any) -> list[str]:
    return [file.name for file in discover(source, **settings).files]


def test_a_folder_gives_its_known_files_sorted_by_name(folder: Path) -> None:
    found = discover(folder)

    assert [(file.name, file.format) for file in found.files] == [
        ("a.jsonl", "jsonl"),
        ("b/one.md", "text"),
        ("b/two.txt", "text"),
    ]
    assert found.skipped == {"hidden": 1, "hidden folder": 1, "unknown kind": 2}
    assert found.bytes == sum(len(file.name) for file in found.files)


def test_a_given_format_takes_every_file_that_is_not_hidden(folder: Path) -> None:
    assert names(folder, format="text") == ["README", "a.jsonl", "b/one.md", "b/two.txt", "photo.png"]


def test_patterns_and_lists_give_the_same_names_in_the_same_order(folder: Path) -> None:
    by_pattern = names(f"{folder}/**/*.txt")
    by_list = names([folder / "b" / "two.txt", folder / "a.jsonl", str(folder / "b")])

    assert by_pattern == ["two.txt"]
    assert by_list == ["a.jsonl", "b/one.md", "b/two.txt"]


def test_a_file_reached_on_two_ways_is_read_once_and_counted(folder: Path) -> None:
    found = discover([folder, folder / "a.jsonl"])

    assert len(found.files) == 3
    assert found.skipped["listed twice"] == 1


def test_names_do_not_depend_on_where_the_folder_is_or_how_it_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "b")

    assert names("..") == names(folder) == names(folder / "b" / "..")


def test_links_are_followed_but_a_circle_ends(folder: Path) -> None:
    (folder / "b" / "up").symlink_to(folder)
    (folder / "gone.txt").symlink_to(folder / "nowhere")
    (folder / "self.txt").symlink_to(folder / "self.txt")

    found = discover(folder)

    assert [file.name for file in found.files] == ["a.jsonl", "b/one.md", "b/two.txt"]
    assert found.skipped["folder reached twice"] == 1
    assert found.skipped["broken link"] == 2


def test_a_pipe_in_a_folder_is_passed_over_and_a_named_one_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe.txt")

    assert discover(folder).skipped["not a regular file"] == 1
    with pytest.raises(SourceError, match="not a regular file"):
        discover(folder / "pipe.txt")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere", "there is no such file or folder"),
        ("*.parquet", "nothing matches"),
        ("photo.png", "this kind of file is unknown"),
        ("empty", r"no file to read \(it is empty\)"),
        ("only-photos", r"no file to read \(1 unknown kind\)"),
    ],
)
def test_a_source_that_gives_nothing_is_an_error_that_says_why(folder: Path, source: str, message: str) -> None:
    (folder / "empty").mkdir()
    (folder / "only-photos").mkdir()
    (folder / "only-photos" / "a.png").touch()

    with pytest.raises(SourceError, match=message):
        discover(folder / source)


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(SourceError, match="the list of sources is empty"):
        discover([])


def test_a_file_name_that_is_not_utf8_is_refused(folder: Path) -> None:
    (folder / os.fsdecode(b"bad\xff.txt")).touch()

    with pytest.raises(SourceError, match="this file name is not UTF-8"):
        discover(folder)


def test_an_unknown_format_is_refused(folder: Path) -> None:
    with pytest.raises(SourceError, match=r"format='zip' is unknown[\s\S]*jsonl"):
        discover(folder, format="zip")


def test_include_and_exclude_choose_among_the_files_of_a_folder(folder: Path) -> None:
    assert names(folder, include="b/*") == ["b/one.md", "b/two.txt"]
    assert names(folder, exclude=["*.md", "a.*"]) == ["b/two.txt"]
    assert names(folder, include=["*.md", "*.jsonl"], exclude="b/*") == ["a.jsonl"]
    assert discover(folder, exclude="*.md").skipped["excluded"] == 1


def test_compressed_files_have_the_format_below_their_ending(folder: Path) -> None:
    for name in ("c.jsonl.gz", "c.csv.ZST", "c.tar.xz", "c.tgz", "c.parquet", "c.feather", "c.gz"):
        (folder / name).touch()

    found = {file.name: file.format for file in discover(folder, include="c.*").files}

    assert found == {
        "c.jsonl.gz": "jsonl",
        "c.csv.ZST": "csv",
        "c.tar.xz": "tar",
        "c.tgz": "tar",
        "c.parquet": "parquet",
        "c.feather": "arrow",
    }


def test_a_mapping_gives_each_file_the_weight_of_its_entry(folder: Path) -> None:
    found = discover({folder / "b": 0.7, folder / "a.jsonl": 3})

    assert [(file.name, file.weight) for file in found.files] == [
        ("a.jsonl", 3.0),
        ("b/one.md", 0.7),
        ("b/two.txt", 0.7),
    ]
    assert json.loads(json.dumps(found.resolved()))[1] == {
        "path": "b/one.md",
        "bytes": 8,
        "format": "text",
        "source": "b",
        "weight": 0.7,
    }


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), "much"])
def test_an_impossible_weight_is_refused(folder: Path, weight: object) -> None:
    with pytest.raises(SourceError, match="weight="):
        discover({folder: weight})


def test_a_folder_that_cannot_be_listed_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: object) -> None:
        raise PermissionError(13, "Permission denied", os.fspath(path))  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", denied)

    with pytest.raises(SourceError, match="cannot be listed: Permission denied"):
        discover(folder)


def test_what_prepare_itself_made_is_no_raw_data(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    prepare(tmp_path / "a.txt", tmp_path / "corpus", "char", cache=False)
    prepare(tmp_path / "a.txt", tmp_path / "data.bin", "char", cache=False)
    (tmp_path / "data.bin.rejected.jsonl").write_text("{}")

    found = discover(tmp_path)

    assert [file.name for file in found.files] == ["a.txt"]
    assert found.skipped["store"] == 1
    with pytest.raises(SourceError, match="this is a store, not raw files"):
        discover(tmp_path / "corpus")


@pytest.mark.parametrize("source", [({"text": str(n)} for n in range(3)), iter(["a.txt"]), 7, [7]])
def test_what_is_no_source_is_refused_by_name(source: object) -> None:
    """A generator could be read only once, and its content is unknown before that."""
    with pytest.raises(SourceError, match=r"a \w+ is no source"):
        discover(source)
