"""Texts -> batches of flat token arrays, on several threads, in the texts' order, with bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millstream.tokens.tokenizer import Ids, Tokenizer

BATCH_CHARACTERS = 1 << 20
_BATCH_TEXTS = 4096


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """The tokens of some documents one after another, and the place at which each document ends."""

    tokens: Ids
    ends: NDArray[np.int64]


def encode_texts(
    texts: Iterable[str], tokenizer: Tokenizer, *, eos_id: int | None = None, workers: int = 1
) -> Iterator[EncodedBatch]:
    """Encode documents; each ends with `eos_id` if there is one. The result does not depend on `workers`.

    >>> from millstream.tokens import CharTokenizer
    >>> batch, = encode_texts(["ab", "b"], CharTokenizer("ab"), eos_id=2)
    >>> batch.tokens.tolist(), batch.ends.tolist()
    ([0, 1, 2, 1, 2], [3, 5])
    """
    batches = _batches(texts)
    if workers <= 1:
        yield from (encode_batch(batch, tokenizer, eos_id) for batch in batches)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="millstream-encode")
    flying: deque[Future[EncodedBatch]] = deque()
    try:
        for batch in batches:
            flying.append(pool.submit(encode_batch, batch, tokenizer, eos_id))
            if len(flying) > workers:  # one more than can run: a worker that is done finds work at once
                yield flying.popleft().result()
        while flying:
            yield flying.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def encode_batch(texts: list[str], tokenizer: Tokenizer, eos_id: int | None) -> EncodedBatch:
    """Encode some documents into one flat array.

    >>> from millstream.tokens import CharTokenizer
    >>> encode_batch(["ab", ""], CharTokenizer("ab"), None).ends.tolist()
    [2, 2]
    """
    arrays = tokenizer.encode_batch(texts)
    tail = np.array([] if eos_id is None else [eos_id], dtype=np.uint32)
    pieces = [piece for array in arrays for piece in (array, tail)]
    lengths = np.fromiter((len(array) + len(tail) for array in arrays), dtype=np.int64, count=len(arrays))
    tokens = np.concatenate(pieces) if pieces else tail[:0]
    return EncodedBatch(tokens, np.cumsum(lengths))


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Cut into batches of about a million characters: enough for every core, little enough to hold."""
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if characters >= BATCH_CHARACTERS or len(batch) >= _BATCH_TEXTS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
