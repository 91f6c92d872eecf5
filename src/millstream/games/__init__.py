"""Self-play games as files hold them -> `FrameBlock`: their frames in columns."""

from millstream.games.block import FrameBlock
from millstream.games.frame import FRAME, ORIGIN, PLANES, POLICY_SIZE, UNKNOWN_MOVE
from millstream.games.game import Game
from millstream.games.input_formats import InputFormat
from millstream.games.policy import POLICY_INDEX, POLICY_MOVES

__all__ = [
    "FRAME",
    "ORIGIN",
    "PLANES",
    "POLICY_INDEX",
    "POLICY_MOVES",
    "POLICY_SIZE",
    "UNKNOWN_MOVE",
    "FrameBlock",
    "Game",
    "InputFormat",
]
