"""Self-play games as files hold them -> `FrameBlock`: their frames in columns."""

from millstream.games.block import FrameBlock
from millstream.games.frame import FRAME, ORIGIN, PLANES, POLICY_SIZE, UNKNOWN_MOVE
from millstream.games.game import Game

__all__ = ["FRAME", "ORIGIN", "PLANES", "POLICY_SIZE", "UNKNOWN_MOVE", "FrameBlock", "Game"]
