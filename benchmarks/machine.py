"""What was measured on what: enough to compare two results, nothing that names the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path


def cpu_model() -> str:
    """Give the processor's name and its family and model, as the kernel reports them."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    family, model = fields.get("cpu family", "?"), fields.get("model", "?")
    return f"{fields.get('model name', platform.machine())} (family {family}, model {model})"


def last_level_cache() -> str:
    """Give the size of the largest cache of the first core."""
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("*/size")]
    return max(sizes, key=lambda size: int(size.rstrip("KMG")), default="?")


def commit() -> str:
    """Give the commit of this tree, marked when files differ from it."""
    here = Path(__file__).resolve().parent
    try:
        asked = ["git", "describe", "--always", "--dirty", "--exclude=*"]
        return subprocess.run(asked, cwd=here, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def version(package: str) -> str:
    """Give the installed version of `package`."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def facts(packages: Iterable[str]) -> dict[str, str]:
    """Describe the machine and the versions of everything that took part."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = {
        "cpu": cpu_model(),
        "cores": str(os.cpu_count()),
        "last level cache": last_level_cache(),
        "memory": f"{pages / 1e9:.0f} GB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": commit(),
        "load average": f"{os.getloadavg()[0]:.1f}",
    }
    return found | {package: version(package) for package in packages}


def one_line(facts: Mapping[str, object]) -> str:
    """Say facts in one line of a report."""
    return "; ".join(f"{name} {value}" for name, value in facts.items())
