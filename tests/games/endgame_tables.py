"""Where the real Syzygy tables lie, which are no part of this project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VARIABLE = "MILLSTREAM_SYZYGY"


def syzygy_folder() -> str:
    """The folder of the tables with up to 4 pieces; a test that needs them fails where they are not."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "syzygy"
    folder = Path(os.environ.get(VARIABLE, beside))
    if not (folder / "KQvK.rtbw").is_file():
        pytest.fail(
            f"no Syzygy tables in {folder}: take the folder data/syzygy/regular of the public repository "
            f"niklasf/python-chess, and let {VARIABLE} name it"
        )
    return str(folder)
