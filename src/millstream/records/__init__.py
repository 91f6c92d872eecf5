"""Records -> records worth training on; what is dropped has a reason.

A recipe is a list of steps: `DataProcessor`s that keep, change, split or reject records, block by block and mostly
native, then global steps that give keys by which `DuplicateFinder` finds duplicates.
"""

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

for _ours in (
    Blocklist,
    C4Quality,
    Decontaminate,
    ExactDedup,
    FineWebQuality,
    GopherQuality,
    GopherRepetition,
    Language,
    Length,
    MaskPII,
    MinhashDedup,
    Normalize,
    Regex,
):
    register_processor(_ours)

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
