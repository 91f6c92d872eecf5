"""zstd's own header: our declarations of its functions, structs and numbers are what it says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.oracle
ROOT = Path(__file__).parents[2]
COMPILE = ["g++", "-std=c++20", "-fsyntax-only", "-x", "c++"]


def test_our_declarations_are_those_of_the_header_of_zstd() -> None:
    there = subprocess.run([*COMPILE, "-"], input="#include <zstd.h>\n", text=True, capture_output=True)
    if there.returncode:
        pytest.fail("zstd.h is not here to compare with: apt install libzstd-dev, or name its folder in $CPATH")
    ours = [f"-I{ROOT / 'csrc'}", str(ROOT / "tests" / "oracles" / "zstd_header.cpp")]

    compared = subprocess.run([*COMPILE, *ours], text=True, capture_output=True)

    assert compared.returncode == 0, compared.stderr
