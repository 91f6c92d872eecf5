"""Records -> batches of flat token arrays, on several threads, in the records' order, with bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millstream.errors import TokenizerError
from millstream.sources import Record
from millstream.tokens.tokenizer import Ids, Tokenizer

BATCH_CHARACTERS = 1 << 20
_BATCH_RECORDS = 4096


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """The tokens of some documents one after another, and the place at which each document ends."""

    tokens: Ids
    ends: NDArray[np.int64]


def encode_records(
    records: Iterable[Record], tokenizer: Tokenizer, *, eos_id: int | None = None, workers: int = 1
) -> Iterator[EncodedBatch]:
    """Encode documents; each ends with `eos_id` if there is one. The result does not depend on `workers`.

    >>> from millstream.tokens import CharTokenizer
    >>> records = [Record("ab", "a.txt", 0, 0, 2), Record("b", "a.txt", 1, 3, 4)]
    >>> batch, = encode_records(records, CharTokenizer("ab"), eos_id=2)
    >>> batch.tokens.tolist(), batch.ends.tolist()
    ([0, 1, 2, 1, 2], [3, 5])
    """
    batches = _batches(records)
    if workers <= 1:
        yield from (_encode(batch, tokenizer, eos_id) for batch in batches)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="millstream-encode")
    flying: deque[Future[EncodedBatch]] = deque()
    try:
        for batch in batches:
            flying.append(pool.submit(_encode, batch, tokenizer, eos_id))
            if len(flying) > workers:  # one more than can run: a worker that is done finds work at once
                yield flying.popleft().result()
        while flying:
            yield flying.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _encode(records: list[Record], tokenizer: Tokenizer, eos_id: int | None) -> EncodedBatch:
    try:
        arrays = tokenizer.encode_batch([record.text for record in records])
    except TokenizerError as error:
        raise _blame(records, tokenizer, error) from error
    tail = np.array([] if eos_id is None else [eos_id], dtype=np.uint32)
    lengths = np.array([len(array) + len(tail) for array in arrays], dtype=np.int64)
    tokens = np.concatenate([piece for array in arrays for piece in (array, tail)])
    return EncodedBatch(tokens, np.cumsum(lengths))


def _blame(records: list[Record], tokenizer: Tokenizer, error: TokenizerError) -> TokenizerError:
    """Find the record that cannot be encoded, so that the error can say where it is."""
    for record in records:
        try:
            tokenizer.encode(record.text)
        except TokenizerError as found:
            return TokenizerError(f"{record.where}: {found.message}", hint=found.hint)
    return error


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Cut into batches of about a million characters: enough for every core, little enough to hold."""
    batch: list[Record] = []
    characters = 0
    for record in records:
        batch.append(record)
        characters += len(record.text)
        if characters >= BATCH_CHARACTERS or len(batch) >= _BATCH_RECORDS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
