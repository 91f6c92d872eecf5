"""Arrivals -> what a step trains on: groups that are complete, fresh and worth it, in an order that is written down."""

from millstream.admission.admission import Admission
from millstream.admission.cut import Cut
from millstream.admission.identity import Drop
from millstream.admission.journal import Entry, Journal, JournalReader
from millstream.admission.journaled import JournaledAdmission
from millstream.admission.memory import AdmissionState
from millstream.admission.replay import ReplayBuffer
from millstream.admission.rules import AdmissionRules, ReplayRules

__all__ = [
    "Admission",
    "AdmissionRules",
    "AdmissionState",
    "Cut",
    "Drop",
    "Entry",
    "Journal",
    "JournalReader",
    "JournaledAdmission",
    "ReplayBuffer",
    "ReplayRules",
]
