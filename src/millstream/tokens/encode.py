"""Records -> batches of flat token arrays, on several threads, in the records' order, with bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millstream.errors import TokenizerError
from millstream.sources import Record, Rejects
from millstream.tokens.tokenizer import Ids, Tokenizer

BATCH_CHARACTERS = 1 << 20
_BATCH_RECORDS = 4096


CANNOT = "cannot be encoded"


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """The tokens of some documents one after another, and the place at which each document ends.

    `failed` are the records that the tokenizer could not encode, and why.
    """

    tokens: Ids
    ends: NDArray[np.int64]
    failed: tuple[tuple[Record, TokenizerError], ...] = ()


def encode_records(
    records: Iterable[Record],
    tokenizer: Tokenizer,
    *,
    eos_id: int | None = None,
    workers: int = 1,
    rejects: Rejects | None = None,
) -> Iterator[EncodedBatch]:
    """Encode documents; each ends with `eos_id` if there is one. The result does not depend on `workers`.

    What cannot be encoded goes to `rejects`, by default an error.

    >>> from millstream.tokens import CharTokenizer
    >>> records = [Record("ab", "a.txt", 0, 0, 2), Record("b", "a.txt", 1, 3, 4)]
    >>> batch, = encode_records(records, CharTokenizer("ab"), eos_id=2)
    >>> batch.tokens.tolist(), batch.ends.tolist()
    ([0, 1, 2, 1, 2], [3, 5])
    """
    rejects = Rejects() if rejects is None else rejects
    for batch in _encoded(_batches(records), tokenizer, eos_id, workers):
        for record, error in batch.failed:
            rejects.reject(
                CANNOT,
                record.file,
                row=record.row,
                found=error.message,
                hint=error.hint,
                span=(record.start, record.stop),
                raw=record.text.encode("utf-8", "surrogatepass"),
                error=TokenizerError,
            )
        yield batch


def _encoded(
    batches: Iterator[list[Record]], tokenizer: Tokenizer, eos_id: int | None, workers: int
) -> Iterator[EncodedBatch]:
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
    failed: list[tuple[Record, TokenizerError]] = []
    try:
        arrays = tokenizer.encode_batch([record.text for record in records])
    except TokenizerError:
        arrays = list(_one_by_one(records, tokenizer, failed))
    tail = np.array([] if eos_id is None else [eos_id], dtype=np.uint32)
    lengths = np.array([len(array) + len(tail) for array in arrays], dtype=np.int64)
    pieces = [piece for array in arrays for piece in (array, tail)]
    tokens = np.concatenate(pieces) if pieces else np.empty(0, np.uint32)
    return EncodedBatch(tokens, np.cumsum(lengths), tuple(failed))


def _one_by_one(
    records: list[Record], tokenizer: Tokenizer, failed: list[tuple[Record, TokenizerError]]
) -> Iterator[Ids]:
    """Encode what can be encoded of a batch that failed as a whole."""
    for record in records:
        try:
            yield from tokenizer.encode_batch([record.text])
        except TokenizerError as error:
            failed.append((record, error))


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
