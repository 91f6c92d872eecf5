"""The folders of the native core: small, in one direction, and each fronted by one binding file."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent / "csrc"
LAYERS = ("kernels", "memory", "text", "parse", "filter", "store", "order", "fill", "chat", "rl", "chess")
"""A folder includes its own headers and those of folders before it."""
FULL = 22


def sources(folder: str) -> list[Path]:
    return sorted(path for path in (ROOT / "core" / folder).iterdir() if path.suffix in (".h", ".cpp"))


def test_every_file_of_the_core_lies_in_a_known_folder() -> None:
    found = {path.relative_to(ROOT / "core").parts[0] for path in (ROOT / "core").rglob("*") if path.is_file()}

    assert found == set(LAYERS)


def test_no_folder_of_the_core_is_full() -> None:
    assert {folder: len(sources(folder)) for folder in LAYERS if not 0 < len(sources(folder)) <= FULL} == {}


def test_folders_of_the_core_include_each_other_in_one_direction() -> None:
    wrong = [
        f"{path.name} includes {other}"
        for number, folder in enumerate(LAYERS)
        for path in sources(folder)
        for other in re.findall(r'#include "core/(\w+)/', path.read_text("utf-8"))
        if other not in LAYERS[: number + 1]
    ]

    assert wrong == []


def test_every_folder_of_the_core_has_one_binding_file() -> None:
    bound = {path.stem for path in (ROOT / "bind").glob("*.cpp")} - {"module"}

    assert bound == set(LAYERS)
