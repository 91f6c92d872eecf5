"""How tests run: they search without deadlines, since machines are noisy, and leave nothing behind.

Every temporary folder of a run, of its examples and child processes too, lies in one that is removed at the end: in
memory where there is plenty, since tests write thousands of small files, each durably. TMPDIR says another place.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads of numpy and torch that wait for small work take whole cores

settings.register_profile("steady", deadline=None)
settings.register_profile("fuzz", max_examples=5000, deadline=None)  # `make fuzz` looks longer
settings.load_profile("steady")

MEMORY, PLENTY = Path("/dev/shm"), 4 << 30  # of which tests take a tenth
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= PLENTY:
    available = next(line for line in Path("/proc/meminfo").read_text().splitlines() if "MemAvailable" in line)
    if int(available.split()[1]) << 10 >= PLENTY:
        os.environ["TMPDIR"], tempfile.tempdir = str(MEMORY), None

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts its background jobs so, and children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Frameworks and tests are here to stay: nobody looks for garbage among their million objects again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    tmp_path_factory.getbasetemp()  # pytest's own folders stay where they are: it keeps those of the last runs
    with tempfile.TemporaryDirectory(prefix="millstream-tests-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setenv("MILLSTREAM_CACHE", f"{folder}/cache")
        patch.setattr(tempfile, "tempdir", folder)
        yield
