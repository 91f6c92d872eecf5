"""What is said of a feed -> a run over it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from millstream.advantages import find_estimator
from millstream.errors import LoaderError
from millstream.feeds import Feed, is_spool, open_feed
from millstream.feeds.admission import AdmissionRules, ReplayRules
from millstream.loaders import positive
from millstream.loaders.rollouts.settings import RolloutTask, by_name
from millstream.loaders.rollouts.steps import Dealer
from millstream.loaders.runs import LEADER, FeedCheckpoint, FeedRun

FEED_SCHEMES = ("redis", "rediss", "http", "https")


@dataclass(frozen=True)
class LiveSettings:
    """How a loader lives from a feed, besides `AdmissionRules`, whose settings may stand beside these by name."""

    rules: AdmissionRules
    passes: int = 1
    """How often each rollout batch is trained on."""
    policy_version: int = 0
    """What the first step trains."""
    timeout_s: float | None = None
    """How long a rollout batch is waited for; None: without limit."""
    replay_journal: bool = False
    """Train once more on what the journal in `cache_dir` says, in the same order."""
    feed: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the feed that an address or a folder names: `directory`, `token`, `keep`, …"""

    def __post_init__(self) -> None:
        positive("passes", self.passes)

    @classmethod
    def of(cls, given: LiveSettings | Mapping[str, Any] | None, task: RolloutTask) -> LiveSettings:
        """Settings by name; a rollout batch is by default what one step takes."""
        if isinstance(given, LiveSettings):
            return given
        if given is not None and not isinstance(given, Mapping):
            raise LoaderError(f"live={given!r} is no settings", hint='pass a dict, such as {"group_size": 8}')
        named = dict(given or {})
        own = {each.name: named.pop(each.name) for each in fields(cls) if each.name in named}
        known = [each.name for each in fields(AdmissionRules)]
        if unknown := sorted(set(named) - set(known)):
            names = ", ".join([*(each.name for each in fields(cls)), *known])
            raise LoaderError(f"feeds have no setting {unknown[0]!r}", hint=f"there are {names}")
        if "rules" not in own:
            if named.keys().isdisjoint(("groups_per_batch", "rollouts_per_batch")):
                unit = "groups_per_batch" if task.steps.keep_groups else "rollouts_per_batch"
                named[unit] = task.settings.batch_size * task.settings.world_size
            if isinstance(named.get("replay"), Mapping):
                named["replay"] = by_name(ReplayRules, named["replay"], "replay")
            own["rules"] = AdmissionRules(**named)
        elif named:
            raise LoaderError(f"{next(iter(named))!r} is said beside rules=", hint="say it there, or leave out rules=")
        return cls(**own)


def is_feed(rollout_data: Any, *, live: bool = False) -> bool:
    """Whether rollouts come from a feed: an object that is one, an address, or the folder of a spool.

    A folder that is no spool yet becomes one where `live` is given.

    >>> is_feed("redis://localhost:6379/rollouts"), is_feed([{"rollout_id": "a"}]), is_feed("rollouts.jsonl")
    (True, False, False)
    """
    if isinstance(rollout_data, str) and _scheme(rollout_data) in FEED_SCHEMES:
        return True
    if isinstance(rollout_data, str | os.PathLike):
        folder = Path(rollout_data)
        return is_spool(folder) or (live and not folder.is_file())
    return all(hasattr(rollout_data, name) for name in ("receive", "release", "cursor", "tell"))


def _scheme(where: str) -> str:
    """What an address begins with; what is wrong with the rest of it is said by what opens it."""
    scheme, separator, _ = where.partition("://")
    return scheme.lower() if separator else ""


def feed_run(where: Any, live: LiveSettings, task: RolloutTask, dealer: Dealer, *, skips_bad: bool) -> FeedRun:
    """Make a run over a feed."""
    rules = _rules(live.rules, task)
    settings = task.settings
    if settings.drop_last:
        raise LoaderError(
            "drop_last=True would drop rollouts of every rollout batch that no other step has",
            hint="leave it out: the last step of a pass is short; pad_last=True fills it up without loss",
        )
    leads = settings.rank == LEADER
    feed = _opened(where, live.feed, leads=leads)
    return FeedRun(
        feed,
        FeedCheckpoint(
            replace(rules, on_bad="skip") if skips_bad else rules,
            settings.seed,
            settings.cache_dir,
            leads=leads,
            replay=live.replay_journal,
        ),
        task,
        dealer,
        passes=live.passes,
        policy_version=live.policy_version,
        timeout_s=live.timeout_s,
    )


def _rules(rules: AdmissionRules, task: RolloutTask) -> AdmissionRules:
    """The rules, as strict as the model and the estimator need them."""
    limits = task.limits
    longest = min((each for each in (rules.max_tokens, limits.longest) if each is not None), default=None)
    rules = replace(rules, max_tokens=longest, vocabulary=rules.vocabulary or limits.vocabulary)
    if task.rating is None or task.rating.allow_singleton or not find_estimator(task.rating).groups:
        return rules
    if rules.known_size == 1:
        raise LoaderError(
            f"{task.rating.estimator} compares the rollouts of a group, and groups of one have nothing to compare",
            hint="use reinforce++ or gae, which need no group; or a larger group_size",
        )
    return replace(rules, min_group_size=max(2, rules.least_rollouts))


def _opened(where: Any, settings: Mapping[str, Any], *, leads: bool) -> Feed:
    """Open a feed; ranks that do not lead only follow what the one that does takes from it."""
    scheme = _scheme(where) if isinstance(where, str) else ""
    folder = settings.get("directory") if scheme in ("http", "https") else where
    if scheme in ("http", "https") and folder is None:
        raise LoaderError(
            f"{where}: rollouts that come over HTTP are kept in a folder, and none was given",
            hint='pass live={"feed": {"directory": "spool/", "token": …}}',
        )
    if leads or not isinstance(folder, str | os.PathLike):
        return open_feed(where, **settings)
    if scheme in ("redis", "rediss"):
        return open_feed(where, **settings, follow=True)
    return open_feed(folder, follow=True)
