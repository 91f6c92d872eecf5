"""Rollouts on the command line: which files hold them, the loader over them, and what only they are asked."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from millstream.cli.saying import say
from millstream.errors import LoaderError
from millstream.loaders import RolloutDataLoader, are_rollouts, refuse_journal, refuse_nothing
from millstream.loaders.rollouts import FEED_SCHEMES
from millstream.rollouts import find_rollouts
from millstream.sources import FoundFile

OF_ROLLOUTS = ("estimator", "rollout_id", "whole")
DAMAGED = ["damaged/*"]
"""What a spool has put aside."""


def add_rollout_arguments(parser: argparse._ActionsContainer) -> None:
    """Declare how a rollout is shown."""
    parser.add_argument(
        "--estimator", metavar="E", help="how advantages are computed: grpo (default), rloo, gae, …; none: not at all"
    )
    parser.add_argument("--whole", action="store_true", help="show long prompts and outputs of tools to the end")


def hold_rollouts(source: Any, arguments: argparse.Namespace) -> bool:
    """Whether files hold rollouts; if not, what is only asked of rollouts is refused. There must be something."""
    refuse_journal(source)
    refuse_nothing(source)
    if are_rollouts(source):
        return True
    for name in OF_ROLLOUTS:
        if getattr(arguments, name, None):
            flag = f"--{name.replace('_', '-')}"
            raise LoaderError(f"{flag} is about rollouts, and these are none", hint=f"leave out {flag}")
    return False


def rollout_files(source: Any) -> list[FoundFile]:
    """The files of rollouts of a source; of a spool, those that are whole."""
    if isinstance(source, str) and source.partition("://")[0] in FEED_SCHEMES:
        raise LoaderError(
            f"{source}: a feed is only looked at by whoever trains on it",
            hint="the folder of a spool can be read by anybody",
        )
    return find_rollouts(source, exclude=DAMAGED)


def open_rollouts(source: Any, arguments: argparse.Namespace, estimator: str) -> RolloutDataLoader:
    """The loader of the run that the arguments describe, over what can be used of the files."""
    loader = RolloutDataLoader(
        [file.path for file in rollout_files(source)],  # the folder of a spool would be opened as a feed
        tokenizer=arguments.tokenizer,
        compute_advantages=estimator != "none",
        advantages=None if estimator == "none" else {"estimator": estimator, "allow_singleton": True},
        on_bad="skip",
        batch_size=arguments.batch_size,
        seed=arguments.seed,
        shuffle=False if arguments.shuffle == "none" else arguments.shuffle,
        rank=arguments.rank,
        world_size=arguments.world_size,
        framework="numpy",
    )
    _tell_left_out(loader)
    return loader


def number_of(loader: RolloutDataLoader, rollout_id: str) -> int:
    """The number of a rollout by its id as it was typed: a text, or a number."""
    try:
        return loader.number_of(rollout_id)
    except LoaderError:
        if not rollout_id.lstrip("-").isdecimal():
            raise
        return loader.number_of(int(rollout_id))


def refuse(arguments: argparse.Namespace, names: Iterable[str], what: str) -> None:
    """Refuse flags that are not about rollouts."""
    for name in (name for name in names if getattr(arguments, name) is not None):
        flag = f"--{name.replace('_', '-')}"
        raise LoaderError(f"{flag} is about {what}, and these are rollouts", hint=f"leave out {flag}")


def _tell_left_out(loader: RolloutDataLoader) -> None:
    reasons = loader.rollouts.losses.reasons("left_out", source=loader.name)
    left_out = ", ".join(f"{number:,} {reason}" for reason, number in reasons.items())
    if left_out:
        say("note", f"left out, not counted among the rows: {left_out}; `millstream lint` names them")
