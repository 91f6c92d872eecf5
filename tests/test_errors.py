"""An error says where, what was found and what to try."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import millstream
from millstream import errors
from millstream.errors import LoaderError, MissingExtra
from millstream.loaders import positive

SOURCES = Path(millstream.__file__).parent
NAMES = {name for name, each in vars(errors).items() if inspect.isclass(each)} - {"MissingExtra"}


def without_hint(path: Path) -> Iterator[str]:
    """The lines of a file that make an error of ours without a hint."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in NAMES:
            continue
        third = node.func.id == "RecordError" and len(node.args) > 2
        if not third and not any(keyword.arg == "hint" for keyword in node.keywords):
            yield f"{path.relative_to(SOURCES)}:{node.lineno}"


@pytest.mark.parametrize("part", sorted(path.name for path in SOURCES.iterdir() if path.suffix in ("", ".py")))
def test_every_error_that_is_raised_has_a_hint(part: str) -> None:
    files = [SOURCES / part] if part.endswith(".py") else sorted((SOURCES / part).rglob("*.py"))

    assert [line for file in files for line in without_hint(file)] == []


def test_a_number_below_1_is_answered_with_a_hint_about_that_very_argument() -> None:
    hints = set()
    names = ["batch_size", "chunk_size", "threads", "prefetch", "memory_budget", "epoch_size", "mix_block"]
    for name in names:
        with pytest.raises(LoaderError, match=f"{name} must be an integer of at least 1") as caught:
            positive(name, 0)
        hints.add(caught.value.hint)

    assert len(hints) == len(names)


INSTALLED = {
    "from an index": (None, "pip install 'millstream[redis]'"),
    "from a clone": (
        {"url": "file:///src/my%20mill", "dir_info": {}},
        "pip install '.[redis]' in /src/my mill, where Millstream was installed from",
    ),
    "from a clone, to be edited": (
        {"url": "file:///src/mill", "dir_info": {"editable": True}},
        "pip install -e '.[redis]' in /src/mill, where Millstream was installed from",
    ),
    "from a wheel on the disk": (
        {"url": "file:///tmp/millstream-0.1.0-py3-none-any.whl", "archive_info": {}},
        "pip install 'millstream[redis] @ file:///tmp/millstream-0.1.0-py3-none-any.whl'",
    ),
    "from a repository": (
        {"url": "https://example.org/mill.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}},
        "pip install 'millstream[redis] @ git+https://example.org/mill.git'",
    ),
    "damaged": ("no json", "pip install '.[redis]' in the folder of the clone"),
}


@pytest.mark.parametrize("how", INSTALLED)
def test_a_missing_extra_names_the_command_that_works_here(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, command = INSTALLED[how]
    info = tmp_path / "millstream-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: millstream\nVersion: 0.1.0\n")
    if origin is not None:
        (info / "direct_url.json").write_text(origin if isinstance(origin, str) else json.dumps(origin))
    monkeypatch.syspath_prepend(tmp_path)

    assert MissingExtra.of("redis", "redis").hint == command


def test_a_clone_that_was_never_installed_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if isinstance(finder, type)])

    assert MissingExtra.of("redis", "redis").hint == "pip install '.[redis]' in the folder of the clone"
