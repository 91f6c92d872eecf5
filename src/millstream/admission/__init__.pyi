from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.admission.admission import Admission as Admission
    from millstream.admission.cut import Cut as Cut
    from millstream.admission.journal import START_OF_JOURNAL as START_OF_JOURNAL
    from millstream.admission.journal import FollowedJournal as FollowedJournal
    from millstream.admission.journal import Journal as Journal
    from millstream.admission.journal import JournalReader as JournalReader
    from millstream.admission.journaled import JournaledAdmission as JournaledAdmission
    from millstream.admission.memory import AdmissionState as AdmissionState
    from millstream.admission.rules import AdmissionRules as AdmissionRules
    from millstream.admission.rules import ReplayRules as ReplayRules
    from millstream.admission.sidecar import ADMISSION_SIDECAR as ADMISSION_SIDECAR
    from millstream.admission.sidecar import decode_admission as decode_admission
    from millstream.admission.sidecar import encode_admission as encode_admission
    from millstream.admission.tally import mean_lengths as mean_lengths

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
