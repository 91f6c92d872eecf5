"""Records -> records worth training on; what is dropped has a reason.

A recipe is a list of steps: `DataProcessor`s that keep, change, split or reject records, block by block and mostly
native, then global steps that give keys by which `DuplicateFinder` finds duplicates.
"""

from typing import TYPE_CHECKING

from millstream.lazy import lazy

if TYPE_CHECKING:
    from millstream.records.dedup import ExactDedup, MinhashDedup
    from millstream.records.duplicates import DuplicateFinder, Duplicates
    from millstream.records.language import Language
    from millstream.records.length import Length
    from millstream.records.normalize import Normalize
    from millstream.records.patterns import Regex
    from millstream.records.phrases import Blocklist, Decontaminate, fold
    from millstream.records.pii import MaskPII
    from millstream.records.pipeline import Pipeline, PipelineResult, Rejected
    from millstream.records.processor import (
        BlockProcessor,
        DataProcessor,
        FunctionProcessor,
        GlobalStep,
        ProcessedBlock,
        Reject,
    )
    from millstream.records.quality import C4Quality, FineWebQuality, GopherQuality, GopherRepetition, words
    from millstream.records.recipe import Recipe
    from millstream.records.registry import known_processors, make_processor, register_processor
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "dedup": "ExactDedup MinhashDedup",
            "duplicates": "DuplicateFinder Duplicates",
            "language": "Language",
            "length": "Length",
            "normalize": "Normalize",
            "patterns": "Regex",
            "phrases": "Blocklist Decontaminate fold",
            "pii": "MaskPII",
            "pipeline": "Pipeline PipelineResult Rejected",
            "processor": "BlockProcessor DataProcessor FunctionProcessor GlobalStep ProcessedBlock Reject",
            "quality": "C4Quality FineWebQuality GopherQuality GopherRepetition words",
            "recipe": "Recipe",
            "registry": "known_processors make_processor register_processor",
        },
    )

__all__ = [
    "BlockProcessor",
    "Blocklist",
    "C4Quality",
    "DataProcessor",
    "Decontaminate",
    "DuplicateFinder",
    "Duplicates",
    "ExactDedup",
    "FineWebQuality",
    "FunctionProcessor",
    "GlobalStep",
    "GopherQuality",
    "GopherRepetition",
    "Language",
    "Length",
    "MaskPII",
    "MinhashDedup",
    "Normalize",
    "Pipeline",
    "PipelineResult",
    "ProcessedBlock",
    "Recipe",
    "Regex",
    "Reject",
    "Rejected",
    "fold",
    "known_processors",
    "make_processor",
    "register_processor",
    "words",
]
