"""What is made of rollouts, wherever they come from: all settings of a loader, checked and with nothing left open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.advantages import AdvantageSettings
from millstream.errors import RecordError
from millstream.loaders.rollout_settings import RolloutKeywords, StepSettings, parted
from millstream.loaders.rows import padding_id
from millstream.loaders.settings import LoaderSettings, positive, resolve
from millstream.rollouts import OnBad, RolloutBlock
from millstream.tokens import Tokenizer, load_tokenizer

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
    """What a loader of rollouts was told."""

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
        """Check what was told."""
        steps, shared = parted(keywords, OWN_KEYWORDS)
        settings = resolve(shared)
        loaded = None if tokenizer is None else load_tokenizer(tokenizer)
        longest = None if max_length is None else positive("max_length", max_length)
        limits = RolloutLimits.of(longest, steps.micro_tokens, loaded, settings)
        return cls(name, settings, steps, rating, limits, loaded, padding_id(pad_id, loaded, settings))
