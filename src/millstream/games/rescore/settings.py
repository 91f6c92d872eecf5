"""What a rescorer does, in one value."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millstream.errors import RecipeError
from millstream.games import InputFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class RescoreSettings:
    """What a rescorer does; by default it adds what version 7 has, and changes nothing else.

    Args:
        syzygy_paths: Folders of Syzygy tables; needs the extra `chess`.
        gaviota_paths: Folders of Gaviota tables (`.gtb.cp4`), for moves left; needs the extra `chess`.
        dist_temp: Temperature of policies: each probability is raised to its inverse.
        dist_offset: Added to every probability before that.
        dtz_boost: Shared by the best moves by the tables, added to their probabilities before that.
        new_input_format: The input format to convert to; None leaves it.
        deblunder_threshold: How much worse than the best a move must be for the result to be forgotten before it.
        deblunder_width: Around the threshold, how far the result is forgotten in part.
        deblunder_own_result: Begin with the result of the frame where the walk begins. By default it is that of the
            game's last frame, as in Lc0; where tables end the walk early, that may be the other player's.
        st_q_theta: How much of the short-term averages comes from later plies.

    >>> RescoreSettings(deblunder_threshold=0.1)
    Traceback (most recent call last):
    millstream.errors.RecipeError: deblunder_threshold is given, and deblunder_width is not
    ...
    """

    syzygy_paths: Sequence[str] = ()
    gaviota_paths: Sequence[str] = ()
    dist_temp: float = 1.0
    dist_offset: float = 0.0
    dtz_boost: float = 0.0
    new_input_format: InputFormat | int | None = None
    deblunder_threshold: float | None = None
    deblunder_width: float | None = None
    deblunder_own_result: bool = False
    st_q_theta: float = 5 / 6

    def __post_init__(self) -> None:
        for name in ("syzygy_paths", "gaviota_paths"):
            object.__setattr__(self, name, _folders(name, getattr(self, name)))
        if not (self.dist_temp > 0 and math.isfinite(self.dist_temp)):
            raise RecipeError(f"dist_temp is {self.dist_temp}", hint="a temperature is more than 0; 1 changes nothing")
        for name in ("dist_offset", "dtz_boost"):
            if not math.isfinite(value := getattr(self, name)):
                raise RecipeError(f"{name} is {value}", hint="it is added to probabilities; 0 changes nothing")
        if self.dtz_boost and not self.syzygy_paths:
            raise RecipeError("dtz_boost needs tables", hint="pass syzygy_paths=, or no dtz_boost")
        if not 0 <= self.st_q_theta <= 1:
            raise RecipeError(f"st_q_theta is {self.st_q_theta}", hint="it is a share between 0 and 1")
        if self.new_input_format is not None and self.new_input_format not in list(InputFormat):
            known = ", ".join(str(int(layout)) for layout in InputFormat)
            raise RecipeError(f"there is no input format {self.new_input_format}", hint=f"there are {known}")
        if (self.deblunder_threshold is None) != (self.deblunder_width is None):
            given, missing = "deblunder_threshold", "deblunder_width"
            if self.deblunder_threshold is None:
                given, missing = missing, given
            raise RecipeError(f"{given} is given, and {missing} is not", hint="pass both, such as 0.10 and 0.06")
        if self.deblunder_width is not None and self.deblunder_width < 0:
            raise RecipeError(f"deblunder_width is {self.deblunder_width}", hint="0 forgets all of a result at once")


def _folders(name: str, said: Any) -> tuple[str, ...]:
    """Paths one by one, or joined as Lc0 takes them."""
    paths = said.split(":") if isinstance(said, str) else said
    if not isinstance(paths, Sequence) or not all(path and isinstance(path, str | os.PathLike) for path in paths):
        raise RecipeError(f"{name} is {said!r}, no list of folders", hint=f'pass {name}=["tables"], paths of folders')
    return tuple(map(os.fspath, paths))
