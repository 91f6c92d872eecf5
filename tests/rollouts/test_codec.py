"""Blocks as bytes: they come back as they were, without a copy, and whatever else is refused with a reason."""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laws import examples
from millstream import _core
from millstream.errors import RecordError
from millstream.rollouts import RolloutBlock, block_of, content_hash, decode, decode_all, encode, encode_parts
from millstream.rollouts.codec import FRAME_BYTES, encoded_size
from millstream.rollouts.parse import no_rollouts
from millstream.rollouts.record import rollout_at
from mutations import mutated
from rollouts.samples import random_rollouts
from rollouts.strategies import assert_same_rollout, records

GOLDEN = Path(__file__).parent / "golden"
SMALL = block_of(random_rollouts(groups=1, size=2, mean_length=3))
REASONS = {"cut off", "damaged", "not rollouts", "another version"}


@given(records())
@examples(40)
def test_what_is_read_is_what_was_written(made: list[dict[str, Any]]) -> None:
    block = block_of(made)
    again = decode(encode(block))
    assert content_hash(again).tolist() == content_hash(block).tolist()
    assert encode(again) == encode(block)
    for row, record in enumerate(made):
        assert_same_rollout(rollout_at(again, row), record)


@given(records())
@examples(40)
def test_blocks_are_encoded_as_the_one_that_they_are_together(made: list[dict[str, Any]]) -> None:
    block = block_of(made)
    alone = [block.select([row]) for row in range(len(block))]
    assert b"".join(encode_parts(*alone, block)) == encode(RolloutBlock.concat([*alone, block]))


def test_columns_are_views_of_the_bytes_and_cannot_be_written_to() -> None:
    data = bytearray(encode(SMALL))
    block = decode(data)
    held = np.frombuffer(data, np.uint8)
    for column in [block["reward"], block["token_ids"], block["sampling_logprobs"]]:
        assert np.shares_memory(column, held) and not column.flags.writeable
        assert column.ctypes.data % 64 == held.ctypes.data % 64


def test_versions_take_little_room() -> None:
    said = random_rollouts(groups=1, size=1, mean_length=5000, full=False)[0]
    plain, one = (len(encode(block_of([{**said, **more}]))) for more in ({}, {"policy_version": 3}))
    each = len(encode(block_of([{**said, "policy_version": np.arange(len(said["token_ids"]))}])))
    assert one - plain < 300 and each - plain > 4 * len(said["token_ids"])


def test_columns_that_were_added_are_carried() -> None:
    block = SMALL.with_columns(advantages=np.arange(len(SMALL["token_ids"]), dtype=np.float32), uses=np.array([1, 2]))
    again = decode(encode(block))
    assert again["advantages"].tolist() == block["advantages"].tolist() and again.rows["uses"].tolist() == [1, 2]


def test_a_block_without_rollouts_is_one() -> None:
    assert len(decode(encode(no_rollouts()))) == 0


def test_what_is_cut_anywhere_is_cut_off() -> None:
    data = encode(SMALL)
    for end in range(len(data)):
        with pytest.raises(RecordError) as caught:
            decode(data[:end])
        assert caught.value.reason == "cut off"
        assert encoded_size(data[:end]) == (None if end < FRAME_BYTES else len(data))
        found = decode_all(data + data[:end])
        assert (len(found.blocks), found.stop, found.torn is None) == (1, len(data), end == 0)


def test_every_changed_bit_is_noticed() -> None:
    data = encode(SMALL)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 8)
        with pytest.raises(RecordError) as caught:
            decode(changed)
        assert caught.value.reason in REASONS


@given(seed=st.integers(0, 2**63), whole=st.booleans())
@examples(200)
def test_mutated_bytes_are_refused_with_a_reason(seed: int, whole: bool) -> None:
    data = encode(SMALL)
    found = decode_all(mutated(data, seed) if whole else data + mutated(data, seed))
    assert len(found.blocks) >= (not whole)
    assert found.torn is None or found.torn.reason in REASONS


