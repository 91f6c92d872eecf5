"""Self-play games as files hold them -> `FrameBlock`: their frames in columns -> tensors."""

from millstream.games.block import FrameBlock
from millstream.games.frame import FRAME, ORIGIN, PLANES, POLICY_SIZE, UNKNOWN_MOVE
from millstream.games.game import Game
from millstream.games.input_formats import InputFormat
from millstream.games.policy import POLICY_INDEX, POLICY_MOVES
from millstream.games.read import read_chunk, read_frames
from millstream.games.reservoir import Emitted, Reservoir
from millstream.games.tensors import FrameTensors, expand, fill_boards, fill_tensors

__all__ = [
    "FRAME",
    "ORIGIN",
    "PLANES",
    "POLICY_INDEX",
    "POLICY_MOVES",
    "POLICY_SIZE",
    "UNKNOWN_MOVE",
    "Emitted",
    "FrameBlock",
    "FrameTensors",
    "Game",
    "InputFormat",
    "Reservoir",
    "expand",
    "fill_boards",
    "fill_tensors",
    "read_chunk",
    "read_frames",
]
