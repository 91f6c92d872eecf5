"""Goes over rollouts, chunk by chunk, and counts what is wrong. Memory grows with the number of groups alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from millstream.rollouts import EQUAL_WITHIN, Groups, RolloutBlock, RolloutChunk
from millstream.rollouts.lint.rules import PROBLEMS, Limits, faults_of, sampled_versions
from millstream.stats import LintReport, Problem, Tally
from millstream.tokens import Tokenizer

_ADVICE = 'mend the record or leave it out; on_bad="skip" leaves out and counts such records'


def lint_rollouts(
    chunks: Iterable[RolloutChunk],
    *,
    tokenizer: Tokenizer | None = None,
    max_tokens: int | None = None,
    policy_version: int | None = None,
    max_staleness: int | None = None,
) -> LintReport:
    """Look at every rollout. Chunks are those of `read_rollouts(…, on_bad="skip")`, so that bad ones are told.

    `policy_version` is the version that trains next; without it, the youngest that there is.

    >>> from millstream.rollouts import read_rollouts
    >>> said = {"group_id": "g", "token_ids": [5, 6], "loss_mask": [0, 1], "reward": 1.0, "finish": "stop"}
    >>> report = lint_rollouts(read_rollouts([{"rollout_id": id, **said} for id in "ab"], on_bad="skip"))
    >>> [finding.kind for finding in report.findings]
    ['constant reward', 'constant group', 'no log-probabilities']
    """
    eos, vocabulary = (None, None) if tokenizer is None else (tokenizer.eos_id, tokenizer.vocab_size)
    linter = _Linter(Limits(eos, vocabulary, max_tokens, policy_version, max_staleness))
    for chunk in chunks:
        linter.take(chunk)
    return linter.report()


class _Linter:
    """What is known of the rollouts so far."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._tally = limits, Tally()
        self._rows = self._usable = self._tokens = self._trained = self._longest = 0
        self._largest_id: int | None = None
        self._lengths: Counter[int] = Counter()
        self._groups = Groups()
        self._youngest = -1
        self._oldest: Counter[int] = Counter()  # how many rollouts have this version as their oldest

    def take(self, chunk: RolloutChunk) -> None:
        """Look at the rollouts of a chunk."""
        for bad in chunk.bad:
            problem = Problem("error", f"rollouts that cannot be used: {bad.error.reason}", bad.error.hint or _ADVICE)
            self._tally.add(bad.error.reason, problem, f"{chunk.file}:{bad.index + 1}", bad.error.found)
        for row, name in chunk.repeats:
            self._tally.add("repeated", PROBLEMS["repeated"], f"{chunk.file}:{row + 1}", f"rollout {name!r}")
        if chunk.tokenized:
            self._tally.add("tokenised here", PROBLEMS["tokenised here"], chunk.file, rows=chunk.tokenized)
        self._rows += len(chunk.block) + len(chunk.bad) + chunk.repeated
        if not len(chunk.block):
            return
        self._count(chunk.block)
        for kind, found in faults_of(chunk.block, self._limits):
            for row in np.flatnonzero(found).tolist():
                told = f"rollout {chunk.block.rows['rollout_id'][row]!r}"
                self._tally.add(kind, PROBLEMS[kind], chunk.where(row), told)
        self._groups.take(chunk)

    def _count(self, block: RolloutBlock) -> None:
        self._usable += len(block)
        self._tokens += int(block.ends[-1])
        self._trained += int(block.tokens["loss_mask"].sum())
        self._longest = max(self._longest, int(block.lengths.max()))
        self._largest_id = max(self._largest_id or 0, int(block.tokens["token_ids"].max()))
        self._lengths.update(length.bit_length() for length in block.lengths.tolist())
        if "policy_version" in block.tokens:
            oldest, youngest = sampled_versions(block)
            self._oldest.update(oldest[youngest >= 0].tolist())
            self._youngest = max(self._youngest, int(youngest.max()))

    def _tell_groups(self) -> None:
        sizes = Counter(group.rollouts for group in self._groups.values())
        usual = max(sizes, key=lambda size: (sizes[size], size), default=0)
        for name, group in self._groups.items():
            kinds = {
                "group of one": group.is_alone,
                "constant group": group.is_constant,
                "unequal groups": group.rollouts != usual,
            }
            for kind in (kind for kind, applies in kinds.items() if applies):
                found = f"group {name!r} of {group.rollouts}"
                self._tally.add(kind, PROBLEMS[kind], group.where, found, rows=group.rollouts)
        scored = [group for group in self._groups.values() if group.scored]
        least, most = (
            min((group.least for group in scored), default=0),
            max((group.most for group in scored), default=1),
        )
        if sum(group.scored for group in scored) > 1 and most - least <= EQUAL_WITHIN:
            self._tally.add("constant reward", PROBLEMS["constant reward"], f"it is {least:g}", rows=self._usable)

    def _tell_stale(self) -> None:
        """Tell of rollouts that are too old for the youngest, where nobody said which version trains next."""
        bound = self._limits.max_staleness
        if bound is None or self._limits.policy_version is not None:
            return
        stale = sum(rollouts for oldest, rollouts in self._oldest.items() if self._youngest - oldest > bound)
        if stale:
            told = f"the youngest version is {self._youngest}, the oldest {min(self._oldest)}"
            self._tally.add("stale", PROBLEMS["stale"], told, rows=stale)

    def report(self) -> LintReport:
        """Everything that was found."""
        if not self._rows:
            self._tally.add(
                "empty", Problem("error", "there is no rollout at all", "is this the right file?"), "", rows=0
            )
        if self._usable and not self._trained:
            self._tally.add("nothing trained at all", PROBLEMS["nothing trained at all"], "", rows=self._usable)
        self._tell_groups()
        self._tell_stale()
        return LintReport(
            self._rows,
            self._usable,
            {"rollouts": self._usable, "groups": len(self._groups)},
            self._tally.findings(self._rows),
            tokens=self._tokens,
            trained_tokens=self._trained,
            longest=self._longest,
            lengths=dict(sorted(self._lengths.items())),
            largest_id=self._largest_id,
        )
