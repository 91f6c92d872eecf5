"""A folder of self-play games -> batches, with a journal of what came and went: the loader and its run.

`loader.py` is what a trainer sees, `run.py` where a run stands, `task.py` the stages that go ahead of it, `files.py`
what it keeps on disk.
"""

from millstream.loaders.self_play.loader import SelfPlayDataLoader

__all__ = ["SelfPlayDataLoader"]
