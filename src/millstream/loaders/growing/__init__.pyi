from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.loaders.growing.background_prepare import BackgroundPrepare as BackgroundPrepare
    from millstream.loaders.growing.background_prepare import GrowingSource as GrowingSource
    from millstream.loaders.growing.background_prepare import GrowingStore as GrowingStore
    from millstream.loaders.growing.background_prepare import stream_of as stream_of
    from millstream.loaders.growing.raw_files import CuttingKeywords as CuttingKeywords
    from millstream.loaders.growing.raw_files import RawSettings as RawSettings
    from millstream.loaders.growing.raw_files import ReadingKeywords as ReadingKeywords
    from millstream.loaders.growing.raw_files import cached_store as cached_store
    from millstream.loaders.growing.raw_files import described as described
    from millstream.loaders.growing.raw_files import is_raw as is_raw
    from millstream.loaders.growing.raw_files import prepared_store as prepared_store
    from millstream.loaders.growing.stream import Stream as Stream
    from millstream.loaders.growing.stream_source import StreamSource as StreamSource

__all__ = [
    "BackgroundPrepare",
    "CuttingKeywords",
    "GrowingSource",
    "GrowingStore",
    "RawSettings",
    "ReadingKeywords",
    "Stream",
    "StreamSource",
    "cached_store",
    "described",
    "is_raw",
    "prepared_store",
    "stream_of",
]
