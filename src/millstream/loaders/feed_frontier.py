"""What of a run over a feed lies on disk beside its states: the journal of what was trained on, and sidecars."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from millstream.admission import (
    Admission,
    AdmissionRules,
    AdmissionState,
    Cut,
    Journal,
    JournaledAdmission,
    JournalReader,
    Position,
    sidecar,
)
from millstream.errors import LoaderError, StateError

logger = logging.getLogger("millstream.loaders")
JOURNAL = "admissions.jsonl"
SIDECARS = "sidecars"


class Frontier:
    """Begins, saves and loads what decides, together with its journal: one process writes, others follow."""

    def __init__(self, rules: AdmissionRules, seed: int, folder: Path | None, *, leads: bool, replay: bool) -> None:
        if folder is None and (replay or not leads):
            raise LoaderError(
                "what other ranks, or an earlier run, trained on stands in a journal, and nobody said where it is",
                hint="pass cache_dir=, a folder that all ranks see",
            )
        self._rules, self._seed, self._follows = rules, seed, replay or not leads
        self.folder = folder
        self._journal: Journal | None = None
        self._saved: list[dict[str, Any]] = []
        """The sidecars of states that somebody may have, oldest first."""

    @property
    def saved(self) -> bool:
        """Whether somebody has a state."""
        return bool(self._saved)

    @property
    def journal_path(self) -> Path | None:
        """Where it is written what was trained on."""
        return None if self.folder is None else self.folder / JOURNAL

    def begin(self) -> Admission | JournaledAdmission:
        """What decides from the very beginning."""
        if self._follows:
            assert self.journal_path is not None
            return JournaledAdmission(JournalReader(self.journal_path), self._rules, self._seed)
        return Admission(self._rules, self._seed)

    def start(self) -> None:
        """The run begins, without a state: an older journal is another run's, and is put aside."""
        path = self.journal_path
        if self._follows or path is None:
            return
        if path.exists() and path.stat().st_size:
            aside = next(each for n in range(1, 10**6) if not (each := path.with_name(f"{path.name}.{n}")).exists())
            path.rename(aside)
            logger.warning("%s: the journal of another run was put aside as %s", path, aside.name)
        self._journal = Journal(path)

    def write(self, cut: Cut) -> None:
        """Write down what is trained on, before it is."""
        if self._journal is not None:
            self._journal.append(cut)

    def save(self, state: AdmissionState, cuts: Sequence[Cut]) -> dict[str, Any]:
        """Write what is held beside the states, and say where it lies."""
        if self.folder is None:
            raise LoaderError(
                "rollouts that wait do not fit into a state, and nobody said where to keep them",
                hint="pass cache_dir=, a folder beside the checkpoints",
            )
        fields = {"admission": dict(state.fields), "present": [cut.to_json() for cut in cuts]}
        whole = AdmissionState(fields, [*state.blocks, *(cut.block for cut in cuts)])
        named = sidecar.save(self.folder / SIDECARS, whole)
        self._saved.append(named)
        journal = Position() if self._journal is None else self._journal.position
        return {"sidecar": named, "journal": journal.to_json()}

    def load(self, state: Mapping[str, Any], now: float) -> tuple[Admission | JournaledAdmission, list[Cut]]:
        """Go on where a state was saved: what was written behind it is cut off the journal."""
        if self.folder is None or self.journal_path is None:
            raise LoaderError("the state names files beside it", hint="pass the cache_dir= it was saved with")
        named = state.get("sidecar")
        whole = sidecar.load(self.folder / SIDECARS, named if isinstance(named, Mapping) else {})
        fields, blocks = whole.fields, whole.blocks
        present, held = fields.get("present"), fields.get("admission")
        if not isinstance(present, list) or not isinstance(held, Mapping) or len(present) > len(blocks):
            raise StateError("the sidecar of the state cannot be read", hint="it is damaged; use another checkpoint")
        waiting = len(blocks) - len(present)
        saved = AdmissionState(held, blocks[:waiting])
        cuts = [Cut.from_json(each, block) for each, block in zip(present, blocks[waiting:], strict=True)]
        position = Position.from_json(state.get("journal") or {})
        if self._follows:
            reader = JournalReader(self.journal_path, position)
            return JournaledAdmission.load(saved, reader, self._rules, self._seed), cuts
        decide = Admission.load(saved, self._rules, self._seed, now)
        self.close()
        self._journal = Journal(self.journal_path, position)
        self._saved = [dict(named or {})]
        return decide, cuts

    def release(self, state: Mapping[str, Any]) -> None:
        """A state is committed: sidecars of older ones are not asked for again."""
        named = state.get("sidecar")
        if self.folder is None or not isinstance(named, Mapping):
            return
        while self._saved and self._saved[0] != named and named in self._saved:
            self._saved.pop(0)
        sidecar.release(self.folder / SIDECARS, [named, *self._saved])

    def close(self) -> None:
        """Let go of the journal."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
