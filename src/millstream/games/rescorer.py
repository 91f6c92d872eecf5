"""Rescorer: a game as it was played -> a game as a network should learn it, by `RescoreSettings`.

It may change results, policies, moves left and the input format; `rescore_steps.py` has the steps.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from millstream.errors import RecipeError
from millstream.games.block import FrameBlock
from millstream.games.frame import InputFormat
from millstream.games.rescore_steps import (
    VERSION,
    MateTables,
    TableProbe,
    Tables,
    add_averages,
    adjust_policies,
    convert,
    count_plies_left,
    count_to_mates,
    deblunder,
    name_next_moves,
    rescore_results,
    shorten_to_mates,
)
from millstream.games.validity import checked, uses_half_turn


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


class Rescorer:
    """Rescores games, one by one; several threads may use it.

    Args:
        settings: What to do.
        rules: What a game must keep to be rescored: `moves` or `legal` (`Rules`).
        tables: Endgame tables; by default those of `settings.syzygy_paths`.
        mates: Tables of mates; by default those of `settings.gaviota_paths`.
    """

    def __init__(
        self,
        settings: RescoreSettings | None = None,
        *,
        rules: Literal["moves", "legal"] = "moves",
        tables: Tables | None = None,
        mates: MateTables | None = None,
    ) -> None:
        if rules not in ("moves", "legal"):
            raise RecipeError(f"a game cannot be rescored by rules {rules!r}", hint="pass 'moves' or 'legal'")
        self.settings = settings or RescoreSettings()
        self.rules = rules
        self._tables, self._mates = tables, mates
        if tables is None and self.settings.syzygy_paths:
            from millstream.games.board import SyzygyTables

            self._tables = SyzygyTables.open(self.settings.syzygy_paths)
        if mates is None and self.settings.gaviota_paths:
            from millstream.games.gaviota import GaviotaTables

            self._mates = GaviotaTables.open(self.settings.gaviota_paths)

    def rescore(self, game: FrameBlock) -> FrameBlock:
        """The whole game, rescored; a RecordError says why it cannot be.

        >>> Rescorer().rescore(FrameBlock.empty())
        Traceback (most recent call last):
        millstream.errors.RecordError: no frames: ply 0: a game without frames
        ...
        """
        settings, (positions, moves) = self.settings, checked(game, self.rules)
        half_turn = uses_half_turn(game, positions, moves)
        probe = self._tables.of(positions) if self._tables else None
        mates = self._mates.of(positions) if self._mates else None
        block = replace(game, fields=game.fields.copy())
        if probe is not None:
            rescore_results(block.fields, positions, probe)
        block = adjust_policies(block, settings, probe, half_turn=half_turn)
        count_plies_left(block.fields)
        if probe is not None:
            shorten_to_mates(block.fields, positions, probe, mates)
        if mates is not None:
            count_to_mates(block.fields, positions, mates)
        if settings.deblunder_threshold is not None and settings.deblunder_width is not None:
            threshold, width, last = settings.deblunder_threshold, settings.deblunder_width, _last_without(probe)
            deblunder(block.fields, threshold, width, last=last, own_result=settings.deblunder_own_result)
        if settings.new_input_format is not None:
            block = convert(block, positions, InputFormat(settings.new_input_format), half_turn=half_turn)
            if (block.fields["version"] >= VERSION).all():
                name_next_moves(block.fields)
        add_averages(block.fields, settings.st_q_theta)
        return block

    @property
    def mate_coverage(self) -> dict[int, tuple[int, int]]:
        """For each number of pieces, how many tables of mates there are, and how many there could be."""
        return self._mates.coverage if self._mates else {}

    def close(self) -> None:
        """Close the files of the tables."""
        for tables in (self._tables, self._mates):
            if tables:
                tables.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _last_without(probe: TableProbe | None) -> int:
    """The last frame before tables know the position; they are not asked for the first one."""
    if probe is None or not probe.in_reach[1:].any():
        return -1
    return int(probe.in_reach[1:].argmax())
