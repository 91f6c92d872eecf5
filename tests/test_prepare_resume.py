"""Killed at any moment, a resumed `prepare` makes the same bytes; two runs never share an output."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import shutil
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millstream.api import prepare
from millstream.cli.main import main
from millstream.errors import StoreError
from millstream.sources import Record
from millstream.store import TokenStore
from millstream.tokens import CharTokenizer
from scripts import run_script

ALPHABET = "abcdefghij klmnopqrst"

# Small chunks and bookmarks, so that a few thousand records make a long run; it kills itself at its n-th step, which is
# a write, a rename or a part that was taken.
CHILD = """
import os, signal, sys
from pathlib import Path
from millstream.preparation import RunOptions, StoreRecipe, builder, prepare_store
from millstream.records import Recipe
from millstream.sources import Reading, discover
from millstream.storage import disk
from millstream.tokens import BPETokenizer, CharTokenizer
from millstream.chats import ChatSettings, Limit
from millstream.chats.templates import ChatTemplate

source, output, cache, steps, workers, deadline = sys.argv[1:]
left = int(deadline)

def step(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def counted(operation):
    def call(*arguments):
        step()
        return operation(*arguments)
    return call

for name in ("write", "rename", "sync", "publish"):
    setattr(disk, name, counted(getattr(disk, name)))
builder.MARK_BYTES = 20_000
recipe = Recipe.of([name for name in steps.split(",") if name])
making = StoreRecipe(Reading(chunk_bytes=10_000), recipe, CharTokenizer(sorted("ALPHABET")))
if "chats" in Path(source).name:
    tokenizer = BPETokenizer.train(["ALPHABET"], vocab_size=260)
    chat = ChatSettings(ChatTemplate.of("chatml"), limit=Limit(200, "turns", "drop"), add_control_tokens=True)
    making = StoreRecipe(Reading(chunk_bytes=10_000, whole_rows=True), recipe, tokenizer, chat=chat)
means = RunOptions(
    workers=int(workers), on_bad="quarantine", resume=True, cache_dir=Path(cache) if cache else None,
    keep_rejected=True, progress=step,
)
prepare_store(discover(source), Path(output), making, means)
""".replace("ALPHABET", ALPHABET)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few files of several kinds, with bad records and duplicates in them."""
    folder, chance = tmp_path_factory.mktemp("corpus"), random.Random(0)

    def line() -> str:
        kind = chance.random()
        if kind < 0.02:
            return "not json"
        text = "duplicate" if kind < 0.2 else "".join(chance.choices(ALPHABET, k=chance.randint(0, 300)))
        return json.dumps({"text": text})

    for number in range(3):
        lines = "\n".join(line() for _ in range(400))
        (folder / f"{number}.jsonl").write_text(lines)
        with gzip.open(folder / f"{number}.jsonl.gz", "wt") as packed:
            packed.write("\n".join(line() for _ in range(200)))
    return folder


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Conversations: with bad rows and long ones among them, some of which are shortened and some dropped."""
    folder, chance = tmp_path_factory.mktemp("chats"), random.Random(0)

    def message(role: str) -> dict[str, str]:
        return {"role": role, "content": "".join(chance.choices(ALPHABET, k=chance.randint(0, 60)))}

    def line() -> str:
        roles = ["user", "assistant"] * chance.randint(1, 4)
        return "not json" if chance.random() < 0.02 else json.dumps({"messages": list(map(message, roles))})

    for number in range(3):
        (folder / f"{number}.jsonl").write_text("\n".join(line() for _ in range(250)))
    return folder


def run(source: Path, output: Path, cache: str, steps: str, deadline: int, workers: int = 2) -> int:
    done = run_script(CHILD, source, output, cache, steps, workers, deadline, timeout=120)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


WAYS = list(itertools.product(["corpus", "corpus.bin"], ["", "length,exact_dedup"], [False, True]))
"""Every third has each of these choices once; `make fuzz` tries them all."""


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(("output", "steps", "cached"), WAYS if "MILLSTREAM_FUZZ" in os.environ else WAYS[::3])
def test_a_run_that_is_killed_again_and_again_makes_the_same_bytes(
    corpus: Path, tmp_path: Path, cached: bool, steps: str, output: str
) -> None:
    check_kills(corpus, tmp_path, cached, steps, output)


@pytest.mark.parametrize("cached", [True, False] if "MILLSTREAM_FUZZ" in os.environ else [True])
def test_so_do_conversations(chats: Path, tmp_path: Path, cached: bool) -> None:
    check_kills(chats, tmp_path, cached, "", "chats")


def check_kills(corpus: Path, tmp_path: Path, cached: bool, steps: str, output: str) -> None:
    """Kill runs, let the last one finish, and compare with one that was not killed."""
    whole = tmp_path / "whole"
    run(corpus, whole / output, "", steps, deadline=0, workers=1)
    chance = random.Random(f"{cached}{steps}{output}")
    broken = tmp_path / "broken"
    cache = str(tmp_path / "cache") if cached else ""

    kills = 0
    for patience in (20, 70, 140, 10**9):  # each run gets further, and the last one to the end
        code = run(corpus, broken / output, cache, steps, deadline=chance.randint(patience // 2, patience))
        kills += code != 0
        if code == 0:
            break
        with pytest.raises(StoreError):
            TokenStore(broken / output)

    assert kills >= 2
    assert files_of(broken) == files_of(whole)


def test_resuming_with_nothing_to_resume_starts_afresh(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc")

    report = prepare(tmp_path / "a.txt", tmp_path / "corpus", CharTokenizer("abc"), resume=True)

    assert report.documents == 1 and not report.was_there


# Kills itself around the moves that put the finished store in its place: `left` more of them are made.
LAST_MOVES = """
import os, signal, sys
from millstream.cli.main import main
from millstream.storage import disk, staging

left, published = int(sys.argv[1]), staging._publish
rename, remove_tree = disk.rename, disk.remove_tree

def counted(operation):
    def call(*arguments):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return operation(*arguments)
    return call

def publish(*arguments):
    disk.rename, disk.remove_tree = counted(rename), counted(remove_tree)
    published(*arguments)

staging._publish = publish
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("output", ["corpus", "dataset.bin"])
def test_a_run_that_was_killed_after_its_last_move_is_found_finished(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    """Wherever the moves of the finished store are cut off, the run after it ends well, and the one after that too."""
    stores, codes, was_there = [], [], []
    for left in itertools.count():
        place = tmp_path / str(left)
        place.mkdir()
        arguments = ["prepare", str(corpus), str(place / output), "--tokenizer", "char", "--on-bad", "skip"]
        arguments += ["--no-cache", "--json", "--resume"]
        killed = run_script(LAST_MOVES, left, *arguments)
        assert killed.returncode in (0, -signal.SIGKILL), killed.stderr
        codes.append(killed.returncode)
        again = []
        for _ in range(2):
            assert main(arguments) == 0
            again.append(json.loads(capsys.readouterr().out))
        was_there.append(again[0]["was_there"])
        assert again[1]["was_there"]
        assert {**again[0], "seconds": 0, "was_there": 0} == {**again[1], "seconds": 0, "was_there": 0}
        stores.append({name: data for name, data in files_of(place).items() if "report" not in name})
        assert any("report.json" in name for name in files_of(place))
        if killed.returncode == 0:
            break
    assert codes[-2] == -signal.SIGKILL and was_there[-2:] == [True, True] and not was_there[0]
    assert all(each == stores[-1] for each in stores)


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "a file more": ({"source": ["a.txt", "b.txt"]}, "was made not of b.txt"),
    "another file": ({"source": "b.txt"}, "was made also of a.txt, and not of b.txt"),
    "another tokenizer": ({"tokenizer": "char"}, "was made with another tokenizer"),
    "another recipe": ({"recipe": ["normalize"]}, "was made in another way: steps was"),
    "another reading": ({"documents": "line"}, "reading.documents was 'file' and is 'line'"),
    "another end": ({"eos": 0}, "eos_id was 4 and is 0"),
    "another type": ({"dtype": "uint32"}, "holds uint16, not uint32"),
    "a look at each record": ({"before": print}, "cannot be compared"),
}


@pytest.mark.parametrize("output", ["corpus", "dataset.bin"])
@pytest.mark.parametrize("case", OTHERS)
def test_a_finished_store_of_something_else_is_refused_and_what_differs_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, output: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.txt"):
        Path(name).write_text("abc")
    usual = {"source": "a.txt", "output": output, "tokenizer": CharTokenizer("abcd"), "cache_dir": "cache"}
    made = prepare(**usual)  # type: ignore[arg-type]
    other, found = OTHERS[case]

    with pytest.raises(StoreError, match="this store exists") as refused:
        prepare(**{**usual, **other}, resume=True)
    assert found in str(refused.value)
    Path("a.txt").write_text("cab")
    with pytest.raises(StoreError, match=r"another content of a\.txt"):
        prepare(**usual, resume=True)  # type: ignore[arg-type]
    Path("a.txt").write_text("abc")
    again = prepare(**usual, resume=True)  # type: ignore[arg-type]
    assert again.was_there and again.details == made.details
    with pytest.raises(StoreError, match="this store exists"):
        prepare(**usual)  # type: ignore[arg-type]


def _as_it_is(record: Record) -> Record:
    return record


def _upper(record: Record) -> Record:
    return replace(record, text=record.text.upper())


_upper.__name__, _upper.__qualname__ = _as_it_is.__name__, _as_it_is.__qualname__  # as after an edit


def test_a_function_of_the_recipe_that_has_changed_is_another_recipe(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc")
    usual: Any = (tmp_path / "a.txt", tmp_path / "corpus", CharTokenizer("abcABC"))
    prepare(*usual, recipe=[_as_it_is])

    assert prepare(*usual, recipe=[_as_it_is], resume=True).was_there
    with pytest.raises(StoreError, match="what its steps do has changed"):
        prepare(*usual, recipe=[_upper], resume=True)


LEARNED: dict[str, tuple[dict[str, Any], str]] = {
    "a tokenizer of another kind": ({"tokenizer": "bpe:300"}, r"another tokenizer \(char, not bpe:300\)"),
    "another file": ({"source": "b.txt"}, r"also of a\.txt, and not of b\.txt"),
    "another recipe": ({"recipe": ["normalize"]}, "in another way: steps was"),
    "another reading": ({"documents": "line"}, "reading.documents was 'file' and is 'line'"),
}


@pytest.mark.parametrize("cache", [True, False], ids=["cache", "no cache"])
@pytest.mark.parametrize("case", LEARNED)
def test_a_finished_store_of_something_else_is_refused_before_a_tokenizer_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, cache: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.txt"):
        Path(name).write_text("abc")
    usual: Any = {"source": "a.txt", "output": "corpus", "tokenizer": "char", "cache_dir": "cache", "cache": cache}
    prepare(**usual)
    other, found = LEARNED[case]
    tasks: list[str] = []

    with pytest.raises(StoreError, match=found) as refused:
        prepare(**{**usual, **other}, resume=True, progress=lambda progress: tasks.append(progress.task))
    assert "learn tokenizer" not in tasks
    assert "what its steps do" not in str(refused.value)
    assert prepare(**usual, resume=True).was_there


def test_a_vocabulary_that_is_larger_than_asked_for_is_refused_before_one_is_learned(tmp_path: Path) -> None:
    raw, corpus = tmp_path / "a.txt", tmp_path / "corpus"
    raw.write_text("the mill by the stream " * 20)
    prepare(raw, corpus, "bpe:265")
    tasks: list[str] = []

    with pytest.raises(StoreError, match=r"another tokenizer \(bpe-265, not bpe:260\)"):
        prepare(raw, corpus, "bpe:260", resume=True, progress=lambda progress: tasks.append(progress.task))
    assert "learn tokenizer" not in tasks
    with pytest.raises(StoreError, match=r"another tokenizer \(bpe-265, not bpe-270\)"):
        prepare(raw, corpus, "bpe:270", resume=True)
    assert prepare(raw, corpus, "bpe:265", resume=True).was_there


def test_a_finished_store_without_a_report_is_found_too(tmp_path: Path) -> None:
    rows = tmp_path / "a.jsonl"
    rows.write_text('{"text": "abc"}\n\n{"text": "b"}\n')
    made = prepare(rows, tmp_path / "corpus", "char")
    (tmp_path / "corpus" / "report.json").unlink()

    again = prepare(rows, tmp_path / "corpus", "char", resume=True)

    assert again.was_there and not (tmp_path / "corpus" / "report.json").exists()
    assert (again.skipped, again.documents, again.tokens) == (made.skipped, 2, made.tokens)


def test_what_an_unfinished_run_left_is_discarded_with_a_message_unless_resumed(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = run(corpus, tmp_path / "corpus", "", "", deadline=150)
    assert code != 0
    assert (tmp_path / ".corpus.preparing" / ".bookmark.json").exists()

    prepare(corpus, tmp_path / "corpus", CharTokenizer(sorted(ALPHABET)), on_bad="skip")

    assert "what an unfinished run left behind is removed" in caplog.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus"]


def test_a_run_that_would_make_something_else_does_not_go_on(corpus: Path, tmp_path: Path) -> None:
    code = run(corpus, tmp_path / "corpus", "", "", deadline=150)
    assert code != 0

    run(corpus, tmp_path / "corpus", "", "length,exact_dedup", deadline=0)
    run(corpus, tmp_path / "other", "", "length,exact_dedup", deadline=0)

    assert files_of(tmp_path / "corpus") == files_of(tmp_path / "other")


def test_two_runs_into_one_output_and_the_second_is_refused(corpus: Path, tmp_path: Path) -> None:
    running, refused = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        running.set()
        refused.wait(60)

    first = threading.Thread(
        target=prepare,
        args=(corpus, tmp_path / "corpus", CharTokenizer(sorted(ALPHABET))),
        kwargs={"on_bad": "skip", "progress": wait},
    )
    first.start()
    running.wait(60)
    with pytest.raises(StoreError, match="another process is preparing this store"):
        prepare(corpus, tmp_path / "corpus", "char")
    refused.set()
    first.join()

    assert TokenStore(tmp_path / "corpus").documents > 0


def test_the_second_run_is_found_and_a_changed_file_re_does_only_itself(corpus: Path, tmp_path: Path) -> None:
    source, cache = tmp_path / "source", tmp_path / "cache"
    shutil.copytree(corpus, source)
    tokenizer = CharTokenizer(sorted(ALPHABET))

    def made(output: str) -> tuple[int, int]:
        report = prepare(source, tmp_path / output, tokenizer, on_bad="skip", cache_dir=cache)
        return report.details["parts"]["made"], report.details["parts"]["found"]

    assert made("first") == (6, 0)
    assert made("second") == (0, 6)
    with (source / "1.jsonl").open("a") as file:
        file.write('\n{"text": "one more"}\n')
    assert made("third") == (1, 5)
    (source / "2.jsonl").rename(source / "3.jsonl")
    assert made("fourth") == (0, 6)
    assert {path: data for path, data in files_of(tmp_path / "second").items() if "report" not in path} == {
        path: data for path, data in files_of(tmp_path / "first").items() if "report" not in path
    }
