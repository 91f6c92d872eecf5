"""Span corruption, as T5 is trained: stretches of a row are replaced by sentinels, and the decoder writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream.batches import NO_LOSS
from millstream.errors import LoaderError
from millstream.loaders.transforms import PerRow, Row

Ids = npt.NDArray[np.int64]


def corrupt_spans(
    sentinel_ids: Sequence[int],
    *,
    end_id: int | None = None,
    pad_id: int = 0,
    density: float = 0.15,
    mean_length: float = 3.0,
) -> PerRow:
    """Replace random stretches of a row by sentinels; `labels` are each sentinel and the stretch that it stands for.

    For models with an encoder (`input_ids`) and a decoder (`labels`, which such models shift by themselves), whatever
    the loader's `labels=`. Rows keep their length: the encoder's side is padded, the decoder's is -100 behind its end.

    >>> row = {"input_ids": np.arange(10, 22), "labels": np.arange(11, 23), "length": np.array([12])}
    >>> corrupt = corrupt_spans([99, 98, 97], end_id=1, density=0.3, mean_length=2.0)
    >>> corrupted = corrupt(row, np.random.default_rng(2))
    >>> corrupted["input_ids"].tolist(), corrupted["length"].tolist()
    ([10, 11, 12, 13, 14, 15, 99, 17, 18, 98, 1, 0], [11])
    >>> corrupted["labels"].tolist()
    [99, 16, 98, 19, 20, 21, 1, -100, -100, -100, -100, -100]

    Args:
        sentinel_ids: In the order of their use: T5's `<extra_id_0>`, `<extra_id_1>`, …
        end_id: The token that ends both sides; a document's own stays out of the game.
        pad_id: What the encoder's side is filled up with.
        density: The share of tokens that are replaced.
        mean_length: Tokens of a stretch on average.
    """
    if not 0 < density < 1 or mean_length < 1:
        raise LoaderError(
            f"density={density!r} and mean_length={mean_length!r} leave nothing to learn, or nothing to learn from",
            hint="T5 takes density=0.15 and mean_length=3.0",
        )
    ending = () if end_id is None else (end_id,)
    return PerRow(_Corruption(np.asarray(sentinel_ids, np.int64), ending, pad_id, density, mean_length), relabels=True)


@dataclass(frozen=True, eq=False)
class _Corruption:
    """What is done to each row."""

    sentinels: Ids
    ending: tuple[int, ...]
    pad_id: int
    density: float
    mean_length: float

    def __call__(self, row: Row, rng: np.random.Generator) -> Row:
        tokens = self._tokens(row)
        if len(tokens) < 2:
            row["labels"][...] = NO_LOSS
            return row
        lost, spans = self._amounts(len(tokens))
        if spans > len(self.sentinels):
            raise LoaderError(
                f"a row of {len(tokens)} tokens loses {spans} stretches, and there are {len(self.sentinels)} sentinels",
                hint=f"pass {spans} sentinel_ids or more, a larger mean_length, or shorter rows",
            )
        stretches = _composition(len(tokens) - lost, spans, rng), _composition(lost, spans, rng)
        inputs, targets = _sides(tokens, *stretches, self.sentinels)
        _put(row["input_ids"], [*inputs, *self.ending], self.pad_id)
        _put(row["labels"], [*targets, *self.ending], NO_LOSS)
        row["length"][0] = len(inputs) + len(self.ending)
        return row

    def _tokens(self, row: Row) -> Ids:
        """What a row holds without its end, and not more than has room with it."""
        if "position_ids" in row:
            raise LoaderError(
                "corrupt_spans makes one sequence of a row, and this one holds several that are kept apart",
                hint="use documents='row' or 'attend'",
            )
        room, end = len(row["input_ids"]), len(self.ending)
        tokens = row["input_ids"][: int(row["length"][0])].astype(np.int64)
        if end and len(tokens) and tokens[-1] == self.ending[0]:
            tokens = tokens[:-1]
        if len(tokens) + end > room and self._longest_side(len(tokens)) + end > room:
            tokens = tokens[:-1]  # hardly anything is replaced, and the end has no place
        return tokens

    def _amounts(self, tokens: int) -> tuple[int, int]:
        """How many tokens are replaced, in how many stretches: as T5 counts them."""
        lost = min(max(round(tokens * self.density), 1), tokens - 1)
        return lost, min(max(round(lost / self.mean_length), 1), tokens - lost)

    def _longest_side(self, tokens: int) -> int:
        lost, spans = self._amounts(tokens)
        return max(tokens - lost, lost) + spans


def _composition(total: int, parts: int, rng: np.random.Generator) -> Ids:
    """Cut `total` into so many parts of at least 1, all ways alike."""
    cuts = np.sort(rng.choice(total - 1, parts - 1, replace=False)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def _sides(tokens: Ids, kept: Ids, lost: Ids, sentinels: Ids) -> tuple[list[int], list[int]]:
    """What the encoder reads and what the decoder writes; a row begins with what is kept, ends with what is not."""
    inputs: list[int] = []
    targets: list[int] = []
    place = 0
    for keep, lose, sentinel in zip(kept.tolist(), lost.tolist(), sentinels.tolist(), strict=False):
        inputs += [*tokens[place : place + keep].tolist(), sentinel]
        targets += [sentinel, *tokens[place + keep : place + keep + lose].tolist()]
        place += keep + lose
    return inputs, targets


def _put(column: npt.NDArray[np.integer], values: list[int], rest: int) -> None:
    column[: len(values)] = values
    column[len(values) :] = rest
