"""Settings of a loader of rollouts: how good rollouts are, how steps are cut, and what the model can take."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, TypedDict, TypeVar, cast, get_args

import numpy as np
import numpy.typing as npt

from millstream.advantages import AdvantageSettings, Overlong, is_number
from millstream.batches import MeanOf
from millstream.errors import LoaderError, RecordError
from millstream.feeds.admission import ReplayRules
from millstream.loaders import (
    LoaderSettings,
    SharedKeywords,
    check_choice,
    padding_id,
    positive,
    refuse_unknown,
    resolve,
)
from millstream.order import CostModel, MicroBatchRule
from millstream.rollouts import OnBad, RolloutBlock
from millstream.tokens import Tokenizer, load_tokenizer

Balance = Literal["karmarkar_karp"]
Settings = TypeVar("Settings", AdvantageSettings, Overlong, ReplayRules)
Numbers = npt.NDArray[np.int64]
OWN_KEYWORDS = (
    "tokenizer",
    "compute_advantages",
    "estimator",
    "advantages",
    "max_length",
    "name",
    "pad_id",
    "on_bad",
    "live",
)
"""What a loader of rollouts takes besides what is said of steps and what every loader takes."""


class StepKeywords(TypedDict, total=False):
    """How steps are cut, as a loader takes it: see `StepSettings`."""

    packing: bool
    pad_to_multiple_of: int
    balance: Balance | None
    keep_groups: bool
    micro_tokens: int | None
    micro_multiple: int
    loss: MeanOf
    loss_constant: float | None
    cost: CostModel


class RolloutKeywords(StepKeywords, SharedKeywords, total=False):
    """How steps are cut, and what every loader takes."""


@dataclass(frozen=True)
class StepSettings:
    """How the rollouts of a step are cut into batches of ranks, and these into micro-batches."""

    packing: bool = False
    """Several rollouts in a row, each of which sees only itself; else one in a row, padded to the longest."""
    pad_to_multiple_of: int = 1
    """Rows are as long as the longest, in multiples of this."""
    balance: Balance | None = None
    """How rollouts are dealt out to ranks: so that all have about as much to compute; None: as they come."""
    keep_groups: bool = False
    """Whether all rollouts of a group go to one rank, in one step. Then a batch size counts groups."""
    micro_tokens: int | None = None
    """Most tokens of a micro-batch, padding too."""
    micro_multiple: int = 1
    """The number of micro-batches is a multiple of this, as stages of a pipeline want."""
    loss: MeanOf = "token"
    """What the denominators of batches are for."""
    loss_constant: float | None = None
    """What the sum of all tokens ("constant"), or the mean of the sums of sequences ("sequence_sum"), is divided by."""
    cost: CostModel = field(default_factory=CostModel)
    """What a rollout costs the model: what is balanced."""

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, get_args(MeanOf))
        for name in ("packing", "keep_groups"):
            check_flag(name, getattr(self, name))
        self._check_constant()
        for name in ("pad_to_multiple_of", "micro_multiple"):
            positive(name, getattr(self, name))
        if self.micro_tokens is not None:
            positive("micro_tokens", self.micro_tokens)
        if not isinstance(self.cost, CostModel):
            raise LoaderError(
                f"cost={self.cost!r} is no cost of a model",
                hint="pass CostModel(linear, quadratic) of millstream.order, or leave it out",
            )
        if self.balance not in (None, *get_args(Balance)):
            raise LoaderError(f"balance={self.balance!r} is unknown", hint="use 'karmarkar_karp', or leave it out")

    def _check_constant(self) -> None:
        given = self.loss_constant
        if given is None and self.loss == "constant":
            raise LoaderError("loss='constant' has nothing to divide by", hint="give loss_constant=")
        if given is not None and self.loss not in ("constant", "sequence_sum"):
            raise LoaderError(f"loss={self.loss!r} has no constant", hint="use loss='constant' or 'sequence_sum'")
        if given is not None and not (is_number(given) and 0 < given < math.inf):
            raise LoaderError(
                f"loss_constant is {given!r}", hint="pass a number; Dr.GRPO has the greatest length of an answer"
            )

    @property
    def rule(self) -> MicroBatchRule | None:
        """What a micro-batch may hold."""
        if self.micro_tokens is None:
            return None
        return MicroBatchRule(self.micro_tokens, packed=self.packing, unit=self.pad_to_multiple_of, cost=self.cost)

    @property
    def facts(self) -> dict[str, Any]:
        """What decides which rollouts stand in which batch, as a state says it."""
        facts: dict[str, Any] = {"keep_groups": self.keep_groups, "balance": self.balance}
        if self.balance is not None:
            facts["cost"] = [self.cost.linear, self.cost.quadratic]
        return facts


def check_flag(name: str, value: object) -> None:
    """Insist on True or False: "no" would be true."""
    if not isinstance(value, bool):
        raise LoaderError(f"{name} must be True or False, not {value!r}", hint=f"pass {name}=True, or leave it out")


def advantage_settings(
    given: AdvantageSettings | Mapping[str, Any] | None, estimator: str, *, compute: bool
) -> AdvantageSettings | None:
    """What says how advantages are computed; None: they are not computed.

    >>> advantage_settings({"epsilon": 1e-4}, "grpo", compute=True).epsilon
    0.0001
    """
    check_flag("compute_advantages", compute)
    if given is not None and not isinstance(given, AdvantageSettings | Mapping):
        raise LoaderError(f"advantages={given!r} is no settings", hint='pass a dict, such as {"epsilon": 1e-4}')
    if not compute:
        if given is not None:
            raise LoaderError(
                "compute_advantages=False leaves nothing for advantages= to say",
                hint="leave it out, or pass compute_advantages=True",
            )
        return None
    if isinstance(given, AdvantageSettings):
        if estimator not in (AdvantageSettings.estimator, given.estimator):
            raise LoaderError(
                f"estimator={estimator!r} and advantages={given.estimator!r} differ", hint="leave estimator= out"
            )
        return given
    named = {"estimator": estimator, **(given or {})}
    if isinstance(named.get("overlong"), Mapping):
        named["overlong"] = by_name(Overlong, named["overlong"], "overlong")
    return by_name(AdvantageSettings, named, "advantages")


def by_name(kind: type[Settings], given: Mapping[str, Any], what: str) -> Settings:
    """Settings of a dataclass as a dict has them.

    >>> by_name(Overlong, {"max_length": 512, "buffer": 64}, "overlong")
    Overlong(max_length=512, buffer=64, factor=1.0)
    >>> by_name(Overlong, {"max_length": 512}, "overlong")
    Traceback (most recent call last):
    millstream.errors.LoaderError: overlong: 'buffer' is missing
      hint: there are max_length, buffer, factor
    """
    known = {each.name: each for each in fields(kind)}
    hint = f"there are {', '.join(known)}"
    if unknown := sorted(map(str, given.keys() - known.keys())):
        raise LoaderError(f"{what}: there is no setting {unknown[0]!r}", hint=hint)
    for name, each in known.items():
        if name not in given and each.default is each.default_factory is MISSING:
            raise LoaderError(f"{what}: {name!r} is missing", hint=hint)
    return kind(**given)


def parted(given: RolloutKeywords, known: Iterable[str] = ()) -> tuple[StepSettings, SharedKeywords]:
    """What is said of steps, and what every loader takes; `known` are the names of what else may be said."""
    refuse_unknown(given, known, RolloutKeywords.__annotations__)
    steps = {name: value for name, value in given.items() if name in StepKeywords.__annotations__}
    shared = {name: value for name, value in given.items() if name not in steps}
    return StepSettings(**cast("StepKeywords", steps)), cast("SharedKeywords", shared)


@dataclass(frozen=True)
class RolloutLimits:
    """What the model can take: a rollout beyond it is an error where it comes in, not cut in silence."""

    longest: int | None = None
    vocabulary: int | None = None

    @classmethod
    def of(
        cls, max_length: int | None, micro_tokens: int | None, tokenizer: Tokenizer | None, settings: LoaderSettings
    ) -> RolloutLimits:
        """The strictest of what is known."""
        lengths = [each for each in (max_length, micro_tokens, settings.limits.longest_row) if each is not None]
        vocabulary = settings.limits.vocab_size or (None if tokenizer is None else tokenizer.vocab_size)
        return cls(min(lengths, default=None), vocabulary)

    def faults(self, block: RolloutBlock, where: Callable[[int], str]) -> dict[int, RecordError]:
        """Which rollouts the model cannot take, and why; `where` says of each where it stands."""
        found = {}
        if self.longest is not None:
            for row in np.flatnonzero(block.lengths > self.longest).tolist():
                found[row] = RecordError(
                    "too long",
                    f"rollout {block['rollout_id'][row]!r} has {block.lengths[row]} tokens, and {self.longest} fit",
                    hint="raise max_length or micro_tokens, or let the engine stop earlier",
                    where=where(row),
                )
        if self.vocabulary is not None and len(block) and int(block["token_ids"].max()) >= self.vocabulary:
            places = np.flatnonzero(block["token_ids"] >= self.vocabulary)
            for place, row in zip(places, np.searchsorted(block.ends, places, side="right").tolist(), strict=True):
                found[row] = RecordError(
                    "unknown id",
                    f"rollout {block['rollout_id'][row]!r} holds the id {block['token_ids'][place]}, and the "
                    f"vocabulary ends at {self.vocabulary - 1}",
                    hint="the rollouts were made with another tokenizer or model",
                    where=where(row),
                )
        return found

    def kept(self, block: RolloutBlock, on_bad: OnBad, left_out: Counter[str], where: Callable[[int], str]) -> Numbers:
        """The rollouts that the model can take; the others are errors, or counted."""
        faults = self.faults(block, where)
        if faults and on_bad == "error":
            raise faults[min(faults)]
        left_out.update(fault.reason for fault in faults.values())
        return np.array([row for row in range(len(block)) if row not in faults], np.int64)


@dataclass(frozen=True)
class RolloutTask:
    """All settings of a loader of rollouts, checked and with nothing left open."""

    name: str
    settings: LoaderSettings
    steps: StepSettings
    rating: AdvantageSettings | None
    """How advantages are computed; None: not at all."""
    limits: RolloutLimits
    tokenizer: Tokenizer | None
    pad_id: int

    @classmethod
    def of(
        cls,
        name: str,
        tokenizer: Any,
        rating: AdvantageSettings | None,
        max_length: int | None,
        pad_id: int | None,
        keywords: RolloutKeywords,
    ) -> RolloutTask:
        """Check the keywords of a loader."""
        steps, shared = parted(keywords, OWN_KEYWORDS)
        settings = resolve(shared)
        loaded = None if tokenizer is None else load_tokenizer(tokenizer)
        longest = None if max_length is None else positive("max_length", max_length)
        limits = RolloutLimits.of(longest, steps.micro_tokens, loaded, settings)
        return cls(name, settings, steps, rating, limits, loaded, padding_id(pad_id, loaded, settings))
