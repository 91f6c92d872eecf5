"""Libraries that only `make oracles` installs: there a missing one is an error; elsewhere its tests are not run."""

from __future__ import annotations

import importlib
import os
from typing import Any


def asked(name: str) -> Any:
    """Import an oracle, where oracles are asked."""
    return importlib.import_module(name) if os.environ.get("MILLSTREAM_ORACLES") else None
