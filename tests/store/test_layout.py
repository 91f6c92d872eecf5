from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import StoreError
from millstream.store import Row, rows_of
from millstream.store.layout import check_rows, encode_table, fingerprint, load_table, total

GOOD = rows_of([Row(5, 2, tag=9, bound=3, file=0), Row(0, 1, tag=7, bound=0, file=2), Row(7, 1, 8, 4, file=3)])


@given(st.lists(st.tuples(st.integers(1, 1 << 40), st.integers(1, 1 << 40)), max_size=20))
def test_a_table_comes_back_as_it_was_written(shards: list[tuple[int, int]]) -> None:
    rows = rows_of(Row(tokens, documents, 1, 1, file) for file, (tokens, documents) in enumerate(shards))

    check_rows(Path("x.tab"), rows, "uint16")
    assert total(rows, 1) == sum(tokens for tokens, _ in shards)
    assert encode_table(rows)[64:] == rows.tobytes()


@pytest.mark.parametrize(
    ("row", "column", "value", "words"),
    [
        (2, 0, 6, "row 2 .* does not start where"),
        (1, 2, 0, "row 1 .* count of documents"),
        (0, 1, 1 << 63, "impossible number of tokens"),
        (0, 3, 1 << 63, "impossible number of documents"),
        (0, 5, 65537, "row 0 .* do not fit uint16"),
        (0, 5, 0, "no largest id"),
        (1, 7, 1, "not 0"),
        (2, 6, 2, "row 2 .* does not rise"),
        (2, 6, 1, "row 2 .* does not rise"),
    ],
)
def test_a_row_that_lies_is_named(row: int, column: int, value: int, words: str) -> None:
    rows = GOOD.copy()
    rows[row, column] = value

    with pytest.raises(StoreError, match=words):
        check_rows(Path("x.tab"), rows, "uint16")


def test_a_shard_without_documents_is_refused() -> None:
    with pytest.raises(StoreError, match="no documents"):
        check_rows(Path("x.tab"), rows_of([Row(0, 0, 1, 0, 0)]), "uint16")


def test_a_changed_row_breaks_the_tag(tmp_path: Path) -> None:
    data = bytearray(encode_table(GOOD))
    data[64 + 4 * 8] ^= 1
    (tmp_path / "x.tab").write_bytes(data)

    with pytest.raises(StoreError, match="tag fails"):
        load_table(tmp_path / "x.tab", "uint16")


def test_the_fingerprint_depends_on_rows_and_dtype() -> None:
    names = {fingerprint("uint16", GOOD), fingerprint("uint32", GOOD), fingerprint("uint16", GOOD[:2])}

    assert len(names) == 3
    assert np.array_equal(rows_of([], after=GOOD), GOOD)
