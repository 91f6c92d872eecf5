"""How much memory this process holds."""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path


def resident_bytes() -> int:
    """The memory that this process holds now; where the system does not say, the most it ever held.

    >>> 1 << 20 < resident_bytes() <= peak_bytes() * 2
    True
    """
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return peak_bytes()
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """The most memory that this process ever held."""
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
