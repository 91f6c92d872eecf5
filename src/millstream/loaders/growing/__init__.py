"""Raw files -> a store that grows while a model trains: prepared in the background, or made window by window."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "background_prepare": "BackgroundPrepare GrowingSource GrowingStore stream_of",
        "raw_files": "CuttingKeywords RawSettings ReadingKeywords cached_store described is_raw prepared_store",
        "stream": "Stream",
        "stream_source": "StreamSource",
    },
)
