"""explain shows where a document came from, and its raw record while the file is the one it was."""

from __future__ import annotations

import json
from pathlib import Path

from command import Run
from millstream.api import prepare

TEXTS = ["the mill by the stream", "grinds, the grain"]
LINES = [json.dumps({"text": text}) for text in TEXTS]
SETTINGS = ("--chunk-size", 4, "--batch-size", 1)


def test_explain_shows_where_a_document_is_from_and_its_raw_record(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(
        b"\n" + "\n".join([LINES[0].replace("mill", "\\u001b[31mmill"), LINES[1]]).encode()
    )
    prepare(tmp_path / "a.jsonl", tmp_path / "corpus", "char")

    code, out, _ = run("explain", tmp_path / "corpus", "--document", 1, "--raw", *SETTINGS)
    rows = run("explain", tmp_path / "corpus", "--step", 0, *SETTINGS)[1]
    facts = json.loads(run("explain", tmp_path / "corpus", "--document", 1, "--raw", "--json", *SETTINGS)[1])
    styled = run("explain", tmp_path / "corpus", "--document", 0, "--raw", *SETTINGS)[1]

    start, stop = facts["origin"]["start"], facts["origin"]["stop"]
    assert code == 0
    assert f"document 1 (a.jsonl:3, bytes {start}-{stop}) is used in" in out
    assert f"{TEXTS[1]}<|endoftext|>" in out
    assert out.rstrip().endswith(f"(the file is unchanged):\n{LINES[1]}")
    assert facts["raw"] == {"path": str(tmp_path / "a.jsonl"), "text": LINES[1]}
    assert "a.jsonl:" in rows
    assert "\x1b" not in styled


def test_explain_refuses_to_show_a_record_of_another_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n".join(LINES))
    prepare(tmp_path / "a.jsonl", tmp_path / "corpus", "char")
    (tmp_path / "a.jsonl").write_text("\n".join(LINES).swapcase())

    code, out, err = run("explain", tmp_path / "corpus", "--document", 1, "--raw", *SETTINGS)

    assert (code, out) == (2, "")
    assert "has changed since the store was made" in err
    assert "pass --document too" in run("explain", tmp_path / "corpus", "--step", 0, "--raw", *SETTINGS)[2]
