"""Encoding in bulk: the same tokens for any number of workers, and an error names its record."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from millstream.errors import TokenizerError
from millstream.sources import Record
from millstream.tokens import BPETokenizer, CharTokenizer, encode_records


def records(texts: list[str]) -> Iterator[Record]:
    return (Record(text, "a.txt", row, 0, 0) for row, text in enumerate(texts))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_tokens_do_not_depend_on_the_number_of_workers(workers: int, bpe: BPETokenizer) -> None:
    texts = [f"the mill {place} " * (place % 3_000) for place in range(0, 60_000, 997)]

    batches = list(encode_records(records(texts), bpe, eos_id=0, workers=workers))

    flat = np.concatenate([batch.tokens for batch in batches])
    assert len(batches) > 1
    assert flat.tolist() == [id for text in texts for id in [*bpe.encode(text), 0]]
    assert sum(len(batch.ends) for batch in batches) == len(texts)
    assert all(batch.ends[-1] == len(batch.tokens) for batch in batches)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_text_that_cannot_be_encoded_is_named(workers: int) -> None:
    with pytest.raises(TokenizerError, match=r"^a.txt:3: cannot be encoded: character '!'"):
        list(encode_records(records(["a", "b", "a!", "b"]), CharTokenizer("ab"), workers=workers))


def test_at_most_a_few_batches_are_read_ahead() -> None:
    read = 0

    def endless() -> Iterator[Record]:
        nonlocal read
        while True:
            read += 1
            yield Record("ab" * 600_000, "a.txt", read, 0, 0)

    stream = encode_records(endless(), CharTokenizer("ab"), workers=2)
    next(stream)
    stream.close()  # type: ignore[attr-defined]

    assert read <= 4


def test_no_records_give_no_batches() -> None:
    assert list(encode_records(records([]), CharTokenizer("ab"))) == []
