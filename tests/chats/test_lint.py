"""`lint` finds every kind of problem, names file and line, and holds no more memory for larger files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command import Run
from millstream import lint
from millstream.chats import Supervised, encode_block
from millstream.chats.block import EncodedBlock
from millstream.chats.lint_rules import TokenFacts, token_faults
from millstream.chats.parse import Conversation, Message, RowParser
from millstream.chats.parse.row_types import Stretch
from millstream.cli.main import main
from millstream.errors import MillstreamError, RecipeError, TokenizerError
from millstream.loaders import prepared_chat
from millstream.loaders.growing import RawSettings
from millstream.sources import Reading, format_named
from millstream.stats import LintReport, Progress
from millstream.stats.lint_report import MOST_KINDS, Finding
from millstream.tokens import BPETokenizer

TOKENIZER = BPETokenizer.train(["user assistant the mill by the stream\n  four"], vocab_size=270)
HOW: dict[str, Any] = {"tokenizer": TOKENIZER, "chat_template": "chatml", "add_control_tokens": True}
GOOD: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": f"{n}+1?"}, {"role": "assistant", "content": f"{n + 1}"}]}
    for n in range(4)
]


def messages(*turns: tuple[str, str | None], **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in turns], **more}


def found(report: LintReport, kind: str) -> Finding:
    return next(finding for finding in report.findings if finding.kind == kind)


def test_good_rows_are_good() -> None:
    report = lint(GOOD, **HOW)

    assert (report.ok, report.findings, report.rows, report.usable) == (True, [], 4, 4)
    assert (report.formats, sum(report.lengths.values())) == ({"messages": 4}, 4)
    assert report.tokens is not None
    assert report.trained_tokens == 2 * 4
    assert "nothing is wrong" in str(report)


@pytest.mark.parametrize(
    ("kind", "severity", "row"),
    [
        ("nothing learned", "error", {"messages": [GOOD[0]["messages"][0], {**GOOD[0]["messages"][1], "weight": 0}]}),
        ("empty answer", "warning", messages(("user", "2?"), ("assistant", " "))),
        ("control string", "warning", messages(("user", "a<|im_end|>"), ("assistant", "4"))),
        ("turns do not alternate", "warning", messages(("user", "a"), ("user", "b"), ("assistant", "4"))),
        ("turns do not alternate", "warning", messages(("assistant", "a"), ("user", "b"), ("assistant", "4"))),
        ("turns do not alternate", "warning", messages(("user", "a"), ("system", "b"), ("assistant", "4"))),
        ("ends unanswered", "note", messages(("user", "a"), ("assistant", "4"), ("user", "b"))),
        ("duplicate", "warning", {**GOOD[2], "id": 7}),
        ("unused field id", "note", messages(("user", "a"), ("assistant", "4"), id=7)),
        ("too long", "error", messages(("user", "a" * 300), ("assistant", "4"))),
        ("unknown role", "error", messages(("miller", "a"), ("assistant", "4"))),
        ("empty conversation", "error", {"messages": []}),
        ("no assistant turn", "error", messages(("user", "a"))),
        ("not Unicode", "error", messages(("user", "\ud800"), ("assistant", "4"))),
        ("wrong type", "error", {"messages": "none"}),
        ("missing field", "error", {"text": "a"}),
        (
            "tool result without call",
            "error",
            {"messages": [*GOOD[0]["messages"], {"role": "tool", "content": "7", "tool_call_id": "1"}]},
        ),
    ],
)
def test_every_problem_of_a_row_is_found_in_its_line_and_nowhere_else(
    tmp_path: Path, kind: str, severity: str, row: dict[str, Any]
) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in [*GOOD, row]))

    finding = found(lint(path, max_length=100, **HOW), kind)

    assert (finding.severity, finding.rows, finding.share) == (severity, 1, 1 / 5)
    assert [example.startswith("chats.jsonl:5") for example in finding.examples] == [True]
    assert finding.message
    assert finding.advice


def test_bad_bytes_cut_lines_and_blank_lines_have_their_places(tmp_path: Path) -> None:
    good = json.dumps(GOOD[0]).encode()
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([good, b"", b'{"messages": [{"ro', b"[]", b"\xff\xfe\x80", good]))

    report = lint(tmp_path / "a.jsonl", **HOW)

    assert (report.rows, report.usable) == (5, 2)
    assert found(report, "not JSON").examples[0].startswith("a.jsonl:3: ")
    assert found(report, "not an object").examples[0].startswith("a.jsonl:4: ")
    assert any("a.jsonl:5" in example for finding in report.findings for example in finding.examples)
    assert found(report, "duplicate").examples == ("a.jsonl:6: the same as a.jsonl:1",)


@pytest.mark.parametrize("content", [b"", b"\n \n", bytes(range(256)) * 99], ids=["empty", "blank", "binary"])
def test_a_file_without_a_conversation_is_an_error_not_a_crash(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)

    report = lint(tmp_path / "a.jsonl", **HOW)

    assert not report.ok
    assert report.usable == 0


def test_lines_are_counted_by_file_and_duplicates_are_found_across_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in GOOD))
    (tmp_path / "b.jsonl").write_text("\n" + json.dumps(GOOD[3]) + "\nnot json\n")

    report = lint(tmp_path, **HOW)

    assert found(report, "duplicate").examples == ("b.jsonl:2: the same as a.jsonl:4",)
    assert found(report, "not JSON").examples[0].startswith("b.jsonl:3: ")


def test_chunks_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [*GOOD, {"messages": []}, *GOOD, messages(("user", "a"), ("assistant", ""), id=1)] * 20
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole = lint(tmp_path / "a.jsonl", **HOW)
    from millstream.sources import Reading

    monkeypatch.setattr("millstream.chats.lint.Reading", lambda **given: Reading(**given, chunk_bytes=500))

    assert lint(tmp_path / "a.jsonl", **HOW) == whole
    assert found(whole, "duplicate").rows == 200 - 20 - 5


def test_without_a_tokenizer_only_what_rows_say_is_looked_at() -> None:
    report = lint([*GOOD, GOOD[0], messages(("user", "<|im_end|>"), ("assistant", ""))], chat_template="chatml")

    assert report.tokens is None
    assert {finding.kind for finding in report.findings} == {"duplicate", "empty answer", "control string"}
    assert "no tokenizer was given" in str(report)


def test_pairs_are_looked_at_on_both_sides_and_count_once() -> None:
    pairs = [
        {"prompt": "2+2?", "chosen": "4", "rejected": "5"},
        {"prompt": "2+2?", "chosen": "4", "rejected": "4"},
        {"prompt": "2+2?", "chosen": "four " * 30, "rejected": "five " * 30},
    ]

    report = lint(pairs, max_length=20, tokenizer=TOKENIZER)

    assert found(report, "same answers").examples == ("rows:2",)
    assert (found(report, "too long").rows, found(report, "too long").examples[0][:15]) == (1, "rows:3 chosen: ")


def test_a_completion_without_a_prompt_learns_everything() -> None:
    assert found(lint([{"prompt": "", "completion": "four"}], tokenizer=TOKENIZER), "everything learned").rows == 1


def test_straddlers_are_counted_and_refused_when_strict() -> None:
    rows = [messages(("user", "x"), ("assistant", "\n  four"))]
    tokenizer = BPETokenizer.train(["assistant\n\n  four " * 40], vocab_size=300)
    how = {**HOW, "tokenizer": tokenizer}

    report, strict = lint(rows, **how), lint(rows, strict=True, **how)

    kinds = {finding.kind: finding.severity for finding in report.findings}
    assert kinds.get("straddler") == "warning"
    assert found(strict, "straddler").severity == "error"


def test_what_truncation_mends_is_a_warning() -> None:
    rows = [messages(("user", "a" * 300), ("assistant", "4"))]

    assert found(lint(rows, max_length=100, truncation="drop", **HOW), "too long").severity == "warning"


def test_ids_beyond_the_vocabulary_are_found() -> None:
    report = lint([{"input_ids": [1, 2, 10**6], "labels": [-100, 2, 10**6]}], tokenizer=TOKENIZER)

    assert "id 1000000" in found(report, "unknown id").examples[0]


def row_of(ids: list[int], weights: list[float], places: list[int]) -> Supervised:
    return Supervised(np.array(ids, np.uint32), np.array(weights, np.float32), np.array(places, np.int32))


def test_a_learned_answer_without_its_stop_token_is_found() -> None:
    facts = TokenFacts(np.array([False, False, True]), None)
    chat = Conversation((Message("user", "a"), Message("assistant", "b")))
    parts = Conversation((Message("user", "a"), Message("assistant", "b", stretches=(Stretch(0, 1, 1.0),))))

    unstopped = row_of([0, 1, 2], [0, 1, 0], [0, 1, 1])

    assert list(token_faults(chat, unstopped, facts)) == [("stop not learned", "messages[1]")]
    assert list(token_faults(parts, unstopped, facts)) == []  # the row itself chose what is learned
    assert list(token_faults(chat, row_of([0, 1, 2], [0, 1, 1], [0, 1, 1]), facts)) == [
        ("everything learned", "3 tokens")
    ]


def test_two_beginnings_are_found() -> None:
    facts = TokenFacts(np.array([False, False, True]), None)
    chat = Conversation((Message("user", "a"), Message("assistant", "b")))

    assert list(token_faults(chat, row_of([2, 2, 0, 2], [0, 0, 1, 1], [-1, -1, 1, 1]), facts)) == [
        ("double beginning", "")
    ]


def test_names_of_fields_cannot_fill_the_memory() -> None:
    rows = [messages(("user", "a"), ("assistant", "4"), **{f"field{n}": 1}) for n in range(3 * MOST_KINDS)]

    assert len(lint(rows).findings) == MOST_KINDS


def test_nothing_in_the_data_gives_orders_to_the_terminal() -> None:
    rows = [{"messages": [{"role": "\x1b[2J\u202e", "content": "a"}]}]

    assert re.search("[\x1b\u202e]", str(lint(rows))) is None


def test_progress_is_told_and_the_template_is_checked(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in GOOD))
    told: list[Progress] = []

    lint(tmp_path / "a.jsonl", progress=told.append, **HOW)

    assert told[-1].done == told[-1].total
    with pytest.raises(TokenizerError, match="has no token for"):
        lint(GOOD, tokenizer=TOKENIZER, chat_template="chatml")
    with pytest.raises(MillstreamError, match="has no rows of several fields"):
        (tmp_path / "a.txt").write_text("x")
        lint(tmp_path / "a.txt")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_the_exit_code_is_the_answer_and_advice_names_flags(run: Run, tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "tokenizer.json")
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(GOOD[0]) + "\n")
    flags = ("-t", tmp_path / "tokenizer.json", "--template", "chatml", "--add-control-tokens")

    good = run("lint", path, *flags)
    long = run("lint", path, *flags, "--max-length", 5)
    told = json.loads(run("lint", path, *flags, "--max-length", 5, "--json")[1])
    gone = run("lint", tmp_path / "gone.jsonl")

    assert (good[0], long[0], gone[0]) == (0, 1, 2)
    assert "error  rows that are longer than max_length  (1 row, 100 %)" in long[1]
    assert "→ pass --truncation turns" in long[1]
    assert (told["ok"], told["findings"][0]["kind"], told["rows"]) == (False, "too long", 1)


def test_a_template_that_was_taken_although_it_would_train_wrong_is_found_out_by_its_rows() -> None:
    pytest.importorskip("jinja2")
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    )

    report = lint(GOOD, check_template=False, **{**HOW, "chat_template": template})

    assert (found(report, "stop not learned").rows, report.ok) == (4, False)


BAD: list[dict[str, Any]] = [
    {"messages": [GOOD[0]["messages"][0], {**GOOD[0]["messages"][1], "weight": 100}]},
    {**messages(("user", "<image>what?"), ("assistant", "4")), "images": ["a.png"]},
    {"prompt": "2+2?", "chosen": "4", "rejected": "5"},
    {"prompt": "2+2?", "completion": "4"},
    {"messages": [GOOD[0]["messages"][0], {**GOOD[0]["messages"][1], "weight": 0}]},
    messages(("user", "a" * 90), ("assistant", "4")),
    messages(("user", "a"), ("assistant", "4" * 90)),
    messages(("user", "a"), ("assistant", "4"), ("user", "a" * 40), ("assistant", "4" * 90)),
    messages(("user", "a"), ("assistant", None)),
    messages(("user", None), ("assistant", "4")),
    messages(("robot", "a"), ("assistant", "4")),
    messages(("user", "x"), ("assistant", "\n  four")),
    messages(("user", "x"), ("tool", "7"), ("assistant", "4")),
    {**messages(("user", "x"), ("assistant", "4")), "tools": [{"type": "function", "function": {"name": "f"}}]},
    {"messages": []},
    {"input_ids": [1, 2], "loss_mask": [1, 99]},
]


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.sampled_from([*GOOD, *BAD]), min_size=1, max_size=8),
    first=st.sampled_from([GOOD[0], BAD[2], {"input_ids": [1, 2], "loss_mask": [0, 1]}]),
    truncation=st.sampled_from(["error", "drop", "keep_end"]),
    more=st.sampled_from(
        [{}, {"strict": True}, {"untrained": "drop"}, {"media": "ignore"}, {"history_reasoning": "explode"}]
    ),
)
def test_lint_tells_of_every_row_that_a_loader_refuses_or_leaves_out(
    rows: list[dict[str, Any]], first: dict[str, Any], truncation: str, more: dict[str, Any]
) -> None:
    """And counts as usable those that it takes."""
    rows = [first, *rows]
    how: dict[str, Any] = {**HOW, "max_length": 64, "truncation": truncation, **more}
    try:
        report = lint(rows, **how)
    except RecipeError:
        with pytest.raises(RecipeError):
            loaded(rows, how)
        return
    made = loaded(rows, how)

    assert report.usable == len(rows) - len(made.bad)
    assert not (report.ok and made.bad)
    lost = len(rows) - len(set(made.places.tolist()))
    assert sum(finding.rows for finding in report.findings if finding.severity != "note") >= lost
    if not made.bad:
        errors = {finding.kind for finding in report.findings if finding.severity == "error"}
        assert errors <= {"same answers", "stop not learned"}  # what a loader takes, but no training should use


def loaded(rows: list[dict[str, Any]], how: dict[str, Any]) -> EncodedBlock:
    """What a loader makes of some rows."""
    reading = Reading(whole_rows=True)
    given = {name: value for name, value in how.items() if name not in ("tokenizer", "max_length")}
    (file,) = RawSettings().found(rows).files
    asked = prepared_chat(given, how["tokenizer"], how["max_length"])
    formats = asked.formats(reading)
    decided = asked.decided([file], formats)
    (chunk,) = format_named(file.format).chunks(file, reading)
    return encode_block(
        format_named(file.format).read(chunk, file, reading).block,
        RowParser(formats.of(file), decided.options),
        decided.encoder(TOKENIZER),
        decided.limit,
        decided.kind or "chat",
        explode=decided.explode,
        media=decided.media,
    )


def test_without_a_tokenizer_media_and_rows_of_another_kind_are_found_too() -> None:
    report = lint([GOOD[0], BAD[1], BAD[0]])

    assert {finding.kind for finding in report.findings} == {"pictures, films or sounds", "bad weight"}
    assert report.usable == 1
