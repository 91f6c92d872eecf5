"""What a state says of a self-play run, and back; nothing in it is trusted.

With a folder the state names a sidecar, which holds the window and the reservoir, and a place in the journal. Without
one a pass is begun anew over the same files, and goes past the rows that were given out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millstream.errors import LoaderError
from millstream.live import Entrance, Mirror
from millstream.loaders.self_play.entrance import Entrances
from millstream.loaders.self_play.files import RunFiles
from millstream.loaders.self_play.hints import going_on_hint
from millstream.loaders.self_play.memory import SelfPlayTask
from millstream.loaders.self_play.past import Past, Stood
from millstream.order import order_version
from millstream.stats import read_counts
from millstream.storage import Position, check_state_header, read_count, state_header

KIND = "self-play"


@dataclass(frozen=True)
class Kept:
    """What lay beside a state."""

    journal: Position
    mirror: Mirror
    """The window and the reservoir."""
    entrance: Entrance
    """What enters then."""


@dataclass(frozen=True)
class Saved:
    """What a state says."""

    step: int
    epoch: int
    epoch_rows: int
    losses: Mapping[str, int]
    files: str | None
    """A hash of the files of the epoch, where nothing is kept."""
    kept: Kept | None


class States:
    """Writes and reads the states of a run.

    Args:
        task: Its settings must be those that a state was saved with.
        seed: Of the run.
        entrances: Say what enters where a state was saved.
    """

    def __init__(self, task: SelfPlayTask, seed: int, entrances: Entrances) -> None:
        self._task, self._seed, self._entrances = task, seed, entrances

    def write(self, stood: Stood, past: Past, files: RunFiles) -> dict[str, Any]:
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
        return check_state_header(state, KIND, self._seed, self._task.facts, going_on_hint, order_version=order_version)

    def read(self, state: Mapping[str, Any], files: RunFiles) -> Saved:
        """Read a state, and what lies beside it; nothing is changed."""
        step = self.check(state)
        epoch, rows = (read_count(state.get(key), key) for key in ("epoch", "epoch_rows"))
        losses = read_counts(state.get("losses"))
        kept = self._kept(state, epoch, files) if "sidecar" in state else None
        return Saved(step, epoch, rows, losses, state.get("files"), kept)

    def _kept(self, state: Mapping[str, Any], epoch: int, files: RunFiles) -> Kept:
        mirror = Mirror(self._task.window(self._seed, epoch), self._task.shuffle_frames)
        mirror.load(*files.load(state))
        position = Position.from_json(state.get("journal") or {})
        before, behind = files.journal.split_at(position, epoch)
        return Kept(position, mirror, self._entrances.again(epoch, before, behind))
