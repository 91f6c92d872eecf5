"""The lines of a journal, as they are read for ever."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from millstream.live.events import Event
from millstream.live.losses import Loss, LostSlots, LostUse
from millstream.live.window import Entry
from millstream.loaders.self_play.journal import START, Part, RunJournal, read_losses

LINES = """\
{"facts":{"num_chunks":3,"seed":1},"run":"5a","chain":"fc573c0d814531d1ea06801ff411d308"}
{"chunks":0,"draw":0,"epoch":0,"floor":"a.tar","chain":"90fb27a590a23d745bb47505fddf3dae"}
{"chunks":3,"draw":0,"enter":"a.tar","epoch":0,"stamp":"0f","chain":"3a6195592491f29021dc39deb6340edd"}
{"chunks":64,"draw":0,"epoch":0,"until":"","chain":"6c967d96fedaffc49901f8e182039dd7"}
{"came":2,"draw":9,"epoch":0,"game":1,"lost":"a.tar","unseen":false,"use":4,"chain":"c1d0555f11fe73c5e703d3f799e8c97f"}
{"counter":7,"epoch":0,"games":[0,3],"lost":"a.tar","chain":"b565ab6b494203cb60779a2decdc2a1f"}
{"chunks":0,"draw":64,"epoch":0,"gone":"a.tar","chain":"86bf1201287ec7078bc717abe3b23653"}
"""
EVENTS = [Event(0, "floor", "a.tar"), Event(0, "enter", "a.tar", 3, "0f"), Event(0, "until", "", 64)]
GONE = Event(64, "gone", "a.tar")
LOSSES: list[Loss] = [LostUse(9, "a.tar", 1, use=4, came=2), LostSlots(7, "a.tar", 0, 3)]


def test_a_journal_is_written_and_read_as_it_always_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.loaders.self_play.journal.uuid4", lambda: SimpleNamespace(hex="5a"))
    path = tmp_path / "admissions.jsonl"
    journal = RunJournal(path, {"seed": 1, "num_chunks": 3}, Part())
    journal.open()
    first = journal.saved()
    journal.write(EVENTS, 0)
    for loss in LOSSES:
        journal.note(loss, 0)
    journal.write([GONE], 0)
    journal.close()
    assert path.read_text() == LINES
    assert journal.entries(0) == [Entry("a.tar", 0, 3, "0f")]
    assert read_losses(path, 0) == LOSSES
    assert journal.split_at(first, 0) == ([], [*EVENTS, GONE])
    assert journal.split_at(START, 0) == ([], [])
