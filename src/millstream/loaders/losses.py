"""What became of raw rows: counted where they are made, named by `loader.losses`, told once to who loads a store."""

from __future__ import annotations

import sys
import warnings
from collections import Counter

from millstream.errors import LossWarning
from millstream.loaders.made_by import recipe_of
from millstream.parts.report import report_path
from millstream.sources.failure import BLANK
from millstream.store import TokenStore

_CUT = ("truncated", "media left out")
"""Changes that cost a row some of what it held. Others are what a recipe was asked for, or only noted."""


def named_losses(name: str, left_out: Counter[str], changed: Counter[str]) -> dict[str, int]:
    """What a source lost, by what became of it and by reason, as every loader names it.

    >>> named_losses("web", Counter({"not JSON": 2, "empty": 1}), Counter(invalid=1))
    {'left_out:web:empty': 1, 'left_out:web:not JSON': 2, 'changed:web:invalid': 1}
    """
    found = (("left_out", left_out), ("changed", changed))
    return {f"{what}:{name}:{reason}": count for what, counts in found for reason, count in sorted(counts.items())}


def store_losses(name: str, store: TokenStore) -> dict[str, int]:
    """What a source lost on its way into its store, by what became of it and by reason; so far, if it is still made.

    >>> from millstream.loaders.pretrain import example_loader
    >>> store_losses("web", example_loader().store)  # a store that nobody prepared says nothing
    {}
    """
    return named_losses(name, _counts(store, "left_out"), _counts(store, "changed"))


def tell_losses(store: TokenStore) -> None:
    """Warn of rows that a complete store lacks, or holds only in part; of blank lines nothing is missed."""
    left_out = _counts(store, "left_out")
    del left_out[BLANK]
    cut = [f"{number:,} {what}" for what, number in _counts(store, "changed").items() if what in _CUT]
    told = []
    if left_out:
        (reason, most), rows = left_out.most_common(1)[0], recipe_of(store).get("rows")
        of = f" of {rows:,}" if isinstance(rows, int) else ""
        told.append(f"left out: {left_out.total():,}{of} rows, most often {reason!r} ({most:,})")
    if cut:
        told.append(f"cut: {', '.join(cut)}")
    if told:
        report = report_path(store.path, ".html")
        warnings.warn(f"{'; '.join(told)} (report: {report})", LossWarning, stacklevel=_level_of_caller())


def _counts(store: TokenStore, what: str) -> Counter[str]:
    """Counts of a manifest, which comes from a disk and may say anything."""
    counts = recipe_of(store).get(what)
    whole = counts.items() if isinstance(counts, dict) else ()
    return Counter({str(reason): number for reason, number in whole if isinstance(number, int) and number > 0})


def _level_of_caller() -> int:
    """How many frames up from our caller the code stands that is not Millstream's."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("millstream."):
        level, frame = level + 1, frame.f_back
    return level
