from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.feeds.admission.admission import Admission as Admission
    from millstream.feeds.admission.batch import AdmittedBatch as AdmittedBatch
    from millstream.feeds.admission.follower import FollowerAdmission as FollowerAdmission
    from millstream.feeds.admission.journal import START_OF_JOURNAL as START_OF_JOURNAL
    from millstream.feeds.admission.journal import AdmissionJournal as AdmissionJournal
    from millstream.feeds.admission.journal import FollowedJournal as FollowedJournal
    from millstream.feeds.admission.journal import JournalReader as JournalReader
    from millstream.feeds.admission.rules import AdmissionRules as AdmissionRules
    from millstream.feeds.admission.rules import ReplayRules as ReplayRules
    from millstream.feeds.admission.state import ADMISSION_SIDECAR as ADMISSION_SIDECAR
    from millstream.feeds.admission.state import AdmissionState as AdmissionState
    from millstream.feeds.admission.state import decode_admission as decode_admission
    from millstream.feeds.admission.state import encode_admission as encode_admission
    from millstream.feeds.admission.state import mean_lengths as mean_lengths

__all__ = [
    "ADMISSION_SIDECAR",
    "START_OF_JOURNAL",
    "Admission",
    "AdmissionJournal",
    "AdmissionRules",
    "AdmissionState",
    "AdmittedBatch",
    "FollowedJournal",
    "FollowerAdmission",
    "JournalReader",
    "ReplayRules",
    "decode_admission",
    "encode_admission",
    "mean_lengths",
]
