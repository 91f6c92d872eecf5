from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.parts.mixing import Mixing as Mixing
    from millstream.parts.part import Part as Part
    from millstream.parts.policy import BadRecords as BadRecords
    from millstream.parts.policy import KeptAside as KeptAside
    from millstream.parts.policy import OnBad as OnBad
    from millstream.parts.policy import check_on_bad as check_on_bad
    from millstream.parts.prepare import Making as Making
    from millstream.parts.prepare import Means as Means
    from millstream.parts.prepare import prepare_store as prepare_store
    from millstream.parts.process import MEMORY_PER_CHUNK as MEMORY_PER_CHUNK
    from millstream.parts.process import Job as Job
    from millstream.parts.process import make_part as make_part
    from millstream.parts.process import make_parts as make_parts
    from millstream.parts.raw import RawRecord as RawRecord
    from millstream.parts.raw import ReadRecord as ReadRecord
    from millstream.parts.raw import origin_of as origin_of
    from millstream.parts.raw import raw_record as raw_record
    from millstream.parts.raw import reader_of_files as reader_of_files
    from millstream.parts.raw import reader_of_store as reader_of_store
    from millstream.parts.ray import RayCluster as RayCluster
    from millstream.parts.report import read_report as read_report
    from millstream.parts.report import report_of as report_of
    from millstream.parts.report import report_path as report_path
    from millstream.parts.report import reporting as reporting
    from millstream.parts.run import Make as Make
    from millstream.parts.summary import Ranked as Ranked
    from millstream.parts.summary import duplicates_by_step as duplicates_by_step
    from millstream.parts.summary import examples_of as examples_of
    from millstream.parts.summary import fates_of_records as fates_of_records
    from millstream.parts.summary import how_it_was_made as how_it_was_made
    from millstream.parts.summary import length_bins as length_bins
    from millstream.parts.summary import main_figures as main_figures
    from millstream.parts.summary import ranked as ranked
    from millstream.parts.summary import rejected_by_rule as rejected_by_rule
    from millstream.parts.summary import speed_over_time as speed_over_time
    from millstream.parts.summary import steps_of_recipe as steps_of_recipe
    from millstream.parts.summary import tokens_by_source as tokens_by_source
    from millstream.parts.summary import was_all_cached as was_all_cached

__all__ = [
    "MEMORY_PER_CHUNK",
    "BadRecords",
    "Job",
    "KeptAside",
    "Make",
    "Making",
    "Means",
    "Mixing",
    "OnBad",
    "Part",
    "Ranked",
    "RawRecord",
    "RayCluster",
    "ReadRecord",
    "check_on_bad",
    "duplicates_by_step",
    "examples_of",
    "fates_of_records",
    "how_it_was_made",
    "length_bins",
    "main_figures",
    "make_part",
    "make_parts",
    "origin_of",
    "prepare_store",
    "ranked",
    "raw_record",
    "read_report",
    "reader_of_files",
    "reader_of_store",
    "rejected_by_rule",
    "report_of",
    "report_path",
    "reporting",
    "speed_over_time",
    "steps_of_recipe",
    "tokens_by_source",
    "was_all_cached",
]
