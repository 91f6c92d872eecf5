"""What is made of rollouts, wherever they come from: all settings of a loader, checked and with nothing left open."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from millstream.admission import AdmissionRules
from millstream.advantages import AdvantageSettings
from millstream.errors import RecordError
from millstream.loaders.rollout_settings import RolloutKeywords, StepSettings, parted
from millstream.loaders.rows import padding_id
from millstream.loaders.settings import LoaderSettings, positive, resolve
from millstream.rollouts import RolloutBlock
from millstream.tokens import Tokenizer, load_tokenizer


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

    def with_rules(self, rules: AdmissionRules) -> tuple[RolloutLimits, AdmissionRules]:
        """What is checked where rollouts come in, and by the rules: these count what is too long, if they skip it.

        >>> RolloutLimits(longest=8).with_rules(AdmissionRules(groups_per_batch=1, on_bad="skip"))[0]
        RolloutLimits(longest=None, vocabulary=None)
        """
        most = min((each for each in (rules.max_tokens, self.longest) if each is not None), default=None)
        here = self if rules.on_bad == "error" else replace(self, longest=None)
        return here, replace(rules, max_tokens=most)

    def check(self, block: RolloutBlock, where: str = "") -> None:
        """Refuse what the model cannot take."""
        if self.longest is not None and len(block) and int(block.lengths.max()) > self.longest:
            row = int(block.lengths.argmax())
            raise RecordError(
                "too long",
                f"rollout {block['rollout_id'][row]!r} has {block.lengths[row]} tokens, and at most {self.longest} fit",
                hint="raise max_length or micro_tokens, or let the engine stop earlier",
                where=where,
            )
        if self.vocabulary is not None and len(block) and int(block["token_ids"].max()) >= self.vocabulary:
            place = int(block["token_ids"].argmax())
            row = int(np.searchsorted(block.ends, place, side="right"))
            raise RecordError(
                "unknown id",
                f"rollout {block['rollout_id'][row]!r} holds the id {block['token_ids'][place]}, and the vocabulary "
                f"ends at {self.vocabulary - 1}",
                hint="the rollouts were made with another tokenizer or model",
                where=where,
            )


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
        steps, shared = parted(keywords)
        settings = resolve(shared)
        loaded = None if tokenizer is None else load_tokenizer(tokenizer)
        longest = None if max_length is None else positive("max_length", max_length)
        limits = RolloutLimits.of(longest, steps.micro_tokens, loaded, settings)
        return cls(name, settings, steps, rating, limits, loaded, padding_id(pad_id, loaded, settings))
