"""The steps of rescoring, in their order."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Self

from millstream.errors import RecipeError
from millstream.games import FrameBlock, InputFormat, checked, uses_half_turn
from millstream.games.rescore.averages import VERSION, add_averages, name_next_moves
from millstream.games.rescore.convert import convert
from millstream.games.rescore.deblunder import deblunder
from millstream.games.rescore.plies_left import count_plies_left, count_to_mates, shorten_to_mates
from millstream.games.rescore.policies import adjust_policies
from millstream.games.rescore.results import rescore_results
from millstream.games.rescore.settings import RescoreSettings
from millstream.games.rescore.tables import MateTables, TableProbe, Tables


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
            from millstream.games import SyzygyTables

            self._tables = SyzygyTables.open(self.settings.syzygy_paths)
        if mates is None and self.settings.gaviota_paths:
            from millstream.games import GaviotaTables

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
