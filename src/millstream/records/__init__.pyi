from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.records.duplicates import DuplicateFinder as DuplicateFinder
    from millstream.records.duplicates import Duplicates as Duplicates
    from millstream.records.pipeline import Pipeline as Pipeline
    from millstream.records.pipeline import PipelineResult as PipelineResult
    from millstream.records.processor import DataProcessor as DataProcessor
    from millstream.records.processor import Reject as Reject
    from millstream.records.processor import label_of as label_of
    from millstream.records.recipe import Recipe as Recipe
    from millstream.records.registry import register_processor as register_processor

__all__ = [
    "DataProcessor",
    "DuplicateFinder",
    "Duplicates",
    "Pipeline",
    "PipelineResult",
    "Recipe",
    "Reject",
    "label_of",
    "register_processor",
]
