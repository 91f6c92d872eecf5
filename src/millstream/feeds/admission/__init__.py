"""Arrivals -> what a step trains on: groups that are complete, fresh and worth it, in an order that is written down."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "admission": "Admission",
        "batch": "AdmittedBatch",
        "follower": "FollowerAdmission",
        "journal": "START_OF_JOURNAL AdmissionJournal FollowedJournal JournalReader",
        "rules": "AdmissionRules ReplayRules",
        "state": "ADMISSION_SIDECAR AdmissionState decode_admission encode_admission mean_lengths",
    },
)
