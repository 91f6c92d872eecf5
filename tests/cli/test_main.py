"""Exit codes, errors in words, and streams that are used for what they are for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command import Run
from millstream.cli import main as cli

COMMAND = [sys.executable, "-m", "millstream.cli.main"]


@pytest.mark.parametrize("verb", ["demo", "prepare", "inspect", "verify", "explain", "bench"])
def test_every_verb_teaches_with_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main([verb, "--help"])

    help_text = capsys.readouterr().out
    assert left.value.code == 0
    assert "examples:" in help_text
    assert f"millstream {verb}" in help_text


def test_the_help_lists_every_verb_and_a_first_session(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])

    assert "a first session" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["inspect"], ["explain"]])
def test_a_wrong_command_line_is_exit_code_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)

    assert left.value.code == 2


def test_an_error_is_words_and_a_hint_without_a_traceback(run: Run, texts: Path, corpus: Path) -> None:
    code, out, err = run("prepare", texts, corpus, "-q")

    assert code == 2
    assert out == ""
    assert err.splitlines()[0].startswith("error: ")
    assert err.splitlines()[1].startswith("hint: ")
    assert "Traceback" not in err


def test_hints_name_the_flags_of_the_command_and_not_the_arguments_of_python(
    run: Run, texts: Path, corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.jsonl").write_text("not json\n")

    assert "hint: choose another output, or pass --overwrite\n" in run("prepare", texts, corpus, "-q")[2]
    assert "or pass --on-bad skip to" in run("prepare", tmp_path / "bad.jsonl", tmp_path / "c", "-q")[2]


@pytest.mark.parametrize("way", ["flag", "environment"])
def test_debug_shows_the_traceback(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    if way == "environment":
        monkeypatch.setenv("MILLSTREAM_DEBUG", "1")

    _, _, err = run("inspect", tmp_path / "nowhere", *(["--debug"] if way == "flag" else []))

    assert "Traceback" in err
    assert "error: " in err


def test_a_defect_of_ours_is_told_as_such(run: Run, monkeypatch: pytest.MonkeyPatch, corpus: Path) -> None:
    monkeypatch.setattr("millstream.cli.inspect._facts", lambda store: 1 / 0)

    code, _, err = run("inspect", corpus)

    assert code == 2
    assert "error: ZeroDivisionError" in err
    assert "--debug" in err


def test_the_disk_speaks_through_the_system_error(run: Run, monkeypatch: pytest.MonkeyPatch, corpus: Path) -> None:
    def full(store: object) -> None:
        raise OSError(28, "No space left on device", "corpus")

    monkeypatch.setattr("millstream.cli.inspect._facts", full)

    assert (
        run("inspect", corpus)[2]
        == "error: corpus: No space left on device\nhint: look at the path, its permissions and the space on its disk\n"
    )


def test_logs_appear_on_stderr_when_asked(run: Run, texts: Path, tmp_path: Path) -> None:
    _, _, silent = run("prepare", texts, tmp_path / "a", "-q", "-t", "char")
    _, _, wordy = run("prepare", texts, tmp_path / "b", "-q", "-t", "char", "-v")

    assert "INFO" not in silent
    assert "INFO millstream.api: " in wordy


def test_ctrl_c_ends_with_130_within_seconds_and_leaves_no_store(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("the mill by the stream\n" * 2_000_000)
    child = subprocess.Popen(
        [*COMMAND, "prepare", "big.txt", "corpus", "-t", "char", "--documents", "line"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / ".corpus.preparing").exists():
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)

    assert child.returncode == 130
    assert "Traceback" not in err
    assert not (tmp_path / "corpus").exists()


def test_a_reader_that_leaves_early_breaks_nothing(corpus: Path) -> None:
    code = subprocess.run(
        [
            "bash",
            "-c",
            f"{' '.join(COMMAND)} inspect {corpus} --json | head -c 10 >/dev/null; echo ${{PIPESTATUS[0]}}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )

    assert code.stdout.strip() in ("0", "141")
    assert code.stderr == ""


def test_the_command_needs_numpy_and_nothing_else(corpus: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['tokenizers', 'tiktoken', 'rich', 'torch', 'jax']));"
        "from millstream.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    child = subprocess.run(
        [sys.executable, "-c", code, "inspect", str(corpus)], capture_output=True, text=True, check=True
    )

    assert "tokenizer  bpe-300" in child.stdout


def test_a_closed_pipe_is_exit_code_141(corpus: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    child = subprocess.run([*COMMAND, "inspect", str(corpus)], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)

    assert child.returncode == 141
    assert child.stderr == b""


def test_a_terminal_that_knows_few_letters_gets_question_marks(corpus: Path) -> None:
    child = subprocess.run(
        [*COMMAND, "inspect", str(corpus)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )

    assert b"?" in child.stdout
