"""Chunks of raw files -> parts: the tokens and origins of their documents, and everything that was left out.

A part depends on its chunk and on the settings alone. So parts can be made by any number of workers, kept in a cache,
found again by a run that resumes, or made on another machine: the store that is written from them is the same.
"""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "bad_records": "BadRecords KeptAside OnBad check_on_bad",
        "mixing": "Mixing",
        "part": "Part",
        "prepare": "RunOptions StoreRecipe prepare_store",
        "process": "MEMORY_PER_CHUNK Job Make make_part make_parts",
        "ray": "RayCluster",
        "report": "read_report report_of report_path reporting",
        "report_figures": "Ranked duplicates_by_step examples_of fates_of_records how_it_was_made length_bins "
        "main_figures ranked rejected_by_rule speed_over_time steps_of_recipe tokens_by_source "
        "was_all_cached",
        "source_records": "RawRecord ReadRecord origin_of raw_record reader_of_files reader_of_store",
    },
)
