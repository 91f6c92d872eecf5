"""Rollouts -> what is wrong with them, before a policy learns it: each rule names rollouts of a block that break it.

Memory grows with the number of groups alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.rollouts.block import EQUAL_WITHIN, FINISHES, RolloutBlock
from millstream.rollouts.files import RolloutChunk
from millstream.rollouts.groups import Groups, sampled_versions
from millstream.stats import LintReport, Problem, Tally
from millstream.tokens import Tokenizer

Flags: TypeAlias = npt.NDArray[np.bool_]
Ints: TypeAlias = npt.NDArray[np.int64]
Fault: TypeAlias = tuple[str, Flags]
Turn: TypeAlias = tuple[str, int, int]
"""The role that spoke, and its first token and the end of its tokens."""
_OTHERS = {"tool", "user", "system", "environment"}
"""Roles that are not the policy's."""
PROBLEMS = {
    "nothing trained": Problem(
        "warning", "loss_mask trains nothing", "leave them out, or mend the mask; the loader counts `nothing_trained`"
    ),
    "nothing trained at all": Problem(
        "error", "no token of any rollout is trained", "is loss_mask the right way round?"
    ),
    "prompt trained": Problem("error", "loss_mask trains tokens of the prompt", "0 for the first prompt_len tokens"),
    "others trained": Problem(
        "error", "loss_mask trains what a tool, the user or the system said", "1 only for tokens that were sampled"
    ),
    "turns of another form": Problem(
        "warning",
        "extra['turns'] cannot be read: whether the mask trains what a tool said was not looked at",
        'a list of {"role": "tool", "start": 4, "end": 6}, counted in tokens of the rollout',
    ),
    "unknown id": Problem(
        "error", "ids that the tokenizer does not have", "the rollouts were made with another tokenizer or model"
    ),
    "too long": Problem("error", "rollouts with more tokens than fit", "cut answers when sampling, or raise the limit"),
    "from the future": Problem(
        "error", "tokens of a policy version that is not there yet", "is policy_version= right?"
    ),
    "stale": Problem("warning", "tokens of a policy version that is too old", "sample anew, or raise max_staleness="),
    "not scored": Problem("warning", "the reward is NaN", "score them: their advantage is 0"),
    "no log-probabilities": Problem(
        "warning", "there are no sampling_logprobs", "record them when sampling: training needs the ratio to them"
    ),
    "log-probabilities of 0": Problem(
        "warning", "sampling_logprobs are 0 for every sampled token", "greedy sampling, or were they never recorded?"
    ),
    "constant reward": Problem(
        "error", "all rollouts have the same reward: there is nothing to learn", "does the reward work?"
    ),
    "constant group": Problem(
        "warning", "all rewards of their group are the same: it teaches nothing", "take easier or harder prompts"
    ),
    "group of one": Problem(
        "error",
        "rollouts that are alone in their group: grpo and others that compare refuse them",
        "sample prompts more than once; reinforce++ and gae need no group, nor does allow_singleton=True",
    ),
    "unequal groups": Problem("note", "groups that are not as large as most", "did some answers get lost?"),
    "ended by length": Problem("note", "answers that were cut off", "allow more tokens, or shorter answers"),
    "mixed versions": Problem("note", "rollouts of several policy versions", "so are partial rollouts; else a mistake"),
    "several ends": Problem("note", "several tokens that end a text in what is trained", "does sampling stop there?"),
    "repeated": Problem("note", "rollouts that were there before, with the same content", "they count once"),
    "tokenised here": Problem("warning", "rollouts of texts: the ids may not be those sampled", "record token ids"),
}
_ADVICE = 'mend the record or leave it out; on_bad="skip" leaves out and counts such records'


def lint_rollouts(
    chunks: Iterable[RolloutChunk],
    *,
    tokenizer: Tokenizer | None = None,
    max_tokens: int | None = None,
    policy_version: int | None = None,
    max_staleness: int | None = None,
) -> LintReport:
    """Look at every rollout. Chunks are those of `read_rollouts(…, on_bad="skip")`, so that bad ones are reported.

    `policy_version` is the version that trains next; without it, the youngest that there is.

    >>> from millstream.rollouts.files import read_rollouts
    >>> said = {"group_id": "g", "token_ids": [5, 6], "loss_mask": [0, 1], "reward": 1.0, "finish": "stop"}
    >>> report = lint_rollouts(read_rollouts([{"rollout_id": id, **said} for id in "ab"], on_bad="skip"))
    >>> [finding.kind for finding in report.findings]
    ['constant reward', 'constant group', 'no log-probabilities']
    """
    eos, vocabulary = (None, None) if tokenizer is None else (tokenizer.eos_id, tokenizer.vocab_size)
    linter = RolloutLinter(_Limits(eos, vocabulary, max_tokens, policy_version, max_staleness))
    for chunk in chunks:
        linter.take(chunk)
    return linter.report()


