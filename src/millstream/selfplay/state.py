"""What a state says of a self-play run, and back; nothing in it is trusted.

With a folder the state names a sidecar, which holds the window and the reservoir, and a position in the journal.
Without one a resumed run repeats its pass over the same files and skips the rows that were delivered. Settings that
differ from those of the saved run are an error, whose hint names the keyword to pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millstream.errors import LoaderError
from millstream.order import order_version
from millstream.selfplay.admission import AdmissionPolicy
from millstream.selfplay.delivered_state import DeliveredState, RecentSteps, StepSnapshot
from millstream.selfplay.resume import AdmissionPolicies
from millstream.selfplay.run_files import RunFiles
from millstream.selfplay.settings import SelfPlayTask
from millstream.stats import read_counts
from millstream.storage import Position, check_state_header, read_count, state_header

KIND = "self-play"
_SETTINGS = ("positions", "hanse", "rescore", "match", "predicates")
"""What a state does not say as it is passed."""


@dataclass(frozen=True)
class SavedStages:
    """What lay beside a state."""

    journal: Position
    mirror: DeliveredState
    """The window and the reservoir."""
    entrance: AdmissionPolicy
    """What enters then."""


@dataclass(frozen=True)
class SavedRun:
    """What a state says."""

    step: int
    epoch: int
    epoch_rows: int
    losses: Mapping[str, int]
    files: str | None
    """A hash of the files of the epoch, where nothing is kept."""
    kept: SavedStages | None


class States:
    """Writes and reads the states of a run.

    Args:
        task: Its settings must be those that a state was saved with.
        seed: Of the run.
        entrances: Say what enters where a state was saved.
    """

    def __init__(self, task: SelfPlayTask, seed: int, entrances: AdmissionPolicies) -> None:
        self._task, self._seed, self._entrances = task, seed, entrances

    def write(self, stood: StepSnapshot, past: RecentSteps, files: RunFiles) -> dict[str, Any]:
        """The state of a run that stood there. Where it has a folder, its files are open."""
        state = {
            **state_header(KIND, stood.step, self._seed, self._task.facts, order_version=order_version),
            "epoch": stood.epoch,
            "epoch_rows": stood.epoch_rows,
        }
        if files.folder is not None:
            saved = files.save(stood.step, stood.journal, *past.at(stood).state())
            return {**state, "losses": dict(past.losses_at(stood)), **saved}
        files.refuse_parents()
        if self._task.watch:
            raise LoaderError(
                "a window of games does not fit into a state, and there is no folder to keep it in",
                hint="pass cache_dir=, a folder beside the checkpoints",
            )
        return {**state, "losses": dict(stood.at_first), "files": stood.files}

    def check(self, state: Mapping[str, Any]) -> int:
        """Check that a state is one of a run like this; gives its step."""
        return check_state_header(state, KIND, self._seed, self._task.facts, resume_hint, order_version=order_version)

    def read(self, state: Mapping[str, Any], files: RunFiles) -> SavedRun:
        """Read a state, and what lies beside it; nothing is changed."""
        step = self.check(state)
        epoch, rows = (read_count(state.get(key), key) for key in ("epoch", "epoch_rows"))
        losses = read_counts(state.get("losses"))
        kept = self._kept(state, epoch, files) if "sidecar" in state else None
        return SavedRun(step, epoch, rows, losses, state.get("files"), kept)

    def _kept(self, state: Mapping[str, Any], epoch: int, files: RunFiles) -> SavedStages:
        mirror = DeliveredState(self._task.window(self._seed, epoch), self._task.shuffle_frames)
        mirror.load(*files.load(state))
        position = Position.from_json(state.get("journal") or {})
        before, behind = files.journal.split_at(position, epoch)
        return SavedStages(position, mirror, self._entrances.on_resume(epoch, before, behind))


def resume_hint(fact: str, saved: object) -> str:
    """How to have again what a state was saved with.

    >>> resume_hint("positions", "PositionSampling(rate=None, count=2, weights=…)")
    'pass positions=2 to resume that run, and its weights= if it had some'
    >>> resume_hint("positions", "PositionSampling(rate=None, count=None, weights=PositionWeights(gamma=1.0))")
    'leave out positions= to resume that run'
    >>> resume_hint("rescore", "None"), resume_hint("watch", False)
    ('leave out rescore= to resume that run', 'pass watch=False to resume that run')
    >>> resume_hint("num_chunks", 500)
    'pass num_chunks=500 to resume that run; the size of a window cannot change: begin a new run for another one'
    """
    if fact == "num_chunks":
        another = "the size of a window cannot change: begin a new run for another one"
        return f"pass num_chunks={saved!r} to resume that run; {another}"
    if fact not in _SETTINGS:
        return f"pass {fact}={saved!r} to resume that run"
    number = re.match(r"\w+\((?:rate=None, count=|rate=|gamma=)(\d[\d.e-]*)", str(saved))
    if number is not None and fact in ("positions", "hanse"):
        return f"pass {fact}={number[1]} to resume that run, and its weights= if it had some"
    if saved in (None, "None") or fact == "positions":
        return f"leave out {fact}= to resume that run"
    return f"pass the {fact}= that it had to resume that run"
