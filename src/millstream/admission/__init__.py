"""Arrivals -> what a step trains on: groups that are complete, fresh and worth it, in an order that is written down."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "admission": "Admission",
        "cut": "Cut",
        "journal": "START_OF_JOURNAL FollowedJournal Journal JournalReader",
        "journaled": "JournaledAdmission",
        "memory": "AdmissionState",
        "rules": "AdmissionRules ReplayRules",
        "sidecar": "ADMISSION_SIDECAR decode_admission encode_admission",
        "tally": "mean_lengths",
    },
)
