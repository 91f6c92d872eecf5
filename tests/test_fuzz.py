"""Readers of files that anybody may have written: mutated files are read, or refused with a reason; nothing else.

Each law is tried on some hundred cases, and by `make fuzz` on many thousands.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import tarfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from millstream.errors import MillstreamError, RecipeError
from millstream.parts import Part
from millstream.parts.part import DamagedPart, decode_part, encode_part
from millstream.records import Recipe
from mutations import mutated
from sources.samples import see, write

LINES = b"".join(json.dumps({"text": f"line {n} é", "id": n}).encode() + b"\n" for n in range(40))
TABLE = b"id,text\n" + b"".join(b'%d,"a ""quoted"" text\n%d"\n' % (n, n) for n in range(40))
RECIPE = '[[steps]]\nname = "length"\nmin_words = 5\n\n[[steps]]\nname = "exact_dedup"\n'
KNOWN = {"not JSON", "not an object", "no text in 'text'", "not UTF-8", "not Unicode", "truncated", "damaged"}
KNOWN |= {"expands too far", "too long", "open quote", "too many fields", "no header", "unsafe name"}
KNOWN |= {f"not UTF-{size}-{end}" for size, end in itertools.product((16, 32), ("LE", "BE"))}
FAILED = {"truncated", "damaged", "expands too far"}


def tar() -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name in ("a.txt", "b.jsonl", "c.json", f"{'deep/' * 40}d.txt"):
            member = tarfile.TarInfo(name)
            member.size = len(LINES)
            archive.addfile(member, io.BytesIO(LINES))
    return written.getvalue()


def parquet() -> bytes:
    written = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": [f"row {n}" for n in range(60)]}), written, row_group_size=20)
    return written.getvalue()


FILES = {
    "a.jsonl": LINES,
    "a.csv": TABLE,
    "a.tar": tar(),
    "a.jsonl.zst": zstandard.compress(LINES[:400]) + zstandard.compress(LINES[400:]),
    "a.csv.gz": gzip.compress(TABLE),
    "a.parquet": parquet(),
    "wide.jsonl": LINES.decode().encode("utf-16"),
}
PART = encode_part(Part(np.arange(90, dtype=np.uint16), np.arange(9, 91, 9), np.zeros((10, 3), np.int64), 10, 9, 9, 9))


@pytest.mark.parametrize("name", FILES)
@given(seed=st.integers(0, 2**63))
@examples(60)
def test_a_mutated_file_is_read_or_refused_the_same_for_every_size_of_chunks(
    name: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = write(tmp_path_factory.getbasetemp() / "fuzz" / name, mutated(FILES[name], seed))

    seen = see(file, again=False, chunk_bytes=100, max_expansion=50)
    whole = see(file, again=False, max_expansion=50)

    assert set(seen.reasons) <= KNOWN
    assert bool(seen.bad) == bool(whole.bad)
    if FAILED.isdisjoint(seen.reasons):  # how much is lost with a damaged frame or row group depends on the chunks
        assert (seen.texts, seen.reasons) == (whole.texts, whole.reasons)
    assert all(bad.found for bad in seen.bad)


@given(seed=st.integers(0, 2**63))
@examples(200)
def test_a_mutated_part_is_a_part_or_damaged(seed: int) -> None:
    with contextlib.suppress(DamagedPart):
        part = decode_part(mutated(PART, seed))
        assert len(part.ends) == len(part.origins) and (not len(part.ends) or part.ends[-1] == len(part.tokens))


@given(seed=st.integers(0, 2**63))
@examples(200)
def test_a_mutated_recipe_is_a_recipe_or_refused(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path: Path = tmp_path_factory.getbasetemp() / "recipe.toml"
    path.write_bytes(mutated(RECIPE.encode(), seed))

    with contextlib.suppress(RecipeError):
        assert_says_itself_again(Recipe.load(path))
    with contextlib.suppress(MillstreamError):
        assert_says_itself_again(Recipe.load(path.rename(path.with_suffix(".yaml"))))


def assert_says_itself_again(recipe: Recipe) -> None:
    again = Recipe.of(recipe.canonical())
    assert (again.canonical(), again.digest()) == (recipe.canonical(), recipe.digest())
