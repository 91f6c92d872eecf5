"""Sidecars: files beside a checkpoint that hold what does not fit into a state, named by their content.

A file is written and synced before the state that names it, and checked when it is read. `Sidecars` knows which states
name which file: `commit` of a state releases the files that only earlier states need.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from millstream.errors import StateError
from millstream.stages import ForkLock
from millstream.storage.durable import Bytes, disk

NAME_BYTES = 16
FREE_SPACE = "free some space: without its sidecar a state cannot be resumed"
MOST_STATES = 1024
"""States that are remembered of a folder that a run owns: the disk knows the files of older ones."""
RESTORE_SIDECAR = (
    "restore the file, or take another checkpoint; commit() removes the files of states older than its own"
)


def file_of(kind: str, data: Bytes) -> str:
    """The name of the file with this content."""
    return f"{kind}-{hashlib.blake2b(data, digest_size=NAME_BYTES).hexdigest()}.bin"


def save(folder: str | os.PathLike[str], kind: str, parts: Iterable[Bytes], *, writer: int | str = 0) -> dict[str, Any]:
    """Write parts into a file of a folder; gives what the state says of it. The same content is the same file.

    Writers with different names, such as ranks, may save at the same time.
    """
    folder = Path(folder)
    beside, digest, size = (
        folder / (f"{kind}.{writer}.tmp" if writer else f"{kind}.tmp"),
        hashlib.blake2b(digest_size=NAME_BYTES),
        0,
    )
    with disk.reported(folder, full=FREE_SPACE):
        disk.make_directory(folder)
        fd = disk.create(beside)
        try:
            for part in parts:
                disk.write(fd, part, size)
                digest.update(part)
                size += memoryview(part).nbytes
            disk.sync(fd)
        except BaseException:
            disk.remove(beside)
            raise
        finally:
            os.close(fd)
        name = f"{kind}-{digest.hexdigest()}.bin"
        disk.rename(beside, folder / name)
        disk.sync_directory(folder)
    return {"file": name, "bytes": size}


def load(folders: Sequence[str | os.PathLike[str]], kind: str, named: Mapping[str, Any]) -> bytes:
    """Read the file that a state names from the first of these folders that has it, and check that it is that one."""
    name = named.get("file")
    if not isinstance(name, str) or Path(name).name != name or not name.startswith(f"{kind}-"):
        raise StateError(f"the state names {name!r} as its sidecar", hint="it was changed by hand or damaged")
    path = next((path for path in (Path(folder, name) for folder in folders) if path.is_file()), None)
    if path is None:
        raise StateError(f"{Path(folders[0], name)}: the sidecar of the state is missing", hint=RESTORE_SIDECAR)
    with disk.reported(path):
        data = path.read_bytes()
    if name != file_of(kind, data):
        raise StateError(f"{path}: the sidecar of the state is damaged", hint=RESTORE_SIDECAR)
    return data


class Sidecars:
    """The sidecars of a run in a folder: the last state that names each, and so which of them may be released.

    A state that was saved or loaded may be asked for until a later one is committed. Ranks that save the same state
    write the same file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     files = Sidecars(folder, "window")
    ...     states = [{"step": step, "sidecar": files.save(bytes([step]), step)} for step in range(3)]
    ...     files.release(states[1])
    ...     [(Path(folder) / state["sidecar"]["file"]).exists() for state in states]
    [False, True, True]

    Args:
        folder: Where they lie; None: nowhere.
        kind: What they hold; their names begin with it.
        named_by: The entry of a state that names its file.
        owns: Whether all of this kind in the folder belong to the run, those that an earlier process left too;
            otherwise only those are released that were saved or loaded here.
        writer: Of those that save at the same time, such as ranks, each has another one; None: any number may save.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        kind: str,
        *,
        named_by: str = "sidecar",
        owns: bool = False,
        writer: int | None = None,
    ) -> None:
        self.folder, self.kind = None if folder is None else Path(folder), kind
        self._named_by, self._owns, self._writer = named_by, owns, writer
        self._steps: dict[str, int] = {}
        """The step of the last state that names a file, in the order in which these were saved or loaded."""
        self._lock = ForkLock()

    @property
    def any(self) -> bool:
        """Whether a state may be asked for that names one of them."""
        return bool(self._steps)

    def save(self, data: bytes | Iterable[Bytes], step: int) -> dict[str, Any]:
        """Write the sidecar of the state of a step, whole or in parts; gives what the state says of it."""
        assert self.folder is not None
        with self._lock:
            if isinstance(data, bytes):
                name = file_of(self.kind, data)
                if name in self._steps and (self.folder / name).is_file():
                    self._note(name, step)
                    return {"file": name, "bytes": len(data)}
                data = [data]
            writer = os.urandom(8).hex() if self._writer is None else self._writer
            named = save(self.folder, self.kind, data, writer=writer)
            self._note(named["file"], step)
        return named

    def load(self, state: Mapping[str, Any], beside: Iterable[Path] = ()) -> bytes:
        """Read what a state names, which may lie in another folder if it is not in this one."""
        assert self.folder is not None
        named = state.get(self._named_by)
        return load([self.folder, *beside], self.kind, named if isinstance(named, Mapping) else {})

    def loaded(self, names: Iterable[str], step: int) -> None:
        """The run stands where the state of a step was saved, which named these."""
        with self._lock:
            for name in names:
                self._note(name, step)

    def _note(self, name: str, step: int) -> None:
        self._steps[name] = max(step, self._steps.pop(name, step))
        while self._owns and len(self._steps) > MOST_STATES:
            del self._steps[next(iter(self._steps))]

    def _later(self, step: int, name: str | None) -> set[str]:
        """The files of later steps than this one; and of this step, of states that were saved or loaded later."""
        found, is_later = set[str](), name not in self._steps
        for each, named_at in self._steps.items():
            is_later = is_later or each == name
            if named_at > step or (named_at == step and is_later):
                found.add(each)
        return found

    def release(self, state: Mapping[str, Any]) -> None:
        """A state is committed: remove the sidecars that only states before it name, by step, then by time."""
        named = state.get(self._named_by)
        kept = named.get("file") if isinstance(named, Mapping) else None
        if self.folder is None or (self._owns and kept is None):
            return
        with self._lock, disk.reported(self.folder, full="free some space, then commit the state again"):
            needed = self._later(state["step"], kept) | {kept}
            here = [path.name for path in self.folder.glob(f"{self.kind}-*.bin")] if self._owns else list(self._steps)
            for name in [name for name in here if name not in needed]:
                disk.remove(self.folder / name)
            self._steps = {name: step for name, step in self._steps.items() if name in needed}
