from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.preparation.bad_records import BadRecords as BadRecords
    from millstream.preparation.bad_records import KeptAside as KeptAside
    from millstream.preparation.bad_records import OnBad as OnBad
    from millstream.preparation.bad_records import check_on_bad as check_on_bad
    from millstream.preparation.mixing import Mixing as Mixing
    from millstream.preparation.part import Part as Part
    from millstream.preparation.prepare import RunOptions as RunOptions
    from millstream.preparation.prepare import StoreRecipe as StoreRecipe
    from millstream.preparation.prepare import prepare_store as prepare_store
    from millstream.preparation.process import MEMORY_PER_CHUNK as MEMORY_PER_CHUNK
    from millstream.preparation.process import Job as Job
    from millstream.preparation.process import Make as Make
    from millstream.preparation.process import make_part as make_part
    from millstream.preparation.process import make_parts as make_parts
    from millstream.preparation.ray import RayCluster as RayCluster
    from millstream.preparation.report import read_report as read_report
    from millstream.preparation.report import report_of as report_of
    from millstream.preparation.report import report_path as report_path
    from millstream.preparation.report import reporting as reporting
    from millstream.preparation.report_figures import Ranked as Ranked
    from millstream.preparation.report_figures import duplicates_by_step as duplicates_by_step
    from millstream.preparation.report_figures import examples_of as examples_of
    from millstream.preparation.report_figures import fates_of_records as fates_of_records
    from millstream.preparation.report_figures import how_it_was_made as how_it_was_made
    from millstream.preparation.report_figures import length_bins as length_bins
    from millstream.preparation.report_figures import main_figures as main_figures
    from millstream.preparation.report_figures import ranked as ranked
    from millstream.preparation.report_figures import rejected_by_rule as rejected_by_rule
    from millstream.preparation.report_figures import speed_over_time as speed_over_time
    from millstream.preparation.report_figures import steps_of_recipe as steps_of_recipe
    from millstream.preparation.report_figures import tokens_by_source as tokens_by_source
    from millstream.preparation.report_figures import was_all_cached as was_all_cached
    from millstream.preparation.source_records import RawRecord as RawRecord
    from millstream.preparation.source_records import ReadRecord as ReadRecord
    from millstream.preparation.source_records import origin_of as origin_of
    from millstream.preparation.source_records import raw_record as raw_record
    from millstream.preparation.source_records import reader_of_files as reader_of_files
    from millstream.preparation.source_records import reader_of_store as reader_of_store

__all__ = [
    "MEMORY_PER_CHUNK",
    "BadRecords",
    "Job",
    "KeptAside",
    "Make",
    "Mixing",
    "OnBad",
    "Part",
    "Ranked",
    "RawRecord",
    "RayCluster",
    "ReadRecord",
    "RunOptions",
    "StoreRecipe",
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
