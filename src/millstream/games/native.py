"""What the native side raises when a frame is damaged, as other folders see it."""

from millstream._core import FrameError

__all__ = ["FrameError"]
