"""What of a run over a feed lies on disk beside its states: the journal of what was trained on, and sidecars."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from millstream.errors import LoaderError, LossWarning, StateError
from millstream.feeds.admission import (
    ADMISSION_SIDECAR,
    START_OF_JOURNAL,
    Admission,
    AdmissionJournal,
    AdmissionRules,
    AdmissionState,
    AdmittedBatch,
    FollowedJournal,
    FollowerAdmission,
    JournalReader,
    decode_admission,
    encode_admission,
)
from millstream.rollouts import ROLLOUTS_SUFFIX, RolloutBlock, encode
from millstream.storage import FollowedLog, Position, Sidecars, announce, announced, disk, forget, xxh64

JOURNAL = "admissions.jsonl"
SIDECARS = "sidecars"
ASIDE = "quarantine"
log = logging.getLogger("millstream.loaders")


@dataclass(frozen=True)
class Loaded:
    """What a state and its sidecar say."""

    decide: Admission | FollowerAdmission
    cut: AdmittedBatch | None
    """The rollout batch that was trained on, if there was one."""
    sidecar: str
    step: int
    position: Position
    """Where the journal stood."""
    reader: JournalReader | None = None
    """What it is followed with."""


class FeedCheckpoint:
    """Begins, saves and loads what decides, together with its journal: one process writes, others follow."""

    def __init__(self, rules: AdmissionRules, seed: int, folder: Path | None, *, leads: bool, replay: bool) -> None:
        if folder is None and (replay or not leads):
            raise LoaderError(
                "what other ranks, or an earlier run, trained on stands in a journal, and no folder is given",
                hint="pass cache_dir=, a folder that all ranks see",
            )
        self._rules, self._seed, self._follows = rules, seed, replay or not leads
        self.folder, self.replays = folder, replay
        self._journal: AdmissionJournal | None = None
        self._is_ended = self._has_started = False
        self._files = Sidecars(None if folder is None else folder / SIDECARS, ADMISSION_SIDECAR, owns=True, writer=0)
        """What states that may be asked for hold."""
        self._reader: JournalReader | None = None
        if self.journal_path is not None and not self._follows:
            forget(self.journal_path)

    @property
    def saved(self) -> bool:
        """Whether there is a state that may be asked for."""
        return self._files.any

    @property
    def journal_path(self) -> Path | None:
        """Where it is written what was trained on."""
        return None if self.folder is None else self.folder / JOURNAL

    @property
    def written_journal(self) -> Path:
        """The same; raises LoaderError if nothing is written down."""
        if self.journal_path is None:
            raise LoaderError(
                "no journal of what was trained on is kept",
                hint="pass cache_dir=: the journal of admissions is kept there",
            )
        return self.journal_path

    def begin(self) -> Admission | FollowerAdmission:
        """What decides from the very beginning."""
        if self._follows:
            self._reader = self._followed()
            return FollowerAdmission(self._reader, self._rules, self._seed)
        return Admission(self._rules, self._seed)

    def _followed(self, position: Position = START_OF_JOURNAL) -> JournalReader:
        """What is read from a position on; of a run that was followed before, nothing more."""
        assert self.journal_path is not None
        if self.replays:
            return JournalReader(self.journal_path, position, whole=True)
        before = self._reader
        if isinstance(before, FollowedJournal):
            return FollowedJournal(before.log.anew(position))
        return FollowedJournal(FollowedLog(self.journal_path, position))

    def start(self) -> None:
        """The run begins, without a state."""
        if not self._follows and self.journal_path is not None:
            if not self._has_started:
                self._warn_of_what_waits()
            journal = AdmissionJournal(self.journal_path, START_OF_JOURNAL)
            try:
                announce(self.journal_path, START_OF_JOURNAL)
            except BaseException:  # the next try takes the lock again
                journal.close()
                raise
            self._journal, self._has_started = journal, True

    def _warn_of_what_waits(self) -> None:
        """Say that an earlier run left rollouts here, which its feed may not give again."""
        left = sorted((self.folder / SIDECARS).glob("admission-*.bin")) if self.folder is not None else []
        if left:
            warnings.warn(
                f"{left[0].parent}: an earlier run left rollouts here; they are trained on only if its state is loaded "
                "(load_state_dict), and what it committed does not come again",
                LossWarning,
                stacklevel=2,
            )

    def write(self, cut: AdmittedBatch, received: Mapping[str, Any]) -> None:
        """Write down what is trained on, before it is, and how much of the feed was admitted."""
        if self._journal is not None:
            self._journal.append(cut, received)
            self._is_ended = False

    def keep_aside(self, block: RolloutBlock) -> None:
        """Keep rollouts that cannot be trained on where people can look at them, each block once; if there is a place,
        and they can be written."""
        if self.folder is None:
            return
        try:
            data = encode(block)
            name = f"{xxh64(np.frombuffer(data, np.uint8)):016x}{ROLLOUTS_SUFFIX}"
            disk.make_directory(self.folder / ASIDE)
            disk.publish(self.folder / ASIDE / name, data)
        except Exception as error:  # they are counted all the same
            log.warning("%s: rollouts that were left out are not kept: %r", self.folder / ASIDE, error)

    def end(self, step: int, policy_version: int) -> None:
        """Write down, once, that the feed has ended."""
        if self._journal is not None and not self._is_ended:
            self._journal.append_end(step, policy_version)
            self._is_ended = True

    def withdraw(self, cut: AdmittedBatch) -> None:
        """Write down that a cut, and those after it, are not trained on."""
        if self._journal is not None:
            self._journal.append_withdrawal(cut.step, cut.policy_version)

    @property
    def position(self) -> Position:
        """Where the journal stands."""
        return START_OF_JOURNAL if self._journal is None else self._journal.position

    def save(
        self, step: int, state: AdmissionState, cuts: Sequence[AdmittedBatch], position: Position
    ) -> dict[str, Any]:
        """Write what is held before a step beside its state, and say where it lies; the journal stood at `position`."""
        if self.folder is None:
            raise LoaderError(
                "rollouts that wait do not fit into a state, and there is no folder to keep them in",
                hint="pass cache_dir=, a folder beside the checkpoints",
            )
        fields = {"admission": dict(state.fields), "present": [cut.to_json() for cut in cuts]}
        whole = AdmissionState(fields, [*state.blocks, *(cut.block for cut in cuts)])
        return {"sidecar": self._files.save(encode_admission(whole), step), "journal": position.to_json()}

    def load(self, state: Mapping[str, Any], now: float) -> Loaded:
        """Read what a state names; nothing is changed."""
        if self.folder is None or self.journal_path is None:
            raise LoaderError("the state names files beside it", hint="pass the cache_dir= it was saved with")
        data = self._files.load(state)
        name = str(state["sidecar"]["file"])
        whole = decode_admission(data, self.folder / SIDECARS / name)
        fields, blocks = whole.fields, whole.blocks
        present, held = fields.get("present"), fields.get("admission")
        if not isinstance(present, list) or not isinstance(held, Mapping) or len(present) > len(blocks):
            raise StateError("the sidecar of the state cannot be read", hint="it is damaged; use another checkpoint")
        waiting = len(blocks) - len(present)
        saved = AdmissionState(held, blocks[:waiting])
        cuts = [AdmittedBatch.from_json(each, block) for each, block in zip(present, blocks[waiting:], strict=True)]
        cut, position = next(iter(cuts), None), Position.from_json(state.get("journal") or {})
        if self._follows:
            reader = self._followed(position)
            follower = FollowerAdmission.load(saved, reader, self._rules, self._seed)
            return Loaded(follower, cut, name, state["step"], position, reader)
        return Loaded(Admission.load(saved, self._rules, self._seed, now), cut, name, state["step"], position)

    def go_on(self, loaded: Loaded) -> None:
        """Stand where a state was saved, and the journal with it."""
        if self._follows:
            self._reader = loaded.reader
            return
        assert self.journal_path is not None
        with announced(self.journal_path, loaded.position):
            if self._journal is None:
                self._journal = AdmissionJournal(self.journal_path, loaded.position)
            else:
                self._journal.go_back(loaded.position)
        self._files.loaded([loaded.sidecar], loaded.step)
        self._is_ended = False

    def release(self, state: Mapping[str, Any]) -> None:
        """A state is committed: sidecars of older ones are not asked for again."""
        self._files.release(state)

    def close(self) -> None:
        """Let go of the journal."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
