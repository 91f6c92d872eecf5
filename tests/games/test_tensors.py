"""Tensors hold what the format says, for every version and input format, alone and mixed."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as arrays

from games import reference
from games.chunks import KINDS, play
from millstream._core import Budget
from millstream.errors import BatchError
from millstream.games import FRAME, ORIGIN, FrameBlock, InputFormat, expand, fill_boards, fill_tensors
from millstream.games.codec import read_frames
from millstream.games.tensors import FrameTensors
from millstream.selfplay.chunk_feed import ReservoirMoves, Shuffled, TensorMaker

STARTS = (
    "",
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R b KQkq - 0 1",
    "8/P6k/8/3pP3/8/8/p6K/8 w - d6 0 2",
)


@cache
def chunk(version: int, layout: InputFormat) -> bytes:
    rng = random.Random(version)
    return b"".join(play(rng, version, layout, 25, fen)[0].tobytes() for fen in STARTS)


def assert_tensors(block: FrameBlock, wanted: list[reference.Frame]) -> None:
    made = FrameTensors.of(block)
    assert made.planes.tobytes() == np.array([reference.input_planes(frame) for frame in wanted]).tobytes()
    assert made.policy.tobytes() == np.array([frame["policy"] for frame in wanted]).tobytes()
    assert np.array_equal(made.values, np.array([reference.values(frame) for frame in wanted]), equal_nan=True)


@pytest.mark.parametrize(("version", "layout"), KINDS)
def test_tensors_of_every_kind_are_what_the_format_says(version: int, layout: InputFormat) -> None:
    raw = chunk(version, layout)
    assert_tensors(read_frames(raw), reference.decode(raw))


def everything() -> FrameBlock:
    return FrameBlock.concat([read_frames(chunk(*kind)) for kind in KINDS])


def test_frames_of_all_kinds_may_stand_in_one_batch() -> None:
    wanted = [frame for kind in KINDS for frame in reference.decode(chunk(*kind))]
    rows = np.random.default_rng(0).permutation(len(wanted))
    assert_tensors(everything().select(rows), [wanted[row] for row in rows])


def test_boards_expand_to_the_planes() -> None:
    block = everything()
    boards, rule50 = np.empty((len(block), 112), np.uint64), np.empty(len(block), np.float32)
    fill_boards(block, boards, rule50)
    assert expand(boards, rule50).tobytes() == FrameTensors.of(block).planes.tobytes()


def test_halves_are_the_nearest_to_the_whole_numbers() -> None:
    block = everything()
    whole, half = FrameTensors.of(block), FrameTensors.of(block, np.float16)
    assert half.planes.tobytes() == whole.planes.astype(np.float16).tobytes()
    assert half.policy.tobytes() == whole.policy.astype(np.float16).tobytes()
    assert np.array_equal(half.values, whole.values.astype(np.float16), equal_nan=True)


def of_policy(policy: np.typing.NDArray[np.float32]) -> FrameBlock:
    fields = np.zeros(1, FRAME)
    fields["input_format"] = 1
    moves = np.arange(len(policy), dtype=np.uint16)
    return FrameBlock(fields, np.array([len(policy)], np.uint32), moves, policy, np.zeros(1, ORIGIN))


@given(arrays.arrays(np.uint32, arrays.array_shapes(max_dims=1, max_side=1858)))
def test_every_float_has_the_half_that_numpy_gives_it(words: np.typing.NDArray[np.uint32]) -> None:
    policy = words.view(np.float32)
    with np.errstate(all="ignore"):
        wanted = np.where(np.isnan(policy), np.float16(-1), policy.astype(np.float16))
    found = FrameTensors.of(of_policy(policy), np.float16).policy[0, : len(policy)]
    assert np.array_equal(found, wanted)
    assert np.array_equal(np.signbit(found), np.signbit(wanted))


def test_halves_between_two_go_to_the_even_one() -> None:
    halves = np.arange(0x7BFF, dtype=np.uint16).view(np.float16).astype(np.float32)
    between = (halves[1:] + halves[:-1]) / 2
    for part in np.array_split(np.concatenate([between, np.nextafter(between, 9e9), np.nextafter(between, -9e9)]), 64):
        wanted = np.asarray(part, np.float16)
        assert FrameTensors.of(of_policy(part), np.float16).policy[0, : len(part)].tobytes() == wanted.tobytes()


@pytest.mark.parametrize("offset", [0, 4, 16, 32, 60])
def test_outputs_may_begin_anywhere(offset: int) -> None:
    block = read_frames(chunk(6, InputFormat.CLASSICAL))
    wanted = FrameTensors.of(block)
    rooms = [np.full(each.nbytes + 128, 7, np.uint8) for each in (wanted.planes, wanted.policy, wanted.values)]
    firsts = [-room.ctypes.data % 64 + offset for room in rooms]
    sizes = [each.nbytes for each in (wanted.planes, wanted.policy, wanted.values)]
    outs = [room[at : at + size].view(np.float32) for room, at, size in zip(rooms, firsts, sizes, strict=True)]
    fill_tensors(block, *outs)
    for room, at, size, each in zip(rooms, firsts, sizes, (wanted.planes, wanted.policy, wanted.values), strict=True):
        assert room[at : at + size].tobytes() == each.tobytes()
        assert (room[:at] == 7).all()
        assert (room[at + size :] == 7).all()


def test_outputs_that_do_not_fit_are_refused() -> None:
    block = read_frames(chunk(6, InputFormat.CLASSICAL))
    good = FrameTensors.empty(len(block))
    short = FrameTensors.empty(len(block) - 1)
    double = FrameTensors.empty(len(block), np.float64)
    for bad in (
        (short.planes, good.policy, good.values),
        (good.planes, short.policy, good.values),
        (good.planes, good.policy, short.values),
        (good.planes, good.policy, FrameTensors.empty(len(block), np.float16).values),
        (double.planes, double.policy, double.values),
        (good.planes, good.policy.T, good.values),
    ):
        with pytest.raises(BatchError):
            fill_tensors(block, *bad)
    with pytest.raises(BatchError):
        fill_boards(block, np.empty((1, 112), np.uint64), np.empty(len(block), np.float32))


def test_blocks_that_contradict_themselves_are_refused() -> None:
    block = of_policy(np.ones(3, np.float32))
    for change in (
        {"ends": np.array([4], np.uint32)},
        {"ends": np.array([2], np.uint32)},
        {"ends": np.array([1, 3], np.uint32)},
        {"moves": np.array([0, 1, 1858], np.uint16)},
        {"moves": np.array([0, 1], np.uint16)},
        {"fields": np.zeros(1, FRAME)},
    ):
        bad = FrameBlock(**{name: change.get(name, getattr(block, name)) for name in FrameBlock.__slots__})
        with pytest.raises(BatchError):
            FrameTensors.of(bad)


def test_an_entry_that_is_no_number_is_an_illegal_move() -> None:
    block = of_policy(np.array([0.25, np.nan, 0.75], np.float32))
    for dtype in (np.float32, np.float16):
        assert FrameTensors.of(block, dtype).policy[0, :4].tolist() == [0.25, -1, 0.75, -1]
    moves = ReservoirMoves(block.origins[:0], np.zeros(1, np.uint32), block.origins, None)
    boards = TensorMaker(1, 0, Budget(), lambda _: False, "boards").make([Shuffled(block, moves)])
    assert boards.policy[0, :4].tolist() == [0.25, -1, 0.75, -1]
