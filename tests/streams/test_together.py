"""Parts that are made together are those that are made alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from millstream import BudgetError, CharTokenizer, TokenizerError
from millstream.parts import Job, make_part, make_parts
from millstream.records import Recipe
from millstream.sources import Chunk, FoundFile, Reading, discover, format_named
from millstream.streams import KeptInMemory, PartMaker, Units
from millstream.tokens import smallest_dtype

TOKENIZER = CharTokenizer.train(["0123456789 abcdefghijklmnopqrstuvwxyz"])
READING = Reading(chunk_bytes=400)


def job(eos: int | None) -> Job:
    return Job(READING, Recipe.of(None), TOKENIZER, eos, smallest_dtype(TOKENIZER))


def lines(path: Path, texts: list[str]) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def chunks_of(folder: Path) -> list[tuple[FoundFile, Chunk]]:
    return [(file, chunk) for file in discover(folder).files for chunk in format_named("jsonl").chunks(file, READING)]


@pytest.mark.parametrize("eos", [None, TOKENIZER.eos_id])
@pytest.mark.parametrize("odd", ["", "é"])
def test_parts_that_are_encoded_at_once_are_those_of_each_chunk(tmp_path: Path, eos: int | None, odd: str) -> None:
    """Also if a document cannot be encoded, and if a chunk holds none."""
    lines(tmp_path / "a.jsonl", [f"text {number}" for number in range(60)])
    lines(tmp_path / "b.jsonl", ["", ""])
    lines(tmp_path / "c.jsonl", ["one", f"two{odd}", "three"])
    chunks = chunks_of(tmp_path)
    assert len(chunks) > 4
    for made, alone in zip(make_parts(job(eos), chunks), [make_part(job(eos), *each) for each in chunks], strict=True):
        assert made.tokens.tolist() == alone.tokens.tolist() and made.tokens.dtype == alone.tokens.dtype
        assert made.ends.tolist() == alone.ends.tolist()
        assert np.array_equal(made.origins, alone.origins)
        assert (made.bad, made.skipped, made.changed) == (alone.bad, alone.skipped, alone.changed)


def test_a_unit_that_cannot_be_made_leaves_those_that_were_made_with_it(tmp_path: Path) -> None:
    for number in range(8):
        lines(tmp_path / f"{number}.jsonl", ["x" * 350 if number != 3 else "é" * 50])
    units = Units(discover(tmp_path).files, READING)
    maker = PartMaker(units, job(None), KeptInMemory(), threads=1, together=8)
    maker.want(range(units.count))
    bad = next(unit for unit in range(units.count) if any(slot.file == 3 for slot in units.slots(unit)))
    for unit in range(units.count):
        if unit == bad:
            with pytest.raises(TokenizerError, match="cannot be encoded"):
                maker.wait(unit)
        else:
            assert maker.wait(unit).documents > 0
    maker.close()


def test_windows_ahead_give_way_where_there_is_no_room_for_them(tmp_path: Path) -> None:
    """What is made ahead may take the room of what is needed next; then it is dropped and made again."""
    for number in range(16):
        lines(tmp_path / f"{number:02d}.jsonl", ["x" * 350])
    units = Units(discover(tmp_path).files, READING)
    kept = KeptInMemory()
    maker = PartMaker(units, job(None), kept, threads=1)
    maker.want(range(12))
    size = max(maker.wait(unit).bytes for unit in range(12))
    kept.budget = 12 * size
    maker.want(range(16))
    with pytest.raises(BudgetError):
        maker.wait(12)
    kept.keep(set(range(8, 12)), ())
    maker.want(range(8, 16))
    assert all(maker.wait(unit).documents for unit in range(8, 16))
    maker.close()