def resealed(head: Any, columns: bytes, total: int | None = None) -> bytes:
    """What a sender that knows the format could send: any head over any columns, with the right checksum for them."""
    written = head if isinstance(head, bytes) else json.dumps(head).encode()
    body = bytes(-(32 + len(written)) % 64) + columns
    frame = struct.pack("<8sIIQ", b"\x89MLSR\r\n\x1a", 1, len(written), total or 32 + len(written) + len(body))
    checksum = _core.xxh64(np.frombuffer(frame, np.uint8), 0)
    checksum = _core.xxh64(np.frombuffer(written, np.uint8), checksum)
    place = -(-(32 + len(written)) // 64) * 64
    data = frame + bytes(8) + written + body
    for _, _, dtype, shape in head["columns"] if isinstance(head, dict) else ():
        size = np.dtype(dtype).itemsize * int(np.prod(shape)) if place <= len(data) else 0
        checksum = _core.xxh64(np.frombuffer(data[place : place + size], np.uint8), checksum)
        place += -(-size // 64) * 64
    return frame + checksum.to_bytes(8, "little") + written + body


def opened() -> tuple[dict[str, Any], bytes]:
    data = encode(SMALL)
    size = struct.unpack_from("<I", data, 12)[0]
    return json.loads(data[32 : 32 + size]), data[-(-(32 + size) // 64) * 64 :]


def test_a_resealed_block_is_the_block() -> None:
    assert content_hash(decode(resealed(*opened()))).tolist() == content_hash(SMALL).tolist()


def lies() -> list[Any]:
    """Changes of a head that make it say what is not so."""
    changes: list[Any] = [
        lambda head: head.update(rollouts=3),
        lambda head: head.update(tokens=10**15),
        lambda head: head.update(columns={}),
        lambda head: head.pop("objects"),
        lambda head: head["objects"].pop("group_id"),
        lambda head: head["objects"].update(rollout_id=["a"]),
        lambda head: head["objects"].update(rollout_id=[None, 1.5]),
        lambda head: head["objects"].update(extra=[1, 2]),
        lambda head: head["objects"].update(reward=[1, 2]),
        lambda head: head["objects"].update(nothing=[1, 2]),
        lambda head: head["objects"].update(group_id="ab"),
    ]
    instead: dict[int, tuple[Any, ...]] = {
        0: ("row", "token", "x", []),
        1: ("reward", 7),
        2: ("<f8", "<u8", "|O", "|b1", "<u2", 3),
        3: ([], [-1], [1 << 62], [1 << 40, 0], [2, 1, 1, 1], [1.5], "ab", None, [True]),
    }
    for place in range(len(opened()[0]["columns"])):
        for spot, values in instead.items():
            changes += [lambda head, p=place, s=spot, v=value: head["columns"][p].__setitem__(s, v) for value in values]
        changes.append(lambda head, p=place: head["columns"].pop(p))
        changes.append(lambda head, p=place: head["columns"].append(head["columns"][p]))
    return changes


def test_a_head_that_lies_is_refused_with_little_memory() -> None:
    tracemalloc.start()
    for change in lies():
        head, columns = opened()
        before = json.dumps(head)
        change(head)
        if json.dumps(head) == before:
            continue
        try:
            data = resealed(head, columns)
        except (TypeError, ValueError, OverflowError, KeyError, AttributeError):
            data = resealed(json.dumps(head).encode(), columns)
        with pytest.raises(RecordError):
            decode(data)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("head", [b"", b"[" * 100_000, b"9" * 5000, b'"x"', b"{}", b"[]", b"\xff", b"null"])
def test_a_head_that_is_none_is_refused(head: bytes) -> None:
    with pytest.raises(RecordError):
        decode(resealed(head, b""))


def test_runs_that_only_add_up_by_overflow_are_refused() -> None:
    head, columns = opened()
    place = next(place for place, column in enumerate(head["columns"]) if column[1] == "policy_version.lengths")
    head["columns"][place][2] = "<u8"
    with pytest.raises(RecordError):
        decode(resealed(head, columns))


def test_columns_full_of_anything_are_refused_or_read() -> None:
    head, columns = opened()
    for seed in range(200):
        changed = bytearray(columns)
        chance = random.Random(seed)
        start = 64 * chance.randrange(len(columns) // 64)
        changed[start : start + 8] = chance.randbytes(8)
        try:
            block = decode(resealed(head, bytes(changed)))
        except RecordError:
            continue
        assert block.lengths.sum() == len(block["token_ids"]) and block.finish(1)


@pytest.mark.parametrize("name", ["full", "plain"])
def test_the_format_is_pinned(name: str) -> None:
    """A block that was written once stays readable, and is written as it was."""
    data = (GOLDEN / f"{name}.rollouts").read_bytes()
    assert encode(decode(data)) == data == encode(golden(name))


def golden(name: str) -> RolloutBlock:
    said = {"group_id": "g", "reward": 0.5, "finish": "stop"}
    records: list[dict[str, Any]] = [
        {"rollout_id": "a", **said, "token_ids": [5, 6, 7], "loss_mask": [0, 1, 1]},
        {"rollout_id": 7, **said, "token_ids": [8, 9], "loss_mask": [0, 1], "finish": "length"},
    ]
    if name == "full":
        for record in records:
            length = len(record["token_ids"])
            record |= {
                column: [-0.5] * length for column in ("sampling_logprobs", "ref_logprobs", "values", "token_rewards")
            }
            record |= {
                "policy_version": 3,
                "done": [0] * length,
                "routed_experts": np.full((length, 1, 2), 9, np.uint8),
            }
            record |= {"kept_ids": [1, 2], "kept_offsets": [0, 2, *[2] * (length - 1)], "rewards": {"style": 0.25}}
            record |= {"prompt_len": 1, "weight": 2.0, "extra": {"env": "é"}, "kind": "baseline", "temperature": 0.5}
    return block_of(records)
