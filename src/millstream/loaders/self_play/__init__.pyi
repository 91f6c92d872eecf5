from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.loaders.self_play.ahead import Ahead as Ahead
    from millstream.loaders.self_play.explain import RecordedSelfPlay as RecordedSelfPlay
    from millstream.loaders.self_play.loader import SelfPlayDataLoader as SelfPlayDataLoader
    from millstream.loaders.self_play.loader import example_loader as example_loader
    from millstream.loaders.self_play.run import SelfPlayRun as SelfPlayRun
    from millstream.loaders.self_play.task import SelfPlayGraph as SelfPlayGraph

__all__ = [
    "Ahead",
    "RecordedSelfPlay",
    "SelfPlayDataLoader",
    "SelfPlayGraph",
    "SelfPlayRun",
    "example_loader",
]
