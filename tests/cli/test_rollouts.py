"""Rollouts on the command line: `lint`, `show`, `inspect` and `explain`, of files and of spools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command import Run
from millstream import LoaderError, LossWarning, RecordError, RolloutDataLoader, lint
from millstream.feeds import SpoolFeed
from millstream.feeds.spool import SpoolSource
from millstream.rollouts import block_of, write_rollouts
from millstream.tokens import BPETokenizer

TOKENIZER = BPETokenizer.train(["2+2? the mill by the stream\n"], vocab_size=270)


def record(number: int, **more: Any) -> dict[str, Any]:
    prompt, answer = TOKENIZER.encode("2+2?\n"), TOKENIZER.encode(f"the mill {number}")
    said = {
        "rollout_id": f"r{number}",
        "group_id": f"g{number // 2}",
        "token_ids": prompt + answer,
        "loss_mask": [0] * len(prompt) + [1] * len(answer),
        "reward": float(number % 2),
        "finish": "stop",
        "sampling_logprobs": [-1.0] * len(prompt + answer),
        "policy_version": 4,
    }
    return {**said, **more}


GOOD = [record(number) for number in range(6)]


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "rollouts.jsonl", GOOD)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    TOKENIZER.save(tmp_path / "tokenizer.json")
    return tmp_path / "tokenizer.json"


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    for name in ("one", "two"):
        with SpoolSource(tmp_path / "spool", producer=name) as producer:
            producer.put(GOOD[:2] if name == "one" else GOOD[2:])
    return tmp_path / "spool"


def chats(path: Path) -> Path:
    return write(path, [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}])


def test_lint_tells_good_from_bad_by_its_exit_code(run: Run, source: Path, tmp_path: Path) -> None:
    code, out, err = run("lint", source)
    assert (code, out.splitlines()[0]) == (0, "6 rows, 6 usable (rollouts 6, groups 3)")
    assert "nothing is wrong" in out and err.startswith("lint: 6 rollouts")

    bad = write(tmp_path / "bad.jsonl", [*GOOD, record(6, loss_mask=[1]), record(0, reward=0.5), "no record"])
    code, out, _ = run("lint", bad)
    assert code == 1
    assert "bad.jsonl:7: " in out and "loss_mask has 1 values" in out
    assert "bad.jsonl:8: " in out and "bad.jsonl:9: " in out

    assert run("lint", tmp_path / "missing.jsonl")[0] == 2


def test_lint_measures_against_what_it_is_told_and_hints_name_flags(run: Run, source: Path) -> None:
    out = run("lint", source, "--max-tokens", 9, "--policy-version", 6, "--max-staleness", 1)[1]
    assert "error  rollouts with more tokens than fit  (6 rows, 100 %)" in out
    assert "raise --max-staleness" in out
    out = run("lint", source, "--policy-version", 3)[1]
    assert "tokens of a policy version that is not there yet" in out and "is --policy-version right?" in out


def test_lint_and_inspect_tell_the_largest_id_and_whether_the_tokenizer_has_it(
    run: Run, source: Path, tokenizer: Path, tmp_path: Path
) -> None:
    largest = max(max(each["token_ids"]) for each in GOOD)
    assert f"largest id {largest:,}\n" in run("lint", source)[1]
    assert f"ids       up to {largest:,}\n" in run("inspect", source, "--tokenizer", tokenizer)[1]
    strange = {**GOOD[5], "token_ids": [*GOOD[5]["token_ids"][:-1], 5000]}
    path = write(tmp_path / "strange.jsonl", [*GOOD[:5], strange])
    assert run("lint", path)[0] == 0
    code, out, _ = run("lint", path, "--tokenizer", tokenizer)
    assert code == 1 and "strange.jsonl:6: rollout 'r5'" in out and "another tokenizer" in out
    assert "the tokenizer ends at 269" in run("inspect", path, "--tokenizer", tokenizer)[1]
    with pytest.raises(RecordError, match=r"strange\.jsonl:6: unknown id: rollout 'r5' holds the id 5000"):
        RolloutDataLoader(path, model_config={"vocab_size": 300}, framework="numpy")
    with pytest.raises(RecordError, match=r"strange\.jsonl:1: too long: rollout 'r0' has 10 tokens, and 9 fit"):
        RolloutDataLoader(path, max_length=9, framework="numpy")


def test_every_kind_of_place_is_linted_alike(run: Run, source: Path, spool: Path, tmp_path: Path) -> None:
    write_rollouts(tmp_path / "own.rollouts", block_of(GOOD))
    (tmp_path / "array.json").write_text(json.dumps(GOOD))
    wanted = json.loads(run("lint", source, "--json")[1])
    for place in (tmp_path / "own.rollouts", tmp_path / "array.json", tmp_path / "*.jsonl", spool):
        code, out, _ = run("lint", place, "--json")
        assert code == 0 and json.loads(out) == wanted
    assert json.loads(run("lint", source, tmp_path / "own.rollouts", "--json")[1])["findings"][0]["kind"] == "repeated"


def test_a_spool_in_use_is_looked_at_and_left_alone(run: Run, spool: Path) -> None:
    (shard,) = (spool / "two").glob("*.rollouts")
    shard.write_bytes(shard.read_bytes()[:-3])
    feed = SpoolFeed(spool)
    assert sum(len(arrival.block) for arrival in feed.receive(timeout_s=5)) == 2
    before = sorted(path for path in spool.rglob("*"))

    code, out, _ = run("lint", spool)
    assert code == 1 and "damaged/two-" in out and "cut off" in out
    assert run("inspect", spool)[1].startswith("rollouts  2  (1 file, ")
    assert run("show", spool, "--rollout-id", "r1")[0] == 0
    assert sorted(path for path in spool.rglob("*")) == before
    feed.close()


def test_kinds_are_told_apart_and_keywords_of_the_other_kind_are_refused(
    run: Run, source: Path, tmp_path: Path
) -> None:
    other = chats(tmp_path / "chats.jsonl")
    assert "6 rows, 0 usable" in run("lint", source, "--kind", "chat")[1]
    assert "unknown field" in run("lint", other, "--kind", "rollouts")[1]
    code, _, err = run("lint", source, "--train", "last")
    assert code == 2 and "these are rollouts" in err and "leave out --train" in err and "--kind chat" in err
    assert "--max-tokens is the most tokens of a rollout" in run("lint", source, "--max-length", 9)[2]
    code, _, err = run("lint", other, "--policy-version", 3)
    assert code == 2 and "these are conversations" in err and "leave out --policy-version" in err
    with pytest.raises(LoaderError, match="max_staleness= is about rollouts"):
        lint(other, max_staleness=1)
    with pytest.raises(LoaderError, match="kind='texts' is unknown"):
        lint(other, kind="texts")  # type: ignore[arg-type]


def test_texts_need_a_tokenizer_and_what_became_of_them_is_a_finding(run: Run, tokenizer: Path, tmp_path: Path) -> None:
    texts = [{"prompt": "2+2?", "response": "the mill", "reward": float(reward)} for reward in range(2)]
    path = write(tmp_path / "texts.jsonl", texts)
    assert "pass --tokenizer" in run("lint", path)[1]
    code, out, err = run("lint", path, "--tokenizer", tokenizer)
    assert code == 0 and "rollouts of texts: the ids may not be those sampled" in out
    assert err == "lint: 2 rollouts  texts.jsonl\n"  # and no warning beside it


def test_show_prints_a_rollout_its_advantage_and_its_group(run: Run, source: Path, tokenizer: Path) -> None:
    code, out, _ = run("show", source, "--row", 3, "--tokenizer", tokenizer, "--estimator", "rloo")
    assert code == 0
    assert out == (
        "══ rollout 'r3' of group 'g1' (rollouts.jsonl:4)  "
        f"{len(GOOD[3]['token_ids'])} tokens, {sum(GOOD[3]['loss_mask'])} trained (50.0 %)  "
        "reward 1, ended by stop  policy 4\n"
        "2+2?\n⟦the mill 3⟧+1\n"
        "group 'g1': 2 rollouts, rewards from 0 to 1, mean 0.5 ± 0.707\n"
        "  'r2'  reward        0  advantage -1.0000      10 tokens  stop\n"
        "▶ 'r3'  reward        1  advantage +1.0000      10 tokens  stop    ████████████████████\n"
    )


def test_a_rollout_is_found_by_its_id_also_if_that_is_a_number(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [*GOOD, record(6, rollout_id=17), record(7)])
    assert run("show", path, "--rollout-id", "17")[1].startswith("══ rollout 17 of group 'g3'")
    code, _, err = run("show", path, "--rollout-id", "nobody")
    assert code == 2 and "there is no rollout 'nobody'" in err


def test_show_without_advantages_and_with_those_of_a_critic(run: Run, tokenizer: Path, tmp_path: Path) -> None:
    rows = [{**row, "values": [float(n % 3) for n in range(len(row["token_ids"]))]} for row in GOOD]
    path = write(tmp_path / "a.jsonl", rows)
    assert "⟦the mill 0⟧\n" in run("show", path, "-t", tokenizer, "--estimator", "none")[1]
    assert "▲ ▼ beyond ±" in run("show", path, "-t", tokenizer, "--estimator", "gae")[1]
    code, _, err = run("show", path, "--estimator", "luck")
    assert code == 2 and "there is no estimator 'luck'" in err


def test_show_of_a_step_is_what_the_loader_shows(run: Run, source: Path) -> None:
    with RolloutDataLoader(source, batch_size=2, seed=3, framework="numpy") as loader:
        wanted = loader.show(1, 2)
    assert run("show", source, "--step", 2, "--row", 1, "--batch-size", 2, "--seed", 3)[1] == wanted


def test_bad_records_do_not_keep_others_from_being_shown(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [record(9, loss_mask=[]), *GOOD[:1]])
    code, out, err = run("show", path)
    assert code == 0 and "(a.jsonl:2)" in out
    assert "left out, not counted among the rows: 1 unequal lengths" in err


def test_flags_of_the_other_kind_are_refused_by_show(run: Run, source: Path, tmp_path: Path) -> None:
    assert "leave out --train" in run("show", source, "--train", "last")[2]
    assert "leave out --estimator" in run("show", chats(tmp_path / "chats.jsonl"), "--estimator", "gae")[2]
    assert "there is no rollout 6 among 6 rollouts" in run("show", source, "--row", 6)[2]
    assert "the folder of a spool" in run("show", "redis://localhost/feed")[2]


def test_machines_get_the_parts_of_a_rollout(run: Run, source: Path, tokenizer: Path) -> None:
    parts = json.loads(run("show", source, "-t", tokenizer, "--row", 1, "--json")[1])["parts"]
    assert [part["style"] for part in parts if "⟦" in part["text"]] == ["better"]


def test_inspect_counts_what_there_is(run: Run, tmp_path: Path) -> None:
    rows = [
        *GOOD[:2],
        record(2, reward=1.0, finish="length", policy_version=7),
        record(3, policy_version={"start": 5, "end": 7}),
        record(4, reward=None),
        GOOD[0],
        record(6, loss_mask=[]),
    ]
    path = write(tmp_path / "a.jsonl", rows)
    code, out, _ = run("inspect", path)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith("rollouts  5  (1 file, ")
    assert "rewards   mean 0.75, from 0 to 1, 1 not scored (20.0 %)" in lines
    assert "groups    3 of 1 to 2, 1 (33.3 %) with one reward for all" in lines
    assert "ended by  stop 80.0 %, length 20.0 %" in lines
    assert "policies  versions 4 to 7, 20.0 % of the rollouts by several" in lines
    assert "left out  1 unequal lengths, 1 repeated  (`millstream lint` says where)" in lines
    assert "rewards:\n     0  ██████████████ 1\n     1  ████████████████████████████████████████ 3" in out
    assert "  8-15  ████████████████████████████████████████ 5" in out

    facts = json.loads(run("inspect", path, "--json")[1])
    assert (facts["rollouts"], facts["groups"]["constant"], facts["versions"]) == (5, 1, {"4": 3, "7": 2})
    assert facts["rewards"]["not_scored"] == 1


def test_inspect_of_a_file_of_nothing_but_bad_records_says_so(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("inspect", write(tmp_path / "a.jsonl", [record(0, loss_mask=[])]))
    assert code == 0 and "left out  1 unequal lengths" in out


def test_explain_names_the_rollouts_of_a_step_and_the_steps_of_a_rollout(
    run: Run, source: Path, tokenizer: Path
) -> None:
    run_flags = ("--batch-size", 2, "--seed", 3)
    rows = json.loads(run("explain", source, "--step", 1, *run_flags, "--json")[1])["rows"]
    out = run("explain", source, "--step", 1, *run_flags, "-t", tokenizer)[1]
    assert out.startswith("step 1: 2 rollouts\nrow 0    rollouts.jsonl:")
    assert f"rollout {rows[0]['rollout_id']!r} of group" in out and "2+2?↵the mill" in out
    for row in rows:
        steps = run("explain", source, "--rollout-id", row["rollout_id"], *run_flags)[1].splitlines()
        assert steps[0].endswith("is used in 1 step of this epoch:") and steps[1] == "1"
        assert json.loads(run("explain", source, "--document", row["rollout"], *run_flags, "--json")[1])["steps"] == [1]


def test_explain_refuses_what_is_about_stores(run: Run, source: Path, corpus: Path) -> None:
    assert "leave out --state" in run("explain", source, "--step", 0, "--state", "s.json")[2]
    assert "about stores" in run("explain", source, "--step", 0, "--packing")[2]
    assert "step 0 has no row 9" in run("explain", source, "--step", 0, "--row", 9)[2]
    assert "leave out --rollout-id" in run("explain", corpus, "--rollout-id", "r1")[2]


def test_a_spool_whose_rollouts_are_gone_says_so_and_where_to_look(run: Run, spool: Path, tmp_path: Path) -> None:
    feed = SpoolFeed(spool)
    while arrivals := feed.receive(timeout_s=1):
        feed.release(arrivals[-1].cursor)
    feed.close()
    SpoolSource(tmp_path / "fresh", producer="one").close()
    for verb in (["inspect"], ["show"], ["lint"], ["explain", "--step", 0]):
        code, _, err = run(*verb, spool)
        assert code == 2 and "this spool is empty: 2 shards came, and all were released" in err
        assert "millstream explain CACHE_DIR" in err
        assert "this spool is empty: nothing has come yet" in run(*verb, tmp_path / "fresh")[2]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.parquet", "a.rollouts", "a.msgpack"])
def test_an_empty_file_is_said_to_be_empty(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    for verb in (["inspect"], ["show"], ["explain", "--step", 0]):
        code, out, err = run(*verb, tmp_path / name)
        assert (code, out) == (2, "") and "the file is empty" in err and "hint: " in err
    assert run("lint", tmp_path / name)[0] == 1


def test_a_file_that_is_torn_says_where_and_what_to_do(run: Run, source: Path, tmp_path: Path) -> None:
    own, rows = tmp_path / "own.rollouts", tmp_path / "rows.jsonl"
    write_rollouts(own, block_of(GOOD))
    own.write_bytes(own.read_bytes()[:-5])
    rows.write_bytes(source.read_bytes()[:40])
    for verb in (["show"], ["explain", "--step", 0]):
        assert "own.rollouts:1: cut off: the block at byte 0 has no end" in (err := run(*verb, own)[2])
        assert "get it again" in err
    for verb in (["inspect"], ["show"], ["explain", "--step", 0]):
        assert "no row of it can be read" in (err := run(*verb, rows)[2]) and "millstream lint" in err
    assert "get it again" in run("lint", own)[1] and "rows.jsonl:1" in run("lint", rows)[1]


@pytest.mark.parametrize("how", [{}, {"keep_groups": True, "batch_size": 1}, {"live": {"passes": 2}}])
def test_a_run_over_a_feed_is_explained_from_its_journal_while_it_goes_on(
    run: Run, spool: Path, tmp_path: Path, how: dict[str, Any]
) -> None:
    cache, saved = tmp_path / "cache", tmp_path / "state.json"
    live = {"group_size": 2, "groups_per_batch": 2, "policy_version": 4, **how.pop("live", {})}
    settings = {"batch_size": 2, "seed": 3, "world_size": 1, **how}
    with RolloutDataLoader(spool, live=live, framework="numpy", cache_dir=cache, **settings) as loader:
        trained = [loader.next().metadata for _ in range(2)]
        saved.write_text(json.dumps(loader.state_dict()))
        for step, facts in enumerate(trained):
            told = json.loads(run("explain", cache, "--step", step, "--state", saved, "--json")[1])
            assert [row["rollout_id"] for row in told["rows"]] == facts["rollout_id"]
            assert [row["group_id"] for row in told["rows"]] == facts["group_id"]
            assert (told["rollout_batch"], told["pass"]) == (facts["rollout_batch"], facts["pass"])
            name = facts["rollout_id"][0]
            assert (
                step in json.loads(run("explain", cache, "--rollout-id", name, "--state", saved, "--json")[1])["steps"]
            )
        if not how and "passes" not in live:
            code, out, err = run("explain", cache / "admissions.jsonl", "--step", 1, "--batch-size", 2, "--seed", 3)
            first = trained[1]["rollout_id"][0]
            assert code == 0 and out.startswith(
                "step 1: 2 rollouts of rollout batch 0, pass 0, policy version 4\nrow 0 "
            )
            assert f"rollout {first!r} of group" in out and "--state knows how" in err
    assert "the journal does not know step 9" in run("explain", cache, "--step", 9)[2]
    assert "step 0 has no row 9" in run("explain", cache, "--step", 0, "--row", 9)[2]
    assert "leave out --document" in run("explain", cache, "--document", 1)[2]
    for verb in ("inspect", "show", "lint"):
        for place in (cache, cache / "admissions.jsonl"):
            code, _, err = run(verb, place)
            assert code == 2 and "this is the journal of a run over a feed" in err and "files, a spool, or" in err
    if not how and "passes" not in live:
        SpoolSource(cache, producer="one").close()  # a folder may be both
        assert "nothing has come yet" in run("lint", cache)[2]
        assert run("lint", "--kind", "chat", cache / "admissions.jsonl")[0] == 1  # it is what it is said to be


def test_explaining_a_run_says_what_was_dropped(run: Run, tmp_path: Path) -> None:
    with SpoolSource(tmp_path / "spool", producer="one") as producer:
        producer.put([*GOOD[:4], record(9, group_id="g1"), record(8, group_id="g1", finish="abort")])
    live = {"group_size": 2, "groups_per_batch": 2, "policy_version": 4}
    how: dict[str, Any] = {"live": live, "batch_size": 4, "framework": "numpy", "cache_dir": tmp_path / "cache"}
    with pytest.warns(LossWarning), RolloutDataLoader(tmp_path / "spool", **how) as loader:
        assert len(list(loader)) == 1
    assert "dropped before this rollout batch: 1 late, 1 abort" in run("explain", tmp_path / "cache", "--step", 0)[1]


def test_the_state_of_another_loader_does_not_explain_a_run(run: Run, source: Path, tmp_path: Path) -> None:
    (tmp_path / "admissions.jsonl").touch()
    with RolloutDataLoader(source, framework="numpy") as loader:
        (tmp_path / "state.json").write_text(json.dumps(loader.state_dict()))
    code, _, err = run("explain", tmp_path, "--state", tmp_path / "state.json")
    assert code == 2 and "the state of a 'rollout' loader" in err
