"""prepare, inspect and verify: what goes in comes out, damage has a name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from command import Run
from millstream.store import TokenStore, TokenStoreWriter


def test_prepare_reports_to_people_on_stdout_and_progress_on_stderr(run: Run, texts: Path, tmp_path: Path) -> None:
    code, out, err = run("prepare", texts, tmp_path / "corpus", "--tokenizer", "char")

    assert code == 0
    assert "documents  30 of 30 files" in out
    assert "prepare: 100%" in err


def test_prepare_reports_to_machines_as_json(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": "one"}\nbad\n{"body": "two"}\n')

    code, out, _ = run(
        "prepare", tmp_path / "a.jsonl", tmp_path / "c", "-t", "char", "--text-field", "body",
        "--on-bad", "skip", "--eos", "none", "--json",
    )  # fmt: skip

    report = json.loads(out)
    assert code == 0
    assert (report["documents"], report["tokens"], report["skipped"]) == (2, 6, {"not JSON": 1})


def test_prepare_cuts_at_a_separator(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one<|end|>two<|end|>three")

    run("prepare", tmp_path / "a.txt", tmp_path / "c.bin", "-t", "char", "--separator", "<|end|>")

    assert TokenStore(tmp_path / "c.bin").documents == 3


def test_prepare_takes_several_sources_and_another_end_token(run: Run, texts: Path, tmp_path: Path) -> None:
    sources = [texts / "01.txt", texts / "02.txt"]

    run("prepare", *sources, tmp_path / "c", "-t", "bpe:300", "--eos", "7")

    store = TokenStore(tmp_path / "c")
    assert [int(store.document(place)[-1]) for place in range(store.documents)] == [7, 7]


def test_inspect_shows_counts_lengths_and_the_text_itself(run: Run, corpus: Path) -> None:
    code, out, _ = run("inspect", corpus, "--document", 3)

    assert code == 0
    assert "tokenizer  bpe-300" in out
    assert "made from  30 files" in out
    assert "tokens per document:" in out
    assert "document 3 (03.txt) begins:\nchapter 3\n" in out


def test_inspect_tells_machines_everything(run: Run, corpus: Path) -> None:
    facts = json.loads(run("inspect", corpus, "--json")[1])

    store = TokenStore(corpus)
    assert (facts["tokens"], facts["documents"], facts["fingerprint"]) == (len(store), 30, store.fingerprint)
    assert sum(facts["lengths"]["lengths"]) == len(store)


def test_inspect_reads_a_bare_file_of_ids(run: Run, tmp_path: Path) -> None:
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "train.bin")

    code, out, _ = run("inspect", tmp_path / "train.bin", "--dtype", "uint16")

    assert code == 0
    assert "begins:\n0 1 2 3" in out


def test_inspect_says_by_how_much_a_store_is_packed(run: Run, tmp_path: Path) -> None:
    with TokenStoreWriter(tmp_path / "packed.bin", compress=True) as writer:
        writer.append(np.zeros(100_000, np.uint16))

    assert ", packed to 1/" in run("inspect", tmp_path / "packed.bin")[1]
    assert run("verify", tmp_path / "packed.bin")[0] == 0


def test_inspect_refuses_a_document_that_is_not_there(run: Run, corpus: Path) -> None:
    assert "there is no document 30 among 30" in run("inspect", corpus, "--document", 30)[2]


def test_inspect_refuses_a_tokenizer_that_is_not_the_stores(run: Run, corpus: Path, tmp_path: Path) -> None:
    from millstream.tokens import CharTokenizer

    CharTokenizer("abc").save(tmp_path / "other.json")

    code, _, err = run("inspect", corpus, "--tokenizer", tmp_path / "other.json")

    assert code == 2
    assert "was made with the tokenizer 'bpe-300', not with 'char'" in err


def test_verify_says_all_is_well(run: Run, corpus: Path) -> None:
    code, out, _ = run("verify", corpus)

    assert code == 0
    assert "all is well" in out


@pytest.mark.parametrize("as_json", [False, True])
def test_verify_names_the_damaged_block_with_exit_code_1(run: Run, corpus: Path, tmp_path: Path, as_json: bool) -> None:
    shutil.copytree(corpus, tmp_path / "broken")
    tokens = tmp_path / "broken" / "00000.bin"
    raw = bytearray(tokens.read_bytes())
    raw[100] ^= 1
    tokens.write_bytes(raw)

    code, out, _ = run("verify", tmp_path / "broken", *(["--json"] if as_json else []))

    assert code == 1
    if as_json:
        (damage,) = json.loads(out)["damages"]
        assert (Path(damage["file"]).name, damage["block"]) == ("00000.bin", 0)
    else:
        assert "damaged: " in out
        assert "00000.bin: block 0" in out
