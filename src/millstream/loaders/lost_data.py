"""Counts of dropped and changed rows: recorded by `prepare`, read by `loader.losses`, warned of once as a LossWarning.

They stand in the recipe of a store's manifest, which comes from a disk and may say anything.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from millstream.errors import LossWarning
from millstream.preparation import report_path
from millstream.rollouts import Id
from millstream.sources import BLANK
from millstream.stages import warn
from millstream.stats import Ledger
from millstream.store import TokenStore

_CUT = ("truncated", "media left out")
"""Changes that cost a row some of what it held. Others are what a recipe was asked for, or only noted."""


def recipe_of(store: TokenStore) -> dict[str, Any]:
    """What a store says of how it was made; nothing, if it was not prepared.

    >>> from millstream.loaders.pretrain import example_loader
    >>> recipe_of(example_loader().store), chat_recipe(example_loader().store)
    ({}, {})
    """
    return _dict(store.manifest.get("recipe"))


def chat_recipe(store: TokenStore) -> dict[str, Any]:
    """What a store says of how its conversations became tokens.

    >>> from types import SimpleNamespace
    >>> [chat_recipe(SimpleNamespace(manifest={"recipe": recipe})) for recipe in (3, {"chat": "x"}, {"chat": {"a": 1}})]
    [{}, {}, {'a': 1}]
    """
    return _dict(recipe_of(store).get("chat"))


def longest_chat(store: TokenStore) -> int | None:
    """The most tokens of a conversation that a store was made for; None: it does not say, or there is no limit."""
    most = chat_recipe(store).get("max_length")
    return most if isinstance(most, int) else None


def _dict(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def named_losses(name: str, left_out: Counter[str], changed: Counter[str]) -> dict[str, int]:
    """What a source lost, by what became of it and by reason, as every loader names it.

    >>> named_losses("web", Counter({"not JSON": 2, "empty": 1}), Counter(invalid=1))
    {'left_out:web:empty': 1, 'left_out:web:not JSON': 2, 'changed:web:invalid': 1}
    """
    ledger = Ledger()
    ledger.add_all("left_out", left_out, source=name)
    ledger.add_all("changed", changed, source=name)
    return ledger.counts


def store_losses(store: TokenStore, name: str = "") -> Ledger:
    """What a source lost on its way into its store, by what became of it and by reason; so far, if it is still made.

    >>> from millstream.loaders.pretrain import example_loader
    >>> store_losses(example_loader().store, "web").counts  # a store that was not prepared says nothing
    {}
    """
    ledger = Ledger()
    for what in ("left_out", "changed"):
        counts = recipe_of(store).get(what)  # a manifest comes from a disk and may say anything
        whole = counts.items() if isinstance(counts, dict) else ()
        sound = {str(reason): number for reason, number in whole if isinstance(number, int) and number > 0}
        ledger.add_all(what, sound, source=name)
    return ledger


def warn_of_losses(store: TokenStore, more: str = "") -> bool:
    """Warn of rows that a store lacks, or holds only in part; of blank lines nothing is missed. Gives whether there are
    any. `more` is where to look, by default the report."""
    losses = store_losses(store)
    left_out = losses.reasons("left_out")
    del left_out[BLANK]
    cut = [f"{number:,} {what}" for what, number in losses.reasons("changed").items() if what in _CUT]
    told = []
    if left_out:
        (reason, most), rows = left_out.most_common(1)[0], recipe_of(store).get("rows")
        of = f" of {rows:,}" if isinstance(rows, int) else ""
        told.append(f"left out: {left_out.total():,}{of} rows, most often {reason!r} ({most:,})")
    if cut:
        told.append(f"cut: {', '.join(cut)}")
    if told:
        where = more or f"report: {report_path(store.path, '.html')}"
        warn(f"{'; '.join(told)} ({where})", LossWarning)
    return bool(told)


def warn_of_odd_group(group: Id, came: str, size: int) -> None:
    """Warn of a group of a feed that is not as large as was said."""
    warn(
        f"group {group!r} has {came}, and group_size says {size}; `losses` counts smaller ones that are trained on "
        "(short_groups), and what came too late for its group (late)",
        LossWarning,
    )
