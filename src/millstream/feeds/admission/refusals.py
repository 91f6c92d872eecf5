"""Why rollouts are not trained on: refused when they arrive, or left out when their group is complete or cut.

At arrival: known before, contradicting, too long, failed or stale. Later: grown stale, in a group that is too small, or
in one whose rewards are all equal (dynamic sampling).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.errors import RecordError
from millstream.feeds.admission.groups import is_stale, is_wholly_stale, samples_of, trained_versions
from millstream.feeds.admission.rules import AdmissionRules
from millstream.feeds.admission.seen import Key, are_baselines, keys, whole_number_of
from millstream.feeds.admission.state import Memory
from millstream.rollouts import EQUAL_WITHIN, FINISHES, Id, RolloutBlock

REPEATED, CONFLICTING = "repeated", "conflicting"
STRANGERS = ("unplaced", "unsized", "other_prompt")
"""Reasons that leave open which group a rollout belongs to."""
FAILED = tuple(FINISHES.index(finish) for finish in ("error", "abort"))
COMPLAINTS = {
    CONFLICTING: ("conflicting rollout", "came before with other content",
                  'on_bad="skip" leaves it out, also where it lies in the feed already; give each an id of its own'),
    "too_long": ("rollout too long", "has {tokens} tokens, and a batch has room for {most}", "raise the cap on tokens"),
    "unknown_id": ("unknown id", "holds an id that the model's vocabulary of {vocabulary} does not have",
                   "the rollouts were made with another tokenizer or model"),
    "unversioned": ("no policy version", "does not say which policy made it", "give policy_version"),
    "other_columns": ("missing column", "and those before it differ in {columns}",
                      "give it for all rollouts, in one type and shape, or for none"),
    "unsized": ("no group size", "does not say how many rollouts its group has",
                "pass live={{'group_size': 8}}, or give it in `extra`; 'any' takes what comes before group_timeout_s"),
    "unplaced": ("no {order}", "does not say its {order}", "give it in `extra`, or take order='arrival'"),
    "future": ("version from the future", "has tokens of version {newest}, and the trainer is at {version}",
               "does the trainer tell its version, and do engines count alike? After a resume engines may still have "
               'weights of steps that were lost: on_bad="skip" leaves their rollouts out, and counts them'),
    "other_prompt": ("another prompt", "is in a group that has another prompt_id", "one prompt makes a group"),
}  # fmt: skip
"""By reason: what it is called, what was found, and what to try."""
Flags = npt.NDArray[np.bool_]


def refusals(block: RolloutBlock, contents: list[int], rules: AdmissionRules, memory: Memory) -> list[str | None]:
    """Why each row is not taken in, or None. Under `on_bad="error"` the first bad row is raised; nothing is changed."""
    here: dict[Key, int] = {}
    prompts = {group.id: group.prompt for group in memory.gathering.values() if group.prompt is not None}
    stale = _stale(block, rules, memory.policy_version)
    odd = _odd_columns(block, memory)
    reasons: list[str | None] = []
    for row, (key, content) in enumerate(zip(keys(block), contents, strict=True)):
        known = here.get(key, memory.seen.content(key))
        reason = None if known is None else REPEATED if known == content else CONFLICTING
        reason = reason or ("other_columns" if odd else _why_bad(block, row, rules, prompts))
        reason = reason or _why_unwanted(block, row, rules, stale=stale[row])
        if rules.on_bad == "error" and reason in COMPLAINTS:
            raise complaint(block, row, reason, rules, columns=", ".join(odd))
        reasons.append(reason)
        here.setdefault(key, content)
    return reasons


def columns_of(block: RolloutBlock) -> dict[str, list[Any]]:
    """Type and shape of each column of tokens."""
    return {name: [column.dtype.str, *column.shape[1:]] for name, column in sorted(block.tokens.items())}


def _odd_columns(block: RolloutBlock, memory: Memory) -> list[str]:
    """Columns that are not as they were in the first rollouts: these could not stand in one batch."""
    found = columns_of(block)
    first = memory.columns or found
    return sorted(name for name in {**first, **found} if first.get(name) != found.get(name))


def place_of(block: RolloutBlock, row: int, rules: AdmissionRules) -> int | None:
    """The target step or the index of a rollout's group; an index may be the group's id itself."""
    if rules.order == "arrival":
        return 0
    found = whole_number_of(block, row, rules.order)
    group: Id = block.rows["group_id"][row]
    return group if found is None and rules.order == "group_index" and isinstance(group, int) else found


def size_of(block: RolloutBlock, row: int, rules: AdmissionRules) -> int | None:
    """Rollouts of the whole group of a rollout; None: not known."""
    if rules.group_size is None:
        return whole_number_of(block, row, "group_size")
    return rules.known_size


def prompt_of(block: RolloutBlock, row: int) -> Id | None:
    """Which prompt a rollout answers, if its record says it."""
    prompt: Id | None = block.rows["prompt_id"][row] if "prompt_id" in block.rows else None
    return prompt


def _stale(block: RolloutBlock, rules: AdmissionRules, policy_version: int) -> list[bool]:
    if rules.max_staleness is None or "policy_version" not in block.tokens:
        return [False] * len(block)
    find = is_stale if rules.on_stale == "discard" else is_wholly_stale
    stale: list[bool] = find(block, policy_version, rules.max_staleness).tolist()
    return stale


def _why_bad(block: RolloutBlock, row: int, rules: AdmissionRules, prompts: dict[Id, Id]) -> str | None:
    if rules.max_tokens is not None and block.lengths[row] > rules.max_tokens:
        return "too_long"
    if rules.vocabulary is not None and int(block.of(row, "token_ids").max(initial=0)) >= rules.vocabulary:
        return "unknown_id"
    if rules.max_staleness is not None and "policy_version" not in block.tokens:
        return "unversioned"
    if place_of(block, row, rules) is None:
        return "unplaced"
    if rules.group_size is None and size_of(block, row, rules) is None:
        return "unsized"
    prompt = prompt_of(block, row)
    if prompt is not None and prompts.setdefault(block.rows["group_id"][row], prompt) != prompt:
        return "other_prompt"
    return None


def _why_unwanted(block: RolloutBlock, row: int, rules: AdmissionRules, *, stale: bool) -> str | None:
    if rules.on_failed == "drop" and block.rows["finish"][row] in FAILED:
        return block.finish(row)
    return "stale" if stale else None


def complaint(block: RolloutBlock, row: int, reason: str, rules: AdmissionRules, **facts: object) -> RecordError:
    """The error for a row that cannot be used."""
    facts = {
        "tokens": block.lengths[row],
        "most": rules.max_tokens,
        "vocabulary": rules.vocabulary,
        "order": rules.order.replace("_", " "),
        **facts,
    }
    called, found, hint = (text.format(**facts) for text in COMPLAINTS[reason])
    return RecordError(called, f"rollout {block.rows['rollout_id'][row]!r} {found}", hint=hint)


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
            dropped["future"] = _from_future(block, rules, policy_version)
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


def _from_future(block: RolloutBlock, rules: AdmissionRules, policy_version: int) -> Flags:
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


def why_flat(block: RolloutBlock, column: str = "reward", tol: float = EQUAL_WITHIN) -> str | None:
    """Why a group has no spread, or None if it has.

    >>> def group(*rewards):
    ...     return RolloutBlock(np.arange(len(rewards)), {"reward": np.array(rewards, float)}, {})
    >>> why_flat(group(0, 0)), why_flat(group(1, 1)), why_flat(group(0.5, 0.5)), why_flat(group(np.nan))
    ('all_0', 'all_1', 'equal', 'unscored')
    >>> why_flat(group(0, 1))
    """
    if column not in block.rows:
        return "unscored"
    rewards = block.rows[column][~are_baselines(block)]
    scored = rewards[~np.isnan(rewards)]
    if not len(scored):
        return "unscored"
    least, most = float(scored.min()), float(scored.max())
    if most - least > tol:
        return None
    if abs(least) <= tol:
        return "all_0"
    return "all_1" if abs(most - 1) <= tol else "equal"
