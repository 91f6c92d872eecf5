"""Objectives: transforms that make other tasks of rows.

`mask_tokens`: some tokens of a row are hidden, and the model learns to say what they were. `corrupt_spans`, as T5 is
trained: stretches of a row are replaced by sentinels, and the decoder writes them. `fill_in_the_middle`: a document's
middle is moved after its end, so that a causal model learns to write it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from millstream.batches import NO_LOSS
from millstream.errors import LoaderError
from millstream.loaders.hooks import PerRow, Row
from millstream.tokens import Tokenizer, load_tokenizer, plain_tokenizer

MASKED, RANDOM = 0.8, 0.1
"""Shares of the chosen tokens that become the mask, or any token; the others stay, and are learned all the same."""
_MASKS = ("[MASK]", "<mask>", "<|mask|>")
_SPECIAL = (*_MASKS, "[CLS]", "[SEP]", "[PAD]", "[UNK]", "<s>", "</s>", "<pad>", "<unk>")
Table = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int64]
SENTINELS = 3


def mask_tokens(
    tokenizer: Any = None,
    *,
    mask_id: int | None = None,
    vocab_size: int | None = None,
    special_ids: Iterable[int] = (),
    rate: float = 0.15,
    whole_words: bool = False,
) -> PerRow:
    """Hide tokens as BERT does: of those chosen 80 % become the mask, 10 % any token, 10 % stay.

    `labels` are the chosen tokens themselves, at their own places, and -100 elsewhere, as models of Hugging Face for
    masked language modelling take them, whatever the loader's `labels=`.

    >>> row = {"input_ids": np.arange(10, 20), "labels": np.arange(11, 21), "length": np.array([8])}
    >>> hidden = mask_tokens(mask_id=3, vocab_size=50, special_ids=[0, 1, 2], rate=0.5)(row, np.random.default_rng(1))
    >>> hidden["input_ids"].tolist()
    [10, 11, 3, 13, 3, 3, 16, 3, 18, 19]
    >>> hidden["labels"].tolist()
    [-100, -100, 12, -100, 14, 15, -100, 17, -100, -100]

    Args:
        tokenizer: What `load_tokenizer` takes; says all that follows, where that is not given.
        mask_id: The token that hides another one.
        vocab_size: Ids that may stand in for a chosen token.
        special_ids: Ids that are never chosen and never stand in, beside the tokenizer's own special tokens.
        rate: The share of tokens, or of words, that are chosen.
        whole_words: Choose all tokens of a word, or none. A word begins where the tokenizer writes a space before it.
    """
    if not 0 < rate <= 1:
        raise LoaderError(f"rate must be a share of the tokens, not {rate!r}", hint="BERT takes 0.15")
    loaded = None if tokenizer is None else load_tokenizer(tokenizer)
    mask = _mask_id(loaded) if mask_id is None else mask_id
    size = vocab_size or (None if loaded is None else loaded.vocab_size)
    if mask is None or size is None or (whole_words and loaded is None):
        missing = "mask_id" if mask is None else "vocab_size" if size is None else "tokenizer"
        raise LoaderError(
            f"mask_tokens needs {missing}=" + (", and the tokenizer has no mask" if loaded is not None else ""),
            hint="pass a tokenizer that has '[MASK]' or '<mask>', or the ids themselves",
        )
    special = np.zeros(max(size, mask + 1), bool)
    own = () if loaded is None else [control.id for control in plain_tokenizer(loaded, _SPECIAL).controls]
    special[[id for id in (mask, *special_ids, *own) if id < len(special)]] = True
    starts = _word_starts(loaded, len(special)) if whole_words and loaded is not None else None
    return PerRow(_Masking(mask, special, starts, rate), relabels=True)


class _Masking:
    def __init__(self, mask: int, special: Table, word_starts: Table | None, rate: float) -> None:
        self._mask, self._special, self._word_starts, self._rate = mask, special, word_starts, rate
        self._ordinary = np.flatnonzero(~special)

    def __call__(self, row: Row, rng: np.random.Generator) -> Row:
        length = int(row["length"][0])
        tokens = row["input_ids"][:length].copy()
        if length and int(tokens.max()) >= len(self._special):
            raise LoaderError(
                f"a row holds the id {int(tokens.max())}, but the vocabulary ends at {len(self._special) - 1}",
                hint="pass the vocab_size or the tokenizer that the rows were made with",
            )
        special = self._special[tokens]
        wish = rng.random(length)
        if self._word_starts is not None:
            wish = wish[_first_of_word(self._word_starts[tokens], special)]
        chosen = (wish < self._rate) & ~special
        fate = rng.random(length)
        others = self._ordinary[rng.integers(0, len(self._ordinary), length)]
        inputs, labels = row["input_ids"][:length], row["labels"]
        labels[...] = NO_LOSS
        labels[:length][chosen] = tokens[chosen]
        inputs[chosen & (fate < MASKED)] = self._mask
        replaced = chosen & (fate >= MASKED) & (fate < MASKED + RANDOM)
        inputs[replaced] = others[replaced]
        return row


def _first_of_word(starts: Table, special: Table) -> npt.NDArray[np.int64]:
    """For each token, the place of the first one of its word; special tokens belong to no word."""
    begins = starts | special | np.roll(special, 1)
    begins[:1] = True
    return np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))


def _mask_id(tokenizer: Tokenizer | None) -> int | None:
    found = () if tokenizer is None else (tokenizer.token_id(name) for name in _MASKS)
    return next((id for id in found if id is not None), None)


def _word_starts(tokenizer: Tokenizer, size: int) -> Table:
    """Whether each token, written after a letter, begins with a space: of byte-level BPE, "▁" and "##" alike."""
    texts = [tokenizer.decode([id]) for id in range(tokenizer.vocab_size)]
    letter = next((id for id, text in enumerate(texts) if len(text.strip()) == 1 and text.strip().isalpha()), None)
    starts = np.zeros(size, bool)
    if letter is not None:
        before = len(texts[letter])
        after = [tokenizer.decode([letter, id])[before : before + 1] for id in range(len(texts))]
        starts[: len(texts)] = [text.isspace() for text in after]
    if not starts.any():
        raise LoaderError(
            f"{tokenizer.name} does not show where words begin", hint="leave out whole_words, or use another tokenizer"
        )
    return starts


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
    the loader's `labels=`. Rows keep their length: the encoder's side is padded, the decoder's is -100 after its end.

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
    """AdmittedBatch `total` into so many parts of at least 1, all ways alike."""
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


def fill_in_the_middle(
    prefix_id: int,
    suffix_id: int,
    middle_id: int,
    *,
    rate: float = 0.5,
    spm_rate: float = 0.5,
    end_id: int | None = None,
    labels: Literal["next", "same"] = "next",
) -> PerRow:
    """AdmittedBatch documents into prefix, middle and suffix at two random tokens, and put the middle last.

    As prefix-suffix-middle, `<prefix> P <suffix> S <middle> M`, or as suffix-prefix-middle,
    `<prefix> <suffix> S <middle> P M`. Every token is learned. A row keeps its length: the suffix gives up the room
    that the three sentinels take, and a document whose suffix is too short for that stays as it is.

    >>> row = {"input_ids": np.arange(10, 20), "labels": np.append(np.arange(11, 20), -100), "length": np.array([10])}
    >>> moved = fill_in_the_middle(1, 2, 3, rate=1.0, spm_rate=0.0)(row, np.random.default_rng(8))
    >>> moved["input_ids"].tolist()
    [1, 10, 2, 13, 14, 15, 16, 3, 11, 12]
    >>> moved["labels"].tolist()
    [10, 2, 13, 14, 15, 16, 3, 11, 12, -100]

    Args:
        prefix_id: The token in front of the prefix.
        suffix_id: The token in front of the suffix.
        middle_id: The token in front of the middle.
        rate: The share of documents that are cut; the others stay.
        spm_rate: The share of those that become suffix-prefix-middle.
        end_id: The token that ends a document: it stays last, and documents of a row are cut one by one. Without it,
            documents are those that `position_ids` keep apart, else a row is one document.
        labels: What the loader's `labels=` is.
    """
    for name, share in (("rate", rate), ("spm_rate", spm_rate)):
        if not 0 <= share <= 1:
            raise LoaderError(f"{name} must be a share between 0 and 1, not {share!r}", hint="0.5 is a common choice")
    if labels not in ("next", "same"):
        raise LoaderError(f"labels={labels!r} is unknown", hint="use 'next' or 'same', as the loader does")

    def move(row: Row, rng: np.random.Generator) -> Row:
        for start, stop in _segments(row):
            tokens = _sequence(row, start, stop, labels)
            for first, last in _documents(tokens, end_id):
                has_end = int(end_id is not None and tokens[last - 1] == end_id)
                body = tokens[first : last - has_end]
                body[...] = _moved(body, (prefix_id, suffix_id, middle_id), rate, spm_rate, rng)
            _put_parts(row, start, stop, tokens, labels)
        return row

    return PerRow(move, relabels=True)


def _moved(body: Ids, sentinels: tuple[int, int, int], rate: float, spm_rate: float, rng: np.random.Generator) -> Ids:
    """A document in its new order. All dice are thrown, whatever they show."""
    chosen, spm = rng.random() < rate, rng.random() < spm_rate
    first, second = sorted(rng.integers(0, len(body) + 1, 2).tolist())
    head, middle, tail = body[:first], body[first:second], body[second:]
    if not chosen or len(tail) < SENTINELS:
        return body
    tail = tail[:-SENTINELS]
    prefix, suffix, infix = ([sentinel] for sentinel in sentinels)
    parts = (prefix, suffix, tail, infix, head, middle) if spm else (prefix, head, suffix, tail, infix, middle)
    return np.concatenate([np.asarray(part, np.int64) for part in parts])


def _segments(row: Row) -> list[tuple[int, int]]:
    """The stretches of a row that see only themselves."""
    length = int(row["length"][0])
    if length == 0:
        return []
    starts = np.flatnonzero(row["position_ids"][:length] == 0).tolist() if "position_ids" in row else [0]
    return list(pairwise([*starts, length]))


def _sequence(row: Row, start: int, stop: int, labels: str) -> Ids:
    """The tokens of a segment, with the target after its end where it has one."""
    inputs, targets = row["input_ids"][start:stop].astype(np.int64), row["labels"][start:stop]
    shifted = labels == "next"
    learned, expected = (targets[:-1], inputs[1:]) if shifted else (targets[1:], inputs[1:])
    if not np.array_equal(learned, expected):
        raise LoaderError(
            f"fill_in_the_middle(labels={labels!r}) got a row whose labels are not its tokens, or not all of them",
            hint="pass the labels= of the loader, and rows in which every token is learned",
        )
    return np.append(inputs, targets[-1]) if shifted and targets[-1] != NO_LOSS else inputs


def _documents(tokens: Ids, end_id: int | None) -> list[tuple[int, int]]:
    ends = [] if end_id is None else (np.flatnonzero(tokens == end_id) + 1).tolist()
    bounds = [0, *ends, *([len(tokens)] if not ends or ends[-1] < len(tokens) else [])]
    return list(pairwise(bounds))


def _put_parts(row: Row, start: int, stop: int, tokens: Ids, labels: str) -> None:
    count = stop - start
    row["input_ids"][start:stop] = tokens[:count]
    if labels == "same":
        row["labels"][start + 1 : stop] = tokens[1:]
        if row["labels"][start] != NO_LOSS:
            row["labels"][start] = tokens[0]
    else:
        row["labels"][start:stop] = np.append(tokens[1:], NO_LOSS)[:count]
