"""What is left of a complete group: without what has grown stale, and nothing at all where it is too small or flat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream.feeds.admission.arrivals import complaint
from millstream.feeds.admission.groups import samples_of
from millstream.feeds.admission.rules import AdmissionRules
from millstream.feeds.admission.sampling import why_flat
from millstream.feeds.admission.staleness import is_stale, is_wholly_stale, trained_versions
from millstream.rollouts import RolloutBlock

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Verdict:
    """Which rows of a group stay, and why the others do not."""

    kept: Flags
    dropped: dict[str, Flags]


def examine(block: RolloutBlock, rules: AdmissionRules, policy_version: int, *, at_cut: bool) -> Verdict:
    """Look at a group. Weights that the trainer has not named yet are in the future only when a batch is cut."""
    kept: Flags = np.ones(len(block), bool)
    dropped: dict[str, Flags] = {}
    if "policy_version" in block.tokens:
        if at_cut:
            dropped["future"] = _future(block, rules, policy_version)
        if rules.max_staleness is not None:
            find = is_stale if rules.on_stale == "discard" else is_wholly_stale
            dropped["stale"] = find(block, policy_version, rules.max_staleness)
    for reason, flags in dropped.items():
        dropped[reason], kept = flags & kept, kept & ~flags
    useless = _why_useless(block if kept.all() else block.select(np.flatnonzero(kept)), rules)
    if useless is not None:
        dropped[useless] = kept
        kept = np.zeros(len(block), bool)
    return Verdict(kept, dropped)


def _future(block: RolloutBlock, rules: AdmissionRules, policy_version: int) -> Flags:
    newest = trained_versions(block)[1]
    future: Flags = newest > policy_version
    if rules.on_bad == "error" and future.any():
        row = int(np.argmax(future))
        raise complaint(block, row, "future", rules, newest=newest[row], version=policy_version)
    return future


def _why_useless(block: RolloutBlock, rules: AdmissionRules) -> str | None:
    if samples_of(block) < rules.least_rollouts:
        return "incomplete"
    return why_flat(block, rules.spread_of, rules.tol) if rules.dynamic_sampling else None
