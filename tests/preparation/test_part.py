"""Parts: what was written down reads back equal; what was damaged is no part."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.preparation import Part
from millstream.preparation.part import DamagedPart, PartCache, RejectedRecord, decode_part, encode_part
from millstream.sources import BadRecord


@st.composite
def parts(draw: st.DrawFn) -> Part:
    lengths = draw(st.lists(st.integers(0, 50), max_size=20))
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    dtype = draw(st.sampled_from([np.uint16, np.uint32, np.int32]))
    text = st.text(max_size=20)
    count = st.integers(0, 2**40)
    return Part(
        tokens=chance.integers(0, 2**15, sum(lengths)).astype(dtype),
        ends=np.cumsum(lengths, dtype=np.int64),
        origins=chance.integers(-1, 2**50, (len(lengths), 3)),
        rows=draw(count),
        source_bytes=draw(count),
        source_stop=draw(count),
        text_bytes=draw(count),
        bad=draw(
            st.lists(st.builds(BadRecord, text, count, count, count, text, st.none() | text, st.none() | st.binary()))
        ),
        skipped=draw(st.dictionaries(text, count)),
        rejected=draw(st.lists(st.builds(RejectedRecord, text, count, count, count, text))),
        reasons=draw(st.dictionaries(text, count)),
        changed=draw(st.dictionaries(text, count)),
        keys=[chance.integers(0, 2**63, (len(lengths), 3)).astype(np.uint64)],
    )


def same(one: object, other: object) -> bool:
    if dataclasses.is_dataclass(one):
        return type(one) is type(other) and all(
            same(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one)
        )
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return one == other


@given(parts(), st.sampled_from([None, 1, 5]))
def test_a_part_reads_back_as_it_was(part: Part, level: int | None) -> None:
    assert same(decode_part(encode_part(part, level)), part)


@given(parts(), st.data())
def test_a_cut_or_changed_part_is_refused_and_never_crashes(part: Part, data: st.DataObject) -> None:
    whole = encode_part(part)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(DamagedPart):
        decode_part(whole[:cut])

    changed = bytearray(whole)
    changed[cut] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(DamagedPart):
        decode_part(bytes(changed))


def test_a_damaged_file_of_the_cache_counts_as_absent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = PartCache(tmp_path)
    part = Part(np.array([1], np.uint16), np.array([1]), np.zeros((1, 3), np.int64), 1, 1, 1, 1)
    cache.put("a" * 32, part)
    assert same(cache.get("a" * 32), part)

    (file,) = tmp_path.rglob("*.part")
    file.write_bytes(file.read_bytes()[:-1])

    assert cache.get("a" * 32) is None
    assert not file.exists()
    assert "it is made again" in caplog.text


def test_pruning_removes_what_was_not_used_for_longest(tmp_path: Path) -> None:
    cache = PartCache(tmp_path)
    part = Part(np.zeros(0, np.uint16), np.zeros(0, np.int64), np.zeros((0, 3), np.int64), 0, 0, 0, 0)
    keys = [f"{number:032x}" for number in range(10)]
    for key in keys:
        cache.put(key, part)
    size = next(tmp_path.rglob("*.part")).stat().st_size
    for place, key in enumerate(random.Random(0).sample(keys, 10)):
        os.utime(tmp_path / key[:2] / f"{key}.part", (place, place))
    used = random.Random(0).sample(keys, 10)

    cache.prune(3 * size)

    assert [key for key in used if cache.get(key) is not None] == used[-3:]
