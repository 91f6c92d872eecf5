"""What all states have in common: a header that says whose they are, checked counts, a size, and files beside them.

A state is readable JSON of less than 4 KB: plain integers and strings. What does not fit lies in a sidecar beside the
checkpoints. Nothing in a state is trusted.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from millstream.errors import StateError
from millstream.storage import sidecar
from millstream.storage.durable import disk
from millstream.storage.sidecar import Sidecars

logger = logging.getLogger("millstream.storage")
STATE_FORMAT = "millstream state"
VERSION = 1
MOST_BYTES = 4095
"""Of a state, which is less than 4 KB of JSON."""
MOST_COUNT = 2**62
"""More than any run counts, and less than native arithmetic overflows."""
OLD = ".json"
"""How files beside a state ended in older versions."""
DAMAGED_STATE = "the state is damaged; use another checkpoint"
_EDITED = "it is the state of something else, or was edited; give what state_dict() returned, as it was"


def state_header(loader: str, step: int, seed: int, rows: Mapping[str, Any], *, order_version: int) -> dict[str, Any]:
    """What every state begins with; `check_header` reads it."""
    return {
        "format": STATE_FORMAT,
        "version": VERSION,
        "order_version": order_version,
        "loader": loader,
        "step": step,
        "seed": seed,
        "rows": dict(rows),
    }


def _as_it_was(fact: str, saved: Any) -> str:
    return f"pass {fact}={saved!r} to go on with that run"


def check_state_header(
    state: Mapping[str, Any],
    loader: str,
    seed: int,
    rows: Mapping[str, Any],
    hint: Callable[[str, Any], str] = _as_it_was,
    *,
    order_version: int,
) -> int:
    """Check that a state fits a loader; gives its step. `hint` says how to have again what a fact of its rows was."""
    if not isinstance(state, Mapping) or state.get("format") != STATE_FORMAT:
        raise StateError("this is not the state of a Millstream loader", hint="give what state_dict() returned")
    _check_has(state, "version", "order_version")
    if state["version"] != VERSION or state["order_version"] != order_version:
        raise StateError(
            f"the state has version {state['version']} and order version {state['order_version']}; "
            f"this Millstream reads version {VERSION} and order version {order_version}",
            hint="use the Millstream that wrote it",
        )
    _check_has(state, *state_header(loader, 0, seed, rows, order_version=order_version))
    if state["loader"] != loader:
        raise StateError(
            f"this is the state of a {state['loader']!r} loader, not of a {loader!r} one",
            hint="load it into a loader of the kind that saved it",
        )
    if state["seed"] != seed:
        raise StateError(
            f"the state was saved with seed={state['seed']}, this loader has seed={seed}",
            hint=f"pass seed={state['seed']} to go on with that run",
        )
    _check_rows(state["rows"], rows, hint)
    return read_count(state["step"], "step")


def _check_has(state: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        if key not in state:
            raise StateError(f"the state has no {key!r}", hint=_EDITED)


def _check_rows(saved: Any, rows: Mapping[str, Any], hint: Callable[[str, Any], str]) -> None:
    """Check that rows are what they were; a fact that is None need not be there."""
    if not isinstance(saved, Mapping):
        raise StateError(f"rows in the state are {saved!r}, not facts by their names", hint=_EDITED)
    for key, value in rows.items():
        found = saved.get(key)
        if found == value:
            continue
        if key not in saved:
            raise StateError(
                f"the state does not say {key}, this loader has {key}={value!r}",
                hint=f"it was saved by a loader that has no {key}=, or was edited; give what state_dict() returned",
            )
        raise StateError(
            f"the state was saved with {key}={found!r}, this loader has {key}={value!r}", hint=hint(key, found)
        )


def read_count(value: Any, what: str) -> int:
    """Insist on a count that no arithmetic overflows."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MOST_COUNT:
        raise StateError(
            f"{what} in the state is {value!r}, not a count",
            hint=DAMAGED_STATE,
        )
    return value


def state_fits(state: object) -> bool:
    """Whether a state is not too large."""
    return len(json.dumps(state)) <= MOST_BYTES


class StateFiles(Sidecars):
    """Sidecars that hold the earlier phases of a run, as JSON. Other runs may keep theirs in the same folder."""

    def __init__(self, folder: Path | None, kind: str) -> None:
        super().__init__(folder, kind, named_by="earlier_phases")
        self._has_warned = False

    def warn_of_no_past(self, phases: int) -> None:
        """Say once that states do not keep the past."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%d phases are too many for a state: it resumes, but its past cannot be explained; "
                "pass cache_dir= to keep them",
                phases,
            )

    def name_in(self, reference: Any) -> str:
        """The file that a state refers to; those of older versions were named otherwise."""
        name = reference.get("file") if isinstance(reference, Mapping) else None
        if not isinstance(name, str) or not re.fullmatch(rf"{self.kind}-[0-9a-f]{{32}}(\.bin|{re.escape(OLD)})", name):
            raise StateError(f"the state names its {self.kind} in a way that cannot be read", hint=DAMAGED_STATE)
        return name

    def read(self, name: str, *, needed: bool) -> Mapping[str, Any] | None:
        """Read a file that a state names; None where it is not here and the run can do without it."""
        path = None if self.folder is None else self.folder / name
        if path is None or not path.exists():
            if needed:
                raise StateError(
                    f"the phases of this run lie in {name}, which is not here",
                    hint="pass the cache_dir= it was saved with",
                )
            logger.warning("%s is not here: the run resumes, but its past cannot be explained", name)
            return None
        text = (
            _read_old(path, self.kind) if path.suffix == OLD else sidecar.load([path.parent], self.kind, {"file": name})
        )
        try:
            whole = json.loads(text)
        except ValueError:
            whole = None
        if not isinstance(whole, Mapping):
            raise StateError(f"{path}: does not hold phases", hint=DAMAGED_STATE)
        return whole


def _read_old(path: Path, kind: str) -> bytes:
    """Read a file of a state of an older version, which is JSON by its name, too."""
    with disk.reported(path):
        found = path.read_bytes()
    if path.stem != f"{kind}-{hashlib.blake2b(found, digest_size=16).hexdigest()}":
        raise StateError(f"{path}: does not hold the phases that the state names", hint="restore the file")
    return found
