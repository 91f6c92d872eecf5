"""Records -> records worth training on; what is dropped has a reason.

A recipe is a list of steps. `DataProcessor`s keep, change, split or reject records, block by block and mostly native.
Global steps then give the keys by which `DuplicateFinder` finds duplicates.
"""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "dedup": "DuplicateFinder Duplicates",
        "processor": "DataProcessor Reject label_of",
        "recipe": "CleaningPipeline PipelineResult Recipe register_processor",
    },
)
