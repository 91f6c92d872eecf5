"""AdmissionRules: when a group is complete and fresh, how many make a batch, and how many may be begun ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millstream.errors import LoaderError
from millstream.rollouts import EQUAL_WITHIN

Order = Literal["arrival", "target_step", "group_index"]
"""In which order complete groups are taken. "arrival": as they were completed, which prefers short answers.
"target_step": groups are made for a step, which waits for them. "group_index": by their number, without gaps."""
OnBad = Literal["error", "skip"]

_NEEDS_A_NUMBER = "give a whole number, 1 or more"


@dataclass(frozen=True)
class ReplayRules:
    """Groups that were trained on are kept, and come again."""

    capacity_groups: int = 1024
    capacity_tokens: int | None = None
    share: float = 0.5
    """The part of a batch that may be groups that come again, as far as there are any."""
    max_uses: int = 2
    """How often a group is trained on, the first time included."""

    def __post_init__(self) -> None:
        for name in ("capacity_groups", "capacity_tokens", "max_uses"):
            _check_positive(f"replay.{name}", getattr(self, name))
        if not 0 < self.share < 1:
            raise LoaderError(f"replay.share is {self.share}", hint="give a part of the batch between 0 and 1")


@dataclass(frozen=True)
class AdmissionRules:
    """What decides, with the rollouts themselves, what a step trains on.

    >>> AdmissionRules(groups_per_batch=2, group_size=4).least_rollouts
    2
    >>> AdmissionRules()
    Traceback (most recent call last):
    millstream.errors.LoaderError: a batch has no size
      hint: give groups_per_batch or rollouts_per_batch
    """

    groups_per_batch: int | None = None
    rollouts_per_batch: int | None = None
    """Whole groups are taken as long as they fit; a first group that does not fit is a batch of its own."""
    group_size: int | Literal["any"] | None = None
    """Rollouts of a whole group. None: as many as its records say in `group_size` (a column, or in `extra`). "any":
    those that came before the timeout."""
    baselines: int = 0
    """Further rollouts of kind "baseline" that a whole group has."""
    min_group_size: int | None = None
    """What is left of a group whose stragglers did not come, or failed, or are stale, is used from this size on. None:
    2; or 1, where groups are of one or of any size."""
    group_timeout_s: float | None = 600.0
    """How long a group, from its first rollout on, waits for the others. None: no limit."""
    order: Order = "arrival"
    max_staleness: int | None = None
    """How many versions older than the one that is trained a trained token may be. None: any age."""
    on_stale: Literal["discard", "mask"] = "discard"
    """Drop a rollout with any stale token, or take the loss from those tokens, and drop what is stale as a whole."""
    on_failed: Literal["drop", "keep"] = "drop"
    """What becomes of rollouts that ended by "error" or "abort"."""
    dynamic_sampling: bool = False
    """Whether groups whose rewards are all equal are left out, and others waited for in their place."""
    spread_of: str = "reward"
    """The column that must have a spread: the task's own reward (`rewards.NAME`), where `reward` is shaped."""
    tol: float = EQUAL_WITHIN
    """Rewards this near to each other are equal."""
    max_gen_batches: int | None = None
    """Dynamic sampling gives up when groups for so many batches were tried for one."""
    on_exhausted: Literal["error", "train"] = "error"
    """What giving up means: an error, or to train on what there is."""
    max_tokens: int | None = None
    """The longest rollout that any batch has room for."""
    vocabulary: int | None = None
    """Ids that the model knows: from 0 to one less."""
    capacity_groups: int | None = None
    capacity_tokens: int | None = None
    """What is held at most; when that is reached, the feed is left to wait."""
    groups_ahead: int | None = None
    """How many groups may be begun and not trained on. None: (1 + max_staleness) batches of them."""
    replay: ReplayRules | None = None
    on_bad: OnBad = "error"
    """What conflicting, future or too long rollouts are: errors, or counted."""
    remember: int = 2**18
    """How many rollouts and groups are recognised after they were released."""

    def __post_init__(self) -> None:
        if self.groups_per_batch is None and self.rollouts_per_batch is None:
            raise LoaderError("a batch has no size", hint="give groups_per_batch or rollouts_per_batch")
        if self.groups_per_batch is not None and self.rollouts_per_batch is not None:
            raise LoaderError("a batch has two sizes", hint="give groups_per_batch or rollouts_per_batch, not both")
        counts = ("groups_per_batch", "rollouts_per_batch", "known_size", "min_group_size", "max_gen_batches")
        for name in (
            *counts,
            "max_tokens",
            "vocabulary",
            "capacity_groups",
            "capacity_tokens",
            "groups_ahead",
            "remember",
        ):
            _check_positive(name, getattr(self, name))
        if self.max_staleness is not None and self.max_staleness < 0:
            raise LoaderError(f"max_staleness is {self.max_staleness}", hint="0: only what the newest weights made")
        if self.known_size is not None and self.least_rollouts > self.known_size:
            raise LoaderError(
                f"min_group_size is {self.min_group_size}, and groups have {self.group_size}", hint="make it smaller"
            )
        if self.on_stale == "mask" and self.max_staleness is None:
            raise LoaderError("on_stale='mask' needs a bound", hint="give max_staleness")
        if None not in (self.capacity_groups, self.groups_per_batch) and self._capacity_below_a_batch:
            raise LoaderError("capacity_groups is less than one batch", hint="make it several batches")

    @property
    def least_rollouts(self) -> int:
        """The smallest group that is trained on."""
        return self.min_group_size or (1 if self.group_size in (1, "any") else 2)

    @property
    def known_size(self) -> int | None:
        """Rollouts of a whole group, where it is the same for all."""
        return None if self.group_size == "any" else self.group_size

    @property
    def _capacity_below_a_batch(self) -> bool:
        return (self.capacity_groups or 0) < (self.groups_per_batch or 0)


def _check_positive(name: str, value: int | None) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise LoaderError(f"{name.replace('known_size', 'group_size')} is {value!r}", hint=_NEEDS_A_NUMBER)


def groups_ahead(rules: AdmissionRules) -> int | None:
    """How many groups may be begun and not trained on; None: any number.

    >>> groups_ahead(AdmissionRules(groups_per_batch=4, max_staleness=1))
    8
    """
    if rules.groups_ahead is not None or rules.max_staleness is None:
        return rules.groups_ahead
    groups = rules.groups_per_batch
    if groups is None and rules.known_size is not None:
        groups = -(-(rules.rollouts_per_batch or 1) // rules.known_size)
    return None if groups is None else (1 + rules.max_staleness) * groups


def groups_wanted(rules: AdmissionRules, held: int) -> int | None:
    """How many more may be begun, when some are held here; None: any number.

    >>> rules = AdmissionRules(groups_per_batch=4, max_staleness=1)
    >>> groups_wanted(rules, held=3), groups_wanted(rules, held=9)
    (5, 0)
    """
    ahead = groups_ahead(rules)
    return None if ahead is None else max(0, ahead - held)
