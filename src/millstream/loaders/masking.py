"""Masked language models: some tokens of a row are hidden, and the model learns to say what they were."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.batches import NO_LOSS
from millstream.errors import LoaderError
from millstream.loaders.transforms import PerRow, Row
from millstream.tokens import Tokenizer, load_tokenizer, plain_tokenizer

MASKED, RANDOM = 0.8, 0.1
"""Shares of the chosen tokens that become the mask, or any token; the others stay, and are learned all the same."""
_MASKS = ("[MASK]", "<mask>", "<|mask|>")
_SPECIAL = (*_MASKS, "[CLS]", "[SEP]", "[PAD]", "[UNK]", "<s>", "</s>", "<pad>", "<unk>")
Table = npt.NDArray[np.bool_]


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
    """Whether each token, written behind a letter, begins with a space: of byte-level BPE, "▁" and "##" alike."""
    texts = [tokenizer.decode([id]) for id in range(tokenizer.vocab_size)]
    letter = next((id for id, text in enumerate(texts) if len(text.strip()) == 1 and text.strip().isalpha()), None)
    starts = np.zeros(size, bool)
    if letter is not None:
        before = len(texts[letter])
        behind = [tokenizer.decode([letter, id])[before : before + 1] for id in range(len(texts))]
        starts[: len(texts)] = [text.isspace() for text in behind]
    if not starts.any():
        raise LoaderError(
            f"{tokenizer.name} does not show where words begin", hint="leave out whole_words, or use another tokenizer"
        )
    return starts
