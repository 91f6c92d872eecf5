from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.records.dedup import DuplicateFinder as DuplicateFinder
    from millstream.records.dedup import Duplicates as Duplicates
    from millstream.records.processor import DataProcessor as DataProcessor
    from millstream.records.processor import Reject as Reject
    from millstream.records.processor import label_of as label_of
    from millstream.records.recipe import CleaningPipeline as CleaningPipeline
    from millstream.records.recipe import PipelineResult as PipelineResult
    from millstream.records.recipe import Recipe as Recipe
    from millstream.records.recipe import register_processor as register_processor

__all__ = [
    "CleaningPipeline",
    "DataProcessor",
    "DuplicateFinder",
    "Duplicates",
    "PipelineResult",
    "Recipe",
    "Reject",
    "label_of",
    "register_processor",
]
