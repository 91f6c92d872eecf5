"""Bad records: the first is an error, or all are counted and, when asked for, kept aside with their origin."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from millstream.errors import SourceError, TokenizerError
from millstream.preparation import BadRecords, KeptAside
from millstream.preparation.bad_records import LOUD
from millstream.preparation.process import UNFIT
from millstream.sources import BadRecord
from millstream.storage import ZstdReader

BAD = [BadRecord("not JSON", 4, 90, 99, "Expecting value", "one object per line", b"bad \xff")]


def test_an_error_counts_rows_from_the_start_of_the_file() -> None:
    with pytest.raises(SourceError, match=r"^a.jsonl:105: not JSON: Expecting value\n  hint: one object .*; or pass"):
        BadRecords("error").take("a.jsonl", BAD, rows_before=100)


def test_what_a_tokenizer_refuses_is_its_error() -> None:
    with pytest.raises(TokenizerError, match="cannot be encoded"):
        BadRecords("error").take("a.jsonl", [BadRecord(UNFIT, 0, 0, 1, "character 'x' is unknown")])


@pytest.mark.parametrize("level", [None, 1])
def test_quarantine_keeps_bad_records_with_their_origin(tmp_path: Path, level: int | None) -> None:
    with KeptAside(tmp_path / "bad.jsonl", level=level) as kept:
        records = BadRecords("quarantine", kept)
        for number in range(5000):
            records.take("a.jsonl", BAD, rows_before=number)

    with kept.path.open("rb") as file:
        content = ZstdReader(file).readall() if level else file.read()
    entries = [json.loads(line) for line in content.splitlines()]
    assert records.losses.counts == {"bad:not JSON": 5000}
    assert [entry["row"] for entry in entries] == [number + 4 for number in range(5000)]
    assert entries[0]["raw"] == "bad \\xff"
    assert (entries[0]["file"], entries[0]["start"], entries[0]["stop"]) == ("a.jsonl", 90, 99)


def test_nothing_is_kept_where_nothing_was_bad(tmp_path: Path) -> None:
    with KeptAside(tmp_path / "bad.jsonl") as kept:
        pass

    assert not kept.path.exists()


def test_a_million_of_the_same_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        BadRecords("skip").take("a.jsonl", BAD * 1000)

    assert len(caplog.records) == LOUD


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(SourceError, match="on_bad='ignore' is unknown"):
        BadRecords("ignore")  # type: ignore[arg-type]
