"""-q says errors alone, --json says JSON alone, and a wrong command line says what was meant."""

from __future__ import annotations

import json
import logging
import shutil
import warnings
from pathlib import Path

import pytest

from command import Run
from millstream import LossWarning
from millstream.cli import main as cli
from millstream.cli.main import VERBS

CHAT = {"messages": [{"role": "user", "content": "Does it run?"}, {"role": "assistant", "content": "It runs."}]}
RUN = ["--chunk-size", 4, "--batch-size", 2]
VERB_LINES: dict[str, list[object]] = {
    "demo": ["demo", "--output", "demo", "--steps", 3],
    "prepare": ["prepare", "notes.jsonl", "new", "-t", "char", "--on-bad", "skip"],
    "inspect": ["inspect", "notes"],
    "verify": ["verify", "notes"],
    "explain": ["explain", "notes", "--step", 0, *RUN],
    "show": ["show", "chats"],
    "lint": ["lint", "chats.jsonl"],
    "bench": ["bench", "notes", "--seconds", 0.05, *RUN],
    "watch": ["watch", "mill.toml", "--serve", 0],
}


FAILING: dict[str, list[object]] = {
    **{verb: [verb, "nowhere"] for verb in VERB_LINES},
    "prepare": ["prepare", "nowhere", "new"],
    "demo": ["demo", "--output", "raw.txt"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every verb has something to do, and something to warn of."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        notes = [*(json.dumps({"text": f"the mill by the stream {number}"}) for number in range(5)), "not json"]
        Path("notes.jsonl").write_text("\n".join(notes))
        Path("chats.jsonl").write_text(json.dumps(CHAT) + "\n")
        Path("raw.txt").write_text("the mill by the stream")
        Path("mill.toml").write_text('[[stages]]\nname = "games"\nstage = "discovery"\npath = "."\nwatch = false\n')
        assert cli.main(["prepare", "notes.jsonl", "notes", "-t", "char", "--on-bad", "skip", "-q"]) == 0
        template = ["--kind", "chat", "--template", "chatml", "--add-control-tokens", "-t", "bpe.json"]
        assert cli.main(["prepare", "notes.jsonl", "bpe", "-t", "bpe:300", "--on-bad", "skip", "-q"]) == 0
        Path("bpe/tokenizer.json").rename("bpe.json")
        assert cli.main(["prepare", "chats.jsonl", "chats", *template, "-q"]) == 0
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to work in."""
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "here"))
    return tmp_path / "here"


def test_every_verb_is_listened_to() -> None:
    assert VERB_LINES.keys() == VERBS.keys()


@pytest.mark.usefixtures("here", "few_files")
@pytest.mark.filterwarnings("always::millstream.LossWarning")
@pytest.mark.parametrize("verb", VERB_LINES)
def test_quiet_prints_nothing_but_errors(run: Run, verb: str) -> None:
    assert run(*VERB_LINES[verb], "-q") == (0, "", "")
    code, out, err = run(*FAILING[verb], "-q")
    assert (code, out) == (2, "") and err.startswith("error: ")


@pytest.mark.usefixtures("here", "few_files")
@pytest.mark.filterwarnings("always::millstream.LossWarning")
@pytest.mark.parametrize("verb", VERB_LINES)
def test_json_writes_objects_alone_on_both_streams(run: Run, verb: str) -> None:
    code, out, err = run(*VERB_LINES[verb], "--json", "-v")
    assert code == 0 and objects(out)
    assert objects(err) or not err
    code, out, err = run(*FAILING[verb], "--json")
    assert (code, out) == (2, "") and list(objects(err)[-1]) == ["error", "hint"]


def objects(text: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in text.splitlines()]
    assert all(isinstance(each, dict) for each in found)
    return found


@pytest.mark.usefixtures("here")
@pytest.mark.filterwarnings("always::millstream.LossWarning")
def test_warnings_are_objects_and_quiet_json_keeps_the_result(run: Run) -> None:
    _, _, err = run(*VERB_LINES["explain"], "--json")
    assert "left out: 1 of 6 rows" in str(objects(err)[0]["warning"])
    _, out, err = run(*VERB_LINES["explain"], "--json", "-q")
    assert objects(out)[0]["step"] == 0 and err == ""


def test_a_warning_is_said_once(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(_: object) -> int:
        for category in (LossWarning, UserWarning):
            for _ in range(2):
                warnings.warn("some rows are missing", category, stacklevel=1)
        for _ in range(2):
            logging.getLogger("millstream.preparation").warning("a row was left out")
        return 0

    monkeypatch.setattr("millstream.cli.verify.run", warn)
    warnings.simplefilter("always")
    _, _, err = run("verify", here)
    assert [line.rpartition(": ")[2] for line in err.splitlines()] == [
        "some rows are missing",
        "some rows are missing",
        "a row was left out",
    ]


def test_bare_millstream_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main([])
    out, err = capsys.readouterr()
    assert "a first session" in out and err == ""


WRONG = {
    "prepar texts corpus": ("there is no verb prepar; did you mean prepare?", "millstream --help"),
    "xyz": (f"there is no verb xyz, only {', '.join(VERBS)}", "millstream --help"),
    "prepare texts": ("millstream prepare needs output", "millstream prepare --help"),
    "prepare": ("millstream prepare needs source and output", "millstream prepare --help"),
    "inspect": ("millstream inspect needs store", "millstream inspect --help"),
    "prepare a b --overwite": (
        "millstream prepare does not know --overwite; did you mean --overwrite?",
        "millstream prepare --help",
    ),
    "verify a --dtype int7": (
        "argument --dtype: invalid choice: 'int7' (choose from 'uint16', 'uint32', 'int32')",
        "millstream verify --help",
    ),
}


@pytest.mark.parametrize("line", WRONG)
@pytest.mark.parametrize("machine", [False, True])
def test_a_wrong_command_line_is_one_line_and_a_pointer(
    line: str, machine: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    error, hint = WRONG[line]
    with pytest.raises(SystemExit) as left:
        cli.main([*line.split(), *(["--json"] if machine else [])])
    out, err = capsys.readouterr()
    assert (left.value.code, out) == (2, "")
    if machine:
        assert json.loads(err) == {"error": error, "hint": hint}
    else:
        assert err == f"error: {error}\nhint: {hint}\n"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("line", ["inspect", "verify", "bench", "explain --step 0"])
@pytest.mark.parametrize(("raw", "kind"), [("raw.txt", "text"), ("notes.jsonl", "jsonl")])
def test_raw_data_is_told_with_the_command_that_prepares_it(run: Run, line: str, raw: str, kind: str) -> None:
    verb, *more = line.split()
    code, out, err = run(verb, raw, *more)
    assert (code, out) == (2, "")
    assert err == (
        f"error: {raw}: this is raw data ({kind}), not a store\n"
        f"hint: prepare it first: millstream prepare {raw} corpus, or millstream.prepare() in Python\n"
    )


ROLLOUT = {"rollout_id": "a", "group_id": "g", "token_ids": [7, 8], "loss_mask": [0, 1], "finish": "stop", "reward": 1}
PREPARED = "it is prepared: millstream inspect notes shows it, millstream.load() in Python opens it"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("line", ["inspect", "verify", "bench", "explain --step 0"])
@pytest.mark.parametrize("folder", ["", "folder"])
def test_conversations_are_told_with_the_command_that_prepares_them(run: Run, line: str, folder: str) -> None:
    raw = Path(folder, "chats.jsonl")
    raw.parent.mkdir(exist_ok=True)
    raw.write_text(json.dumps(CHAT) + "\n")
    named = folder or str(raw)
    verb, *more = line.split()
    code, out, err = run(verb, named, *more)
    assert (code, out) == (2, "")
    hint = err.splitlines()[1]
    assert f"millstream prepare {named} corpus --kind chat --template … --tokenizer …" in hint
    assert "ConversationDataLoader" in hint


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("verb", ["verify", "bench"])
def test_rollouts_are_told_with_what_works_with_them(run: Run, verb: str) -> None:
    Path("rollouts.jsonl").write_text(json.dumps(ROLLOUT) + "\n")
    code, out, err = run(verb, "rollouts.jsonl")
    assert (code, out) == (2, "")
    hint = err.splitlines()[1]
    assert "prepare it" not in hint
    for named in ("millstream show rollouts.jsonl", "millstream lint rollouts.jsonl", "RolloutDataLoader"):
        assert named in hint


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("verb", ["show", "lint"])
def test_texts_where_conversations_belong_are_to_be_prepared(run: Run, verb: str) -> None:
    assert run(verb, "raw.txt") == (
        2,
        "",
        "error: raw.txt: this is raw data (text), and has no rows of several fields\n"
        "hint: prepare it first: millstream prepare raw.txt corpus, or millstream.prepare() in Python\n",
    )


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("show rollouts.jsonl --row 99", "they count from 0 to 0; --rollout-id finds one by its id"),
        ("explain rollouts.jsonl --document 99", "they count from 0 to 0; --rollout-id finds one by its id"),
        ("lint notes", PREPARED),
        ("prepare notes new", PREPARED),
        ("show notes", "use inspect or explain"),
    ],
)
def test_hints_name_verbs_and_flags(run: Run, line: str, hint: str) -> None:
    Path("rollouts.jsonl").write_text(json.dumps(ROLLOUT) + "\n")
    code, _, err = run(*line.split())
    assert (code, err.splitlines()[-1]) == (2, f"hint: {hint}")


@pytest.mark.usefixtures("here")
def test_files_that_are_passed_over_are_told_in_words(run: Run) -> None:
    Path("data").mkdir()
    for name in ("a.json", "b.json", "c.png", "d.txt"):
        Path("data", name).write_text("{}")
    _, out, _ = run("prepare", "data", "new", "-t", "char")
    told = next(line for line in out.splitlines() if line.startswith("left out"))
    assert told.endswith(
        "2 .json files (in folders most are settings: --include '*.json' takes them), "
        "1 file of unknown kind (--format says what they are)"
    )


@pytest.mark.usefixtures("here")
def test_what_took_how_long_adds_up(run: Run) -> None:
    _, out, _ = run("prepare", "notes.jsonl", "new", "-t", "bpe:300", "--on-bad", "skip", "--no-cache", "--json")
    report = json.loads(out)
    phases = report["details"]["phases"]
    assert list(phases) == ["tokenizer", "reading", "finishing"]
    assert phases["tokenizer"] > 0 and sum(phases.values()) <= report["seconds"] + 0.003  # each is rounded
    _, out, _ = run("prepare", "notes.jsonl", "again", "-t", "bpe:300", "--on-bad", "skip", "--no-cache")
    took = next(line for line in out.splitlines() if line.startswith("took"))
    assert all(what in took for what in ("to get the tokenizer", "to read and encode", "to finish the store"))


@pytest.mark.usefixtures("here")
def test_a_finished_store_is_told_as_such(run: Run) -> None:
    code, out, _ = run("prepare", "notes.jsonl", "notes", "-t", "char", "--on-bad", "skip", "--resume")
    assert code == 0 and out.startswith("this store is finished: ") and "took" not in out