class RolloutLinter:
    """What is known of the rollouts so far."""

    def __init__(self, limits: _Limits) -> None:
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
        for kind, found in _faults_of(chunk.block, self._limits):
            for row in np.flatnonzero(found).tolist():
                name = f"rollout {chunk.block.rows['rollout_id'][row]!r}"
                self._tally.add(kind, PROBLEMS[kind], chunk.where(row), name)
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

    def _report_groups(self) -> None:
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

    def _report_stale(self) -> None:
        """Report rollouts that are too old for the youngest, if it is not known which version trains next."""
        bound = self._limits.max_staleness
        if bound is None or self._limits.policy_version is not None:
            return
        stale = sum(rollouts for oldest, rollouts in self._oldest.items() if self._youngest - oldest > bound)
        if stale:
            found = f"the youngest version is {self._youngest}, the oldest {min(self._oldest)}"
            self._tally.add("stale", PROBLEMS["stale"], found, rows=stale)

    def report(self) -> LintReport:
        """Everything that was found."""
        if not self._rows:
            self._tally.add(
                "empty", Problem("error", "there is no rollout at all", "is this the right file?"), "", rows=0
            )
        if self._usable and not self._trained:
            self._tally.add("nothing trained at all", PROBLEMS["nothing trained at all"], "", rows=self._usable)
        self._report_groups()
        self._report_stale()
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


@dataclass(frozen=True, slots=True)
class _Limits:
    """What rollouts are measured against; None: not at all."""

    eos: int | None = None
    vocabulary: int | None = None
    max_tokens: int | None = None
    policy_version: int | None = None
    max_staleness: int | None = None


def _faults_of(block: RolloutBlock, limits: _Limits) -> Iterator[Fault]:
    """Each problem that is looked for, and which rollouts of a block, which has some, have it."""
    mask = block.tokens["loss_mask"]
    yield "not scored", np.isnan(block.rows["reward"])
    yield "nothing trained", _counts(block, mask) == 0
    yield "ended by length", block.rows["finish"] == FINISHES.index("length")
    if "prompt_len" in block.rows:
        places = np.arange(block.ends[-1]) - np.repeat(block.starts, block.lengths)
        yield "prompt trained", _counts(block, mask & (places < np.repeat(block.rows["prompt_len"], block.lengths))) > 0
    if "extra" in block.rows:
        turns = [_turns(block, row) for row in range(len(block))]
        yield "turns of another form", np.array([each is None for each in turns], np.bool_)
        trained = [_trains_others(block.of(row, "loss_mask"), each or ()) for row, each in enumerate(turns)]
        yield "others trained", np.array(trained, np.bool_)
    if limits.vocabulary is not None:
        yield "unknown id", _counts(block, block.tokens["token_ids"] >= limits.vocabulary) > 0
    if limits.max_tokens is not None:
        yield "too long", block.lengths > limits.max_tokens
    if limits.eos is not None:
        yield "several ends", _counts(block, mask & (block.tokens["token_ids"] == limits.eos)) > 1
    yield _logprob_fault(block, mask)
    if "policy_version" in block.tokens:
        yield from _version_faults(block, limits)


def _logprob_fault(block: RolloutBlock, mask: Flags) -> Fault:
    if "sampling_logprobs" not in block.tokens:
        return "no log-probabilities", np.ones(len(block), np.bool_)
    known = _counts(block, mask & (block.tokens["sampling_logprobs"] != 0)) > 0
    return "log-probabilities of 0", ~known & (_counts(block, mask) > 0)


def _version_faults(block: RolloutBlock, limits: _Limits) -> Iterator[Fault]:
    oldest, youngest = sampled_versions(block)
    trains = youngest >= 0
    yield "mixed versions", trains & (oldest < youngest)
    if limits.policy_version is not None:
        yield "from the future", trains & (youngest > limits.policy_version)
        if limits.max_staleness is not None:
            yield "stale", trains & (limits.policy_version - oldest > limits.max_staleness)


def _counts(block: RolloutBlock, flags: Flags) -> Ints:
    """How many tokens of each rollout have something."""
    counts: Ints = np.add.reduceat(flags, block.starts, dtype=np.int64)
    return counts


def _turns(block: RolloutBlock, row: int) -> list[Turn] | None:
    """What `extra["turns"]` says, a list of `{"role": …, "start": …, "end": …}`; None: it is something else."""
    said: Any = (block.rows["extra"][row] or {}).get("turns")
    if said is None:
        return []
    if not isinstance(said, list) or not all(isinstance(turn, dict) for turn in said):
        return None
    turns = [(turn.get("role"), turn.get("start"), turn.get("end")) for turn in said]
    readable = all(
        isinstance(role, str) and type(start) is type(end) is int and 0 <= start <= end <= block.lengths[row]
        for role, start, end in turns
    )
    return turns if readable else None


def _trains_others(mask: Flags, turns: Iterable[Turn]) -> bool:
    """Whether the mask covers a turn that the policy did not speak."""
    return any(role in _OTHERS and mask[start:end].any() for role, start, end in turns)
