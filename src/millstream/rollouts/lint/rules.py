"""What can be wrong with rollouts that are whole records: each rule says which rollouts of a block have a problem."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from millstream.rollouts import FINISHES, RolloutBlock
from millstream.stats import Problem

Flags: TypeAlias = npt.NDArray[np.bool_]
Ints: TypeAlias = npt.NDArray[np.int64]
Fault: TypeAlias = tuple[str, Flags]
Turn: TypeAlias = tuple[str, int, int]
"""Who spoke, and the tokens from where to where."""
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


@dataclass(frozen=True, slots=True)
class Limits:
    """What rollouts are measured against; None: not at all."""

    eos: int | None = None
    vocabulary: int | None = None
    max_tokens: int | None = None
    policy_version: int | None = None
    max_staleness: int | None = None


def faults_of(block: RolloutBlock, limits: Limits) -> Iterator[Fault]:
    """Each problem that is looked for, and which rollouts of a block, which has some, have it."""
    mask = block.tokens["loss_mask"]
    yield "not scored", np.isnan(block.rows["reward"])
    yield "nothing trained", sums(block, mask) == 0
    yield "ended by length", block.rows["finish"] == FINISHES.index("length")
    if "prompt_len" in block.rows:
        places = np.arange(block.ends[-1]) - np.repeat(block.starts, block.lengths)
        yield "prompt trained", sums(block, mask & (places < np.repeat(block.rows["prompt_len"], block.lengths))) > 0
    if "extra" in block.rows:
        turns = [_turns(block, row) for row in range(len(block))]
        yield "turns of another form", np.array([each is None for each in turns], np.bool_)
        trained = [_trains_others(block.of(row, "loss_mask"), each or ()) for row, each in enumerate(turns)]
        yield "others trained", np.array(trained, np.bool_)
    if limits.vocabulary is not None:
        yield "unknown id", sums(block, block.tokens["token_ids"] >= limits.vocabulary) > 0
    if limits.max_tokens is not None:
        yield "too long", block.lengths > limits.max_tokens
    if limits.eos is not None:
        yield "several ends", sums(block, mask & (block.tokens["token_ids"] == limits.eos)) > 1
    yield _logprob_fault(block, mask)
    if "policy_version" in block.tokens:
        yield from _version_faults(block, limits)


def _logprob_fault(block: RolloutBlock, mask: Flags) -> Fault:
    if "sampling_logprobs" not in block.tokens:
        return "no log-probabilities", np.ones(len(block), np.bool_)
    told = sums(block, mask & (block.tokens["sampling_logprobs"] != 0)) > 0
    return "log-probabilities of 0", ~told & (sums(block, mask) > 0)


def _version_faults(block: RolloutBlock, limits: Limits) -> Iterator[Fault]:
    oldest, youngest = sampled_versions(block)
    trains = youngest >= 0
    yield "mixed versions", trains & (oldest < youngest)
    if limits.policy_version is not None:
        yield "from the future", trains & (youngest > limits.policy_version)
        if limits.max_staleness is not None:
            yield "stale", trains & (limits.policy_version - oldest > limits.max_staleness)


def sampled_versions(block: RolloutBlock) -> tuple[Ints, Ints]:
    """The oldest and the youngest version that sampled a token of each rollout; -1 as the youngest: none did."""
    versions, mask = block.tokens["policy_version"].astype(np.int64), block.tokens["loss_mask"]
    oldest: Ints = np.minimum.reduceat(np.where(mask, versions, np.iinfo(np.int64).max), block.starts)
    youngest: Ints = np.maximum.reduceat(np.where(mask, versions, -1), block.starts)
    return oldest, youngest


def sums(block: RolloutBlock, flags: Flags) -> Ints:
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
