"""The lines of a journal, as they are read for ever."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from millstream.selfplay import START, Event, LostUse, RankRole, WindowEntry
from millstream.selfplay.events import Loss, LostSlots
from millstream.selfplay.journal import RunJournal, read_losses

LINES = """\
{"facts":{"num_chunks":3,"seed":1},"run":"5a","chain":"91155006e35c23611047fa0dddffa4a3"}
{"chunks":0,"draw":0,"epoch":0,"floor":"a.tar","stamp":"","chain":"81e7dc7ec0205dc62e58b721a29723d2"}
{"chunks":3,"draw":0,"enter":"a.tar","epoch":0,"stamp":"0f","chain":"193c61b55f2716f7b0cbcc82370b7e00"}
{"chunks":64,"draw":0,"epoch":0,"until":"","chain":"f99f7cdc90e30ee5b7accdbed73e9c1c"}
{"came":2,"draw":9,"epoch":0,"game":1,"lost":"a.tar","unseen":false,"use":4,"chain":"05bdd0dbef0cd9c2bbdf90b6c7a6c5a8"}
{"counter":7,"epoch":0,"games":[0,3],"lost":"a.tar","chain":"13c79795164ce9913fd6329d1c48214c"}
{"chunks":0,"draw":64,"epoch":0,"gone":"a.tar","chain":"b3d711ae4b4a41b83128eecf70b0ce2d"}
"""
EVENTS = [Event(0, "floor", "a.tar"), Event(0, "enter", "a.tar", 3, "0f"), Event(0, "until", "", 64)]
GONE = Event(64, "gone", "a.tar")
LOSSES: list[Loss] = [LostUse(9, "a.tar", 1, use=4, came=2), LostSlots(7, "a.tar", 0, 3)]


def test_a_journal_is_written_and_read_as_it_always_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.selfplay.journal.uuid4", lambda: SimpleNamespace(hex="5a"))
    path = tmp_path / "admissions.jsonl"
    journal = RunJournal(path, {"seed": 1, "num_chunks": 3}, RankRole())
    journal.open()
    first = journal.saved()
    journal.write(EVENTS, 0)
    for loss in LOSSES:
        journal.note(loss, 0)
    journal.write([GONE], 0)
    journal.close()
    assert path.read_text() == LINES
    assert journal.entries(0) == [WindowEntry("a.tar", 0, 3, "0f")]
    assert read_losses(path, 0) == LOSSES
    assert journal.split_at(first, 0) == ([], [*EVENTS, GONE])
    assert journal.split_at(START, 0) == ([], [])
