"""Frames and tensors read field by field, as the description of the format says it: slow, and with nothing of ours."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

_CODES = {
    3: "<I7432s832s7Bb",
    4: "<I7432s832s7Bb4f",
    5: "<II7432s832s7Bb7f",
    6: "<II7432s832s7Bb15fI2H2f",
    7: "<II7432s832s7Bb15fI2H2ff2H8f",
}
_BYTES = ["us_ooo", "us_oo", "them_ooo", "them_oo", "side", "rule50", "info", "result"]
_FLOATS = ["root_q", "best_q", "root_d", "best_d", "root_m", "best_m", "plies_left", "result_q", "result_d"]
_FLOATS += ["played_q", "played_d", "played_m", "orig_q", "orig_d", "orig_m", "visits", "played_idx", "best_idx"]
_FLOATS += ["policy_kld", "q_st", "d_st", "opp_played_idx", "next_played_idx"]

Frame = dict[str, Any]
Floats = npt.NDArray[np.float32]


def decode(raw: bytes) -> list[Frame]:
    """Every frame of a chunk, with what its version does not say filled in."""
    code = struct.Struct(_CODES[int.from_bytes(raw[:4], "little")])
    frames = [_decode(code.unpack(raw[at : at + code.size])) for at in range(0, len(raw), code.size)]
    for place, frame in enumerate(frames):
        if frame["version"] < 5:
            frame["plies_left"] = float(len(frames) - place)
    return frames


def _decode(values: tuple[Any, ...]) -> Frame:
    version, *rest = values
    layout = rest.pop(0) if version >= 5 else 1
    policy, planes = np.frombuffer(rest.pop(0), "<f4"), rest.pop(0)
    frame: Frame = {"version": version, "input_format": layout, "policy": policy, "planes": planes}
    frame |= dict.fromkeys(_FLOATS, 0) | {"opp_played_idx": 65535, "next_played_idx": 65535}
    frame |= dict(zip(_BYTES, rest, strict=False)) | dict(zip(_FLOATS, rest[8:], strict=False))
    if version < 6:
        frame |= {"result_q": frame["result"], "result_d": frame["result"] == 0, "result": 0}
        frame |= {"orig_q": math.nan, "orig_d": math.nan, "orig_m": math.nan}
    if version < 5:
        frame["info"] = 0
    frame["reserved"] = rest[31:] if version == 7 else [0] * 8
    return frame


def _row(byte: int) -> list[int]:
    return [byte >> file & 1 for file in range(8)]


def input_planes(frame: Frame) -> Floats:
    """What the network sees: 112 planes of 8 ranks of 8 files."""
    layout = frame["input_format"]
    out = np.zeros((112, 8, 8), np.float32)
    out[:104] = np.unpackbits(np.frombuffer(frame["planes"], np.uint8)).reshape(104, 8, 8)
    if layout == 1:
        for plane, name in enumerate(_BYTES[:4], 104):
            out[plane] = frame[name]
    else:
        out[104, 0], out[104, 7] = _row(frame["us_ooo"]), _row(frame["them_ooo"])
        out[105, 0], out[105, 7] = _row(frame["us_oo"]), _row(frame["them_oo"])
    if layout < 3:
        out[108] = frame["side"]
    else:
        out[108, 7] = _row(frame["side"])
    out[109] = np.float32(frame["rule50"]) / np.float32(99 if layout <= 3 else 100)
    out[110] = layout in (132, 133) and frame["info"] >= 128
    out[111] = 1
    return out


def values(frame: Frame) -> Floats:
    """Result, best, played, original and root value, and that of the short term: (q, d, moves left) each."""
    rows = [[frame["result_q"], frame["result_d"], frame["plies_left"]]]
    rows += [[frame[f"{which}_{letter}"] for letter in "qdm"] for which in ("best", "played", "orig", "root")]
    return np.array([*rows, [frame["q_st"], frame["d_st"], math.nan]], np.float32)
