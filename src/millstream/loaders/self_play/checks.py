"""What a self-play loader is asked for is looked at when it is made: what means nothing would show up much later."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from glob import has_magic
from pathlib import Path
from typing import Any

import numpy as np

from millstream.errors import BudgetError, LoaderError
from millstream.games import MOST_SLOTS, ORIGIN, SLOT_BYTES, FieldMatch, check_rules
from millstream.live import HanseSampling
from millstream.loaders import positive
from millstream.settings import local_path

_LINKS = "make a folder with links to all of them, and pass that"


def check_keywords(path: Any, replay: Any, **keywords: Any) -> None:
    """Refuse what cannot be meant, each with a hint."""
    _check_folder(path)
    if replay is not None:
        _check_journal(replay)
    if not isinstance(watch := keywords["watch"], bool):
        raise LoaderError(f"watch={watch!r} is neither True nor False", hint="pass watch=False for one pass")
    if (poll_s := keywords["poll_s"]) is not None and not (_is_number(poll_s) and poll_s > 0):
        raise LoaderError(f"poll_s={poll_s!r} is no time between two looks", hint="pass seconds, or leave it out")
    hanse = keywords["hanse"]
    if hanse is not None and not isinstance(hanse, HanseSampling) and not (_is_number(hanse) and hanse >= 0):
        raise LoaderError(f"hanse={hanse!r} is no exponent", hint="pass hanse=1 to make positions alike")
    _check_reservoir(keywords["shuffle_frames"])
    _check_filters(keywords["rules"], keywords["match"], keywords["predicates"])


def _check_reservoir(shuffle_frames: Any) -> None:
    """Refuse what the memory has no room for; only what is written to is taken up, so asking costs nothing."""
    frames = positive("shuffle_frames", shuffle_frames, MOST_SLOTS)
    try:
        np.empty(frames, ORIGIN)
    except MemoryError:
        takes = frames * (SLOT_BYTES + ORIGIN.itemsize)
        raise BudgetError(
            f"shuffle_frames={frames}: so many positions take {takes:,} bytes, which are not to be had",
            hint=f"a position takes {SLOT_BYTES + ORIGIN.itemsize} bytes; pass a smaller shuffle_frames",
        ) from None


def _check_folder(path: Any) -> None:
    if isinstance(path, Sequence) and not isinstance(path, str | bytes):
        raise LoaderError(f"path is a list of {len(path)}, and only one folder is watched", hint=_LINKS)
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise LoaderError(f"path={path!r} is no folder", hint="pass the path of a folder of games")
    folder = local_path(path, "a folder of games", LoaderError)
    if has_magic(str(folder)) and not folder.exists():
        raise LoaderError(
            f"path={str(folder)!r} is a pattern, and no folder",
            hint="pass the folder: all games in it and below it are taken; or one with links to those that you want",
        )
    if folder.is_file() or (folder.suffix in (".gz", ".tar") and not folder.exists()):
        raise LoaderError(f"{folder} is a file, and no folder", hint="pass the folder that it lies in, or link to it")


def _check_journal(replay: Any) -> None:
    if not isinstance(replay, str | os.PathLike) or not Path(replay).is_file():
        raise LoaderError(f"replay={replay!r}: there is no such journal", hint="it is admissions.jsonl in a cache_dir")


def _check_filters(rules: Any, match: Any, predicates: Any) -> None:
    if rules is not None:
        check_rules(rules)
    if match is not None:
        if not isinstance(match, Mapping):
            raise LoaderError(f"match={match!r} names no fields", hint='pass match={"visits": (1, None)}')
        FieldMatch(match)
    if isinstance(predicates, str) or not isinstance(predicates, Sequence) or not all(map(callable, predicates)):
        raise LoaderError(
            f"predicates={predicates!r} is no list of functions", hint="pass predicates=[f], functions of a game"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
