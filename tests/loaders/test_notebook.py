"""A loader works in a notebook: in a running event loop, in cells that are run again, and after an interrupted one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbclient
import nbformat

from loaders.samples import counting_file

OPEN = """
    from pathlib import Path
    from millstream import PretrainDataLoader

    loader = PretrainDataLoader(
        "counting.bin", chunk_size=10, batch_size=4, threads=3, dtype="uint16", framework="numpy", shuffle=False
    )
    first = loader.next()
"""
COUNT_THREADS = """
    import os
    def threads():
        return len(os.listdir("/proc/self/task"))
    before = threads()
"""
WAIT_FOR_THREADS = """
    import time
    deadline = time.monotonic() + 20
    while threads() > before and time.monotonic() < deadline:  # the kernel lists a joined thread a moment longer
        time.sleep(0.001)
    print(threads() - before)
"""
ASYNC = """
    import asyncio
    inside = loader.next()
    beside = await asyncio.gather(*(asyncio.to_thread(loader.next) for _ in range(3)))
    print(sorted(batch.metadata["step"] for batch in (inside, *beside)))
"""
INTERRUPTED = """
    import os, signal, threading
    from itertools import count

    at_work = threading.Event()
    threading.Thread(target=lambda: at_work.wait() and os.kill(os.getpid(), signal.SIGINT)).start()
    seen = []
    for taken in count():
        seen.append(loader.next().metadata["step"])
        if taken == 5:
            at_work.set()
"""
GO_ON = """
    step = loader.step
    again = loader.next().metadata["step"]
    print(again == step, step - seen[-1] in (1, 2), seen == list(range(seen[0], seen[0] + len(seen))))
    loader.close()
"""


def run_cells(folder: Path, *sources: str) -> list[Any]:
    """Run cells in a kernel of their own, one after another; give the outputs of each."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(_dedented(source)) for source in sources])
    context = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=60, allow_errors=True, resources=context).execute()
    return [cell.outputs for cell in notebook.cells]


def _dedented(source: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in source.strip("\n").splitlines())


def printed(outputs: list[Any]) -> str:
    assert {output.output_type for output in outputs} == {"stream"}, outputs
    return "".join(str(output.text) for output in outputs).strip()  # a kernel may give a line in pieces


def test_a_loader_works_in_a_notebook(tmp_path: Path) -> None:
    counting_file(tmp_path / "counting.bin")

    *opened, threads, awaited, interrupted, went_on = run_cells(
        tmp_path, OPEN, COUNT_THREADS, OPEN, OPEN, OPEN, WAIT_FOR_THREADS, ASYNC, INTERRUPTED, GO_ON
    )

    assert opened == [[]] * 5
    assert printed(threads) == "0"  # more than one loader has: a cell that is run again leaves none behind
    assert printed(awaited) == "[1, 2, 3, 4]"
    told = "".join(output.get("ename", "") + output.get("text", "") for output in interrupted)
    assert "KeyboardInterrupt" in told  # printed where IPython cannot format it, as between two lines of Python
    assert printed(went_on) == "True True True"
