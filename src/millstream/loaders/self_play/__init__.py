"""A folder of self-play games -> batches, with a journal of what came and went: the loader and its run.

`loader.py` is what a trainer sees, `run.py` where a run stands, `task.py` the stages that go ahead of it, `files.py`
what it keeps on disk.
"""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "ahead": "Ahead",
        "explain": "RecordedSelfPlay",
        "loader": "SelfPlayDataLoader example_loader",
        "run": "SelfPlayRun",
        "task": "SelfPlayGraph",
    },
)
