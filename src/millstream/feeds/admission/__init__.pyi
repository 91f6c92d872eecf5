from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.feeds.admission.admission import Admission as Admission
    from millstream.feeds.admission.cut import Cut as Cut
    from millstream.feeds.admission.journal import START_OF_JOURNAL as START_OF_JOURNAL
    from millstream.feeds.admission.journal import FollowedJournal as FollowedJournal
    from millstream.feeds.admission.journal import Journal as Journal
    from millstream.feeds.admission.journal import JournalReader as JournalReader
    from millstream.feeds.admission.journaled import JournaledAdmission as JournaledAdmission
    from millstream.feeds.admission.memory import AdmissionState as AdmissionState
    from millstream.feeds.admission.rules import AdmissionRules as AdmissionRules
    from millstream.feeds.admission.rules import ReplayRules as ReplayRules
    from millstream.feeds.admission.sidecar import ADMISSION_SIDECAR as ADMISSION_SIDECAR
    from millstream.feeds.admission.sidecar import decode_admission as decode_admission
    from millstream.feeds.admission.sidecar import encode_admission as encode_admission
    from millstream.feeds.admission.tally import mean_lengths as mean_lengths

__all__ = [
    "ADMISSION_SIDECAR",
    "START_OF_JOURNAL",
    "Admission",
    "AdmissionRules",
    "AdmissionState",
    "Cut",
    "FollowedJournal",
    "Journal",
    "JournalReader",
    "JournaledAdmission",
    "ReplayRules",
    "decode_admission",
    "encode_admission",
    "mean_lengths",
]
