"""What a run was begun with -> the keywords to pass so that it goes on."""

from __future__ import annotations

import re

_SETTINGS = ("positions", "hanse", "rescore", "match", "predicates")
"""What a state does not say as it is passed."""


def going_on_hint(fact: str, saved: object) -> str:
    """How to have again what a state was saved with.

    >>> going_on_hint("positions", "PositionSampling(rate=None, count=2, weights=…)")
    'pass positions=2 to go on with that run, and its weights= if it had some'
    >>> going_on_hint("positions", "PositionSampling(rate=None, count=None, weights=PositionWeights(gamma=1.0))")
    'leave out positions= to go on with that run'
    >>> going_on_hint("rescore", "None"), going_on_hint("watch", False)
    ('leave out rescore= to go on with that run', 'pass watch=False to go on with that run')
    >>> going_on_hint("num_chunks", 500)
    'pass num_chunks=500 to go on with that run; the size of a window cannot change: begin a new run for another one'
    """
    if fact == "num_chunks":
        another = "the size of a window cannot change: begin a new run for another one"
        return f"pass num_chunks={saved!r} to go on with that run; {another}"
    if fact not in _SETTINGS:
        return f"pass {fact}={saved!r} to go on with that run"
    number = re.match(r"\w+\((?:rate=None, count=|rate=|gamma=)(\d[\d.e-]*)", str(saved))
    if number is not None and fact in ("positions", "hanse"):
        return f"pass {fact}={number[1]} to go on with that run, and its weights= if it had some"
    if saved in (None, "None") or fact == "positions":
        return f"leave out {fact}= to go on with that run"
    return f"pass the {fact}= that it had to go on with that run"
