"""Small loaders for the tests, slow and obvious references, and scripts that run in a process of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from millstream import DataLoader, PretrainDataLoader, TrainingBatch
from millstream.errors import MillstreamError

Ids = list[list[int]]


def counting_file(path: Path, tokens: int = 1001, dtype: str = "uint16") -> Path:
    """Write a bare file whose token i is i."""
    np.arange(tokens, dtype=dtype).tofile(path)
    return path


def counting_loader(path: Path, tokens: int = 1001, **settings: Any) -> PretrainDataLoader:
    """Open a loader over a bare file whose token i is i: each row shows where it was cut."""
    chosen: dict[str, Any] = {"chunk_size": 10, "batch_size": 4, "dtype": "uint16", "framework": "numpy", **settings}
    return PretrainDataLoader(counting_file(path / "counting.bin", tokens, chosen["dtype"]), **chosen)


def inputs(batches: Iterable[TrainingBatch]) -> Ids:
    """Give the input rows of batches, one after another."""
    return [row for batch in batches for row in batch.to("numpy").input_ids.tolist()]


def take(loader: DataLoader[TrainingBatch], batches: int) -> Ids:
    """Give the input rows of the next batches."""
    return inputs(loader.next() for _ in range(batches))


def follows_its_hint(error: MillstreamError) -> str:
    """Insist on a hint, and give it."""
    assert error.hint, f"this error has no hint: {error}"
    return error.hint


def run_script(
    code: str, *arguments: object, env: dict[str, str] | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own; a hang is an error."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env, check=False)


def ran(code: str, *arguments: object, env: dict[str, str] | None = None) -> list[str]:
    """Run Python code in a process of its own, insist on success, and give what it printed."""
    done = run_script(code, *arguments, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def windows(tokens: Sequence[int], length: int, *, tail: str = "drop") -> Ids:
    """Cut tokens into rows of inputs, as the order counts them: n = (total - 1) // length, or one more with a tail."""
    whole = max(0, len(tokens) - 1) // length
    rows = [list(tokens[i * length : (i + 1) * length]) for i in range(whole)]
    rest = list(tokens[whole * length :])
    return [*rows, rest] if tail == "pad" and len(rest) > 1 else rows
