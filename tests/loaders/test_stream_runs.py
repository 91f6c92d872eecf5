"""Runs over streams: epochs, ranks, caches, states and what past steps held."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from forks import in_child
from loaders.corpora import LENGTH, TOKENIZER, corpus, epoch_of, parts_of, ranks_of, rows_of, stream, words_of
from loaders.mixtures import Source, mixed
from loaders.samples import follows_its_hint, ran, run_script
from millstream import FingerprintError, LoaderError, StateError, UnknownLength
from millstream.loaders import merge_states
from millstream.loaders.growing import StreamSource
from millstream.loaders.growing.stream import AHEAD

FOLDER = corpus((("jsonl", (3,) * 60), ("jsonl.gz", (5,) * 30), ("csv", (4,) * 30)))
LARGE = corpus((("jsonl", (9,) * 300), ("csv", (9,) * 300)))
SHARES = (8000, 800, 200, 100)


def source_of(loader: Any, name: str = "data") -> StreamSource:
    found = loader._run.growing.sources[name]
    assert isinstance(found, StreamSource)
    return found


def take(loader: Any, steps: int) -> list[Any]:
    return [loader.next().input_ids.tolist() for _ in range(steps)]


def records_in(log: Path) -> dict[int, bytes]:
    """The records of a log of windows by their places; threads that make windows ahead add more."""
    data = log.read_bytes()
    records = {place: data[place : place + 24] for place in range(0, len(data), 24)}
    return {place: record for place, record in records.items() if any(record)}


def size_if_there(path: Path) -> int:
    """A thread may drop it meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


# Epochs


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_files_of_any_size_have_their_share_and_an_epoch_delivers_each_document_once(tmp_path: Path, kind: str) -> None:
    """Whatever its size is, no file runs out before the others."""
    texts = [[f"{file} {number:06d}" for number in range(count)] for file, count in enumerate(SHARES)]
    for file, each in enumerate(texts):
        lines = [json.dumps({"text": text}) for text in each] if kind == "jsonl" else ["text", *each]
        (tmp_path / f"{file}.{kind}").write_text("\n".join(lines) + "\n")
    row = len(texts[0][0]) + 1  # a document and its end
    with stream(tmp_path, cut=400, chunk_size=row, tail="pad", batch_size=100, cache_dir=tmp_path / "cache") as loader:
        for _ in range(2):
            found = [TOKENIZER.decode(list(ids[:-1])) for ids in epoch_of(loader)]
            assert sorted(found) == sorted(text for each in texts for text in each)
            for at in range(0, len(found), fifth := len(found) // 5):
                counts = Counter(int(text[0]) for text in found[at : at + fifth])
                for file, count in enumerate(SHARES):  # units of some twenty documents are dealt
                    assert abs(counts[file] - count / 5) < 6 * (20 * count / 5) ** 0.5
        assert loader.get_num_batches() == len(found) // 100


@pytest.mark.parametrize("cut", [64, 1 << 20])
def test_every_epoch_holds_every_document_once_and_is_shuffled_anew(cut: int) -> None:
    with stream(FOLDER, cut=cut, tail="pad") as loader:
        epochs = [epoch_of(loader) for _ in range(3)]
        rows = [sorted(epoch) for epoch in epochs]
        assert rows[0] == rows[1] == rows[2]
        assert epochs[0] != epochs[1] != epochs[2]
    with stream(FOLDER, cut=cut, tail="pad", shuffle=False) as loader:
        tokens = [token for row in epoch_of(loader) for token in row]
    assert Counter(words_of(tokens))[words_of(tokens)[0]] == 1
    numbers = [int(text.split()[0]) for text in words_of(tokens) if text.split()]
    assert numbers == list(range(120))


def test_the_last_batch_is_short_or_dropped_or_filled_up() -> None:
    with stream(FOLDER, batch_size=5) as loader:
        sizes = [batch.metadata["rows"] for batch in loader]
        assert sizes[:-1] == [5] * (len(sizes) - 1) and sum(sizes) == 391 and sizes[-1] == 1
        assert "dropped_rows" not in loader.losses
    with stream(FOLDER, batch_size=5, drop_last=True) as loader:
        assert [batch.metadata["rows"] for batch in loader] == [5] * 78
        assert loader.losses["dropped_rows"] == 1
    with stream(FOLDER, batch_size=5, pad_last=True) as loader:
        *_, last = loader
        assert last.metadata["filler"] == [False, True, True, True, True]


def test_the_length_is_unknown_until_an_epoch_was_counted() -> None:
    with stream(FOLDER, batch_size=16) as loader:
        for ask in (loader.get_num_batches, lambda: len(loader)):
            with pytest.raises(UnknownLength) as refused:
                ask()
            assert "cache_dir" in follows_its_hint(refused.value)
        epochs = [[batch.metadata["epoch"] for batch in loader] for _ in range(3)]
        assert [set(epoch) for epoch in epochs] == [{0}, {1}, {2}]
        assert loader.get_num_batches() == len(epochs[0]) == len(epochs[1]) == len(loader)
        loader.reset()
        assert loader.get_num_batches() == len(epochs[0])


def test_a_new_process_knows_the_length_from_the_cache(tmp_path: Path) -> None:
    """And makes nothing again."""
    with stream(FOLDER, batch_size=16, cache_dir=tmp_path) as loader:
        rows = epoch_of(loader)
        batches = loader.get_num_batches()

    def again() -> Any:
        with stream(FOLDER, batch_size=16, cache_dir=tmp_path) as loader:
            known = loader.get_num_batches()
            return known, epoch_of(loader), parts_of(loader)["made"]

    assert in_child(again)() == (batches, rows, 0)
    with stream(FOLDER, batch_size=16, cache_dir=tmp_path, seed=1) as other, pytest.raises(UnknownLength):
        other.get_num_batches()  # its windows are others


def test_a_corpus_that_is_smaller_than_a_row_is_an_error_each_time(tmp_path: Path) -> None:
    """Also in a process that knows it from the cache."""
    (tmp_path / "a.jsonl").write_text('{"text": "ab"}\n')
    how: dict[str, Any] = {"cache_dir": tmp_path / "cache"}
    with stream(tmp_path / "a.jsonl", **how) as loader:
        for _ in range(2):
            with pytest.raises(LoaderError, match="3 tokens are fewer than one row of 7") as refused:
                loader.next()
            assert "chunk_size" in follows_its_hint(refused.value)
    with pytest.raises(LoaderError, match="3 tokens are fewer"):
        stream(tmp_path / "a.jsonl", **how)
    with stream(tmp_path / "a.jsonl", tail="pad", **how) as loader:
        assert len(epoch_of(loader)) == 1


def test_files_without_a_record_are_an_error_too(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n\n")
    (tmp_path / "b.jsonl").write_text("")
    with stream(tmp_path) as loader, pytest.raises(LoaderError, match="0 tokens are fewer"):
        loader.next()


# Ranks


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_any_number_of_ranks_shares_the_rows_of_one(ranks: int, tmp_path: Path) -> None:
    with ranks_of(FOLDER, 1, 30) as one, ranks_of(FOLDER, ranks, 30, cache_dir=tmp_path) as several:
        assert several.steps(30) == one.steps(30)
        states = [loader.state_dict() for loader in several.loaders]
        assert all(state == states[0] for state in states)
        made = sum(parts_of(loader)["made"] for loader in several.loaders)
        assert made == source_of(one.loaders[0]).stream.units.count, "each part once, by one of them"


def test_the_iterators_of_two_ranks_end_together(tmp_path: Path) -> None:
    """One after the other, each in its own process, or on one cache: no rank waits for another."""
    found = []
    for rank in range(2):
        with stream(FOLDER, rank=rank, world_size=2, batch_size=8) as loader:
            found.append([[row.inputs for row in rows_of(batch)] for batch in loader.get_iterator()])
            assert loader.epoch == 1
    with stream(FOLDER, batch_size=16) as whole:
        expected = [[row.inputs for row in rows_of(batch)] for batch in whole]
    assert [one + other for one, other in zip(*found, strict=True)] == expected


def test_ranks_without_a_shared_cache_are_told_that_each_does_all_the_work(tmp_path: Path) -> None:
    """By one of them, once."""
    with (
        pytest.warns(UserWarning, match="no cache is shared, so each of 2 ranks") as told,
        stream(FOLDER, rank=0, world_size=2) as loader,
    ):
        assert len(take(loader, 100)) == 100
    assert [each.filename for each in told] == [__file__]
    for how in ({"rank": 1, "world_size": 2}, {"rank": 0, "world_size": 2, "cache_dir": tmp_path}, {}):
        with warnings.catch_warnings(), stream(FOLDER, **how) as loader:
            warnings.simplefilter("error")
            loader.next()


# Caches


def test_a_limited_cache_stays_small_and_changes_no_row(tmp_path: Path) -> None:
    with stream(LARGE, cut=300, batch_size=30) as plain:
        expected = [epoch_of(plain) for _ in range(2)]
    limit = 60_000
    with stream(LARGE, cut=300, batch_size=30, cache_dir=tmp_path, cache_limit=limit) as loader:
        found, held = [], 0
        for _ in range(2):
            rows = []
            for batch in loader:
                rows += [row.inputs for row in rows_of(batch)]
                held = max(held, sum(map(size_if_there, tmp_path.rglob("*.bin"))))
            found.append(rows)
        units = source_of(loader).stream.units.count
        assert parts_of(loader)["made"] > units, "what was dropped is made again"
    assert found == expected
    whole = sum(len(row) for row in expected[0]) * 2
    assert held <= limit < whole * 4


def test_parts_that_were_dropped_meanwhile_are_made_again(tmp_path: Path) -> None:
    with (
        stream(LARGE, cut=300, batch_size=4) as plain,
        stream(LARGE, cut=300, batch_size=4, cache_dir=tmp_path) as loader,
    ):
        expected = take(plain, 60)
        found = take(loader, 5)
        for path in [each for done in tmp_path.rglob("0*.json") for each in done.parent.glob(f"{done.stem}.*")]:
            path.unlink(missing_ok=True)  # a lock goes by itself
        assert found + take(loader, 55) == expected


def test_damaged_parts_of_a_cache_are_made_again(tmp_path: Path) -> None:
    how: dict[str, Any] = {"cut": 300, "batch_size": 30, "cache_dir": tmp_path}
    with stream(LARGE, **how) as loader:
        expected = epoch_of(loader)
    damaged = sorted(tmp_path.rglob("*.bin"))[::7]
    for path in damaged:
        path.write_bytes(path.read_bytes()[:-3] + b"\x07\x07\x07")
    with stream(LARGE, **how) as loader:
        assert epoch_of(loader) == expected
        assert parts_of(loader)["made"] == len(damaged)


def test_other_files_tokenizers_and_recipes_have_parts_of_their_own(tmp_path: Path) -> None:
    for how in ({}, {"recipe": ["normalize"]}, {"eos": None}, {"cut": 65}, {"seed": 1}, {"batch_size": 3}):
        with stream(FOLDER, cache_dir=tmp_path, **how) as loader:
            loader.next()
            assert (parts_of(loader)["made"] == 0) == (how in ({"seed": 1}, {"batch_size": 3})), how
            if not how:
                list(loader)
    assert len(list((tmp_path / "streams").iterdir())) == 4


def test_a_recipe_that_cannot_be_identified_is_kept_in_memory(tmp_path: Path) -> None:
    seen: list[int] = []

    def counted(record: Any, store: list[int] = seen) -> Any:
        store.append(1)
        return record

    with stream(FOLDER, recipe=[counted], cache_dir=tmp_path) as loader:
        loader.next()
        assert seen and (loader.get_profiling_results()["memory"].get("windows", 0) > 0) == (
            not list(tmp_path.rglob("*.bin"))
        )


# States


def test_resuming_makes_at_most_one_window_again_and_none_before_it() -> None:
    """Beside what is made ahead."""
    how: dict[str, Any] = {"cut": 300, "batch_size": 1}
    larger = corpus((("jsonl", (9,) * 900), ("csv", (9,) * 900)))
    with stream(larger, **how) as loader:
        rows = take(loader, 900)
        windows = source_of(loader).windows
        state, place = json.loads(json.dumps(loader.state_dict())), windows.window_at(900)
        saved = state["streams"]["data"]
        assert place >= 4 and saved == {
            "window": place,
            "token": windows.starts.token(place),
            "check": saved["check"],
        }
        in_use = set(windows.plan.units_of(place))
        following_windows = range(place + 1, place + 1 + 2 * AHEAD)  # those in use, and those made ahead
        ahead = {unit for window in following_windows for unit in windows.plan.units_of(window)}
        following = take(loader, 4)
        assert windows.window_at(904) == place
    with stream(larger, **how) as loader:
        loader.load_state_dict(state)
        assert take(loader, 4) == following
        maker = source_of(loader).windows.maker
        kept = {unit for unit in range(maker.units.count) if maker.kept.find(unit)}
        assert in_use <= kept <= in_use | ahead and maker.made <= len(in_use | ahead)
    with stream(larger, **how) as loader:
        loader.load_state_dict(state)
        loader.reset()
        assert take(loader, 900) == rows


def test_a_state_resumes_on_another_number_of_ranks_in_any_epoch(tmp_path: Path) -> None:
    with ranks_of(FOLDER, 1, 12) as one:
        expected = one.steps(120)
    for steps in (0, 1, 20, 32, 33, 60, 100):
        with ranks_of(FOLDER, 3, 12) as run:
            before = run.steps(steps)
            state = run.state()
        assert ("unknown_length" in state) == (steps < 33), steps
        with ranks_of(FOLDER, 2, 12) as other:
            other.load(state)
            after = other.steps(10)
        assert before + after == expected[: len(before) + len(after)]


def test_a_state_is_small_and_equal_on_all_ranks() -> None:
    with ranks_of(FOLDER, 3, 12) as run:
        for _ in range(3):
            run.steps(20)
            assert len(json.dumps(run.state())) < 2000


def test_states_of_different_steps_are_not_merged() -> None:
    with ranks_of(FOLDER, 2, 4) as run:
        first = run.state()
        run.steps(1)
        with pytest.raises(StateError, match="differ in step"):
            merge_states([first, run.state()])
    with pytest.raises(StateError, match="no states"):
        merge_states([])


def test_the_state_of_other_data_another_recipe_or_seed_is_refused_says_why_and_changes_nothing(tmp_path: Path) -> None:
    with stream(FOLDER, batch_size=4) as loader:
        take(loader, 30)
        state = json.loads(json.dumps(loader.state_dict()))
        assert state["streams"]["data"]["window"] > 1
    other = corpus((("jsonl", (3,) * 161),))
    for folder, how, error, message in (
        (other, {}, FingerprintError, "files: 3 then, 1 now"),
        (FOLDER, {"recipe": ["normalize"]}, FingerprintError, "recipe"),
        (FOLDER, {"cut": 65}, FingerprintError, "reading"),
        (FOLDER, {"eos": None}, FingerprintError, "eos"),
        (FOLDER, {"seed": 1}, StateError, "seed=0"),
        (FOLDER, {"name": "web"}, StateError, "name='data'"),
        (FOLDER, {"tail": "pad"}, StateError, "tail"),
        (FOLDER, {"documents": "isolate"}, StateError, "documents"),
    ):
        with stream(folder, cache_dir=tmp_path, **how) as wrong, stream(folder, **how) as same:
            with pytest.raises(error, match=message) as refused:
                wrong.load_state_dict(state)
            follows_its_hint(refused.value)
            assert wrong.step == 0 and take(wrong, 60) == take(same, 60)


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_place_that_was_edited_is_refused_before_a_window_is_made(epoch: int) -> None:
    """Nothing else tells a loader without a cache that its rows would be others."""
    with stream(LARGE, cut=300, batch_size=4) as loader:
        for _ in range(epoch):
            assert list(loader)
        take(loader, 60)
        state = json.loads(json.dumps(loader.state_dict()))
        following = take(loader, 3)
    place = state["streams"]["data"]
    assert place["window"] >= 3 and ("tokens" in place) == (epoch == 1)
    with stream(LARGE, cut=300, batch_size=4) as loader:
        for name in place.keys() - {"check"}:
            for by in (-LENGTH, -1, 1, LENGTH):
                with pytest.raises(StateError) as refused:
                    loader.load_state_dict({**state, "streams": {"data": {**place, name: place[name] + by}}})
                assert "damaged" in follows_its_hint(refused.value)
        assert loader.step == 0 and parts_of(loader) == {"made": 0, "found": 0}
        loader.load_state_dict(state)
        assert take(loader, 3) == following
        earlier = {name: value for name, value in place.items() if name != "check"}
        loader.load_state_dict({**state, "streams": {"data": earlier}})
        assert take(loader, 3) == following


@pytest.mark.parametrize("epoch", [0, 1])
def test_honest_a_resumed_run_says_what_it_could_not_count(tmp_path: Path, epoch: int) -> None:
    """Until it has read that, too."""
    path, lines = tmp_path / "a.jsonl", [json.dumps({"text": "some of the words"}) + "\n"] * 3 + ["{broken\n"]
    path.write_text("".join(lines * 60))
    how: dict[str, Any] = {"on_bad": "skip", "batch_size": 4, "cut": 100}
    with stream(path, **how) as loader:
        for _ in range(epoch):
            assert list(loader)
        take(loader, 60)
        state, windows = loader.state_dict(), source_of(loader).windows
        window = state["streams"]["data"]["window"]
        before = sum(len(windows.plan.units_of(each)) for each in range(windows.plan.windows if epoch else window))
        assert list(loader)
        whole = loader.losses
    assert whole["left_out:data:not JSON"] == 60 and "uncounted_units:data" not in whole
    with stream(path, **how) as loader:
        loader.load_state_dict(state)
        assert loader.losses["uncounted_units:data"] == before > 0
        assert list(loader)
        assert loader.losses["left_out:data:not JSON"] < 60 and loader.losses["uncounted_units:data"] > 0
        assert list(loader)
        assert loader.losses == whole


DAMAGE: list[dict[str, Any]] = [
    {"streams": None},
    {"streams": {"data": None}},
    {"streams": {"data": {}}},
    {"streams": {"data": {"window": 0, "token": 5}}},
    {"streams": {"data": {"window": 10**6, "token": 5}}},
    {"streams": {"data": {"window": -1, "token": 5}}},
    {"streams": {"data": {"window": 3, "token": "many"}}},
    {"streams": {"data": {"window": 1, "token": 10**9}}},
    {"streams": {"data": {"window": 1, "token": 2**80}}},
    {"streams": {"data": {"window": True, "token": 5}}},
    {"phases": []},
    {"step": -1},
    {"offset": 7},
    {"epoch": 3},
    {"loader": "mixed"},
]


@pytest.mark.parametrize("damage", DAMAGE, ids=str)
def test_a_damaged_state_changes_nothing(tmp_path: Path, damage: dict[str, Any]) -> None:
    """Neither the run nor what others will find in the cache."""
    with (
        stream(FOLDER, cut=40, batch_size=4, cache_dir=tmp_path) as loader,
        stream(FOLDER, cut=40, batch_size=4) as same,
    ):
        take(loader, 9), take(same, 9)
        logs = {path: records_in(path) for path in tmp_path.rglob("*.log")}
        state = {**loader.state_dict(), **damage}
        with pytest.raises(StateError) as refused:
            loader.load_state_dict(state)
        follows_its_hint(refused.value)
        assert loader.step == 9 and loader.state_dict() == same.state_dict()
        assert all(records_in(path).items() >= before.items() for path, before in logs.items())
        assert take(loader, 120) == take(same, 120)
        assert len(logs) == 1 and all(records_in(path).items() >= before.items() for path, before in logs.items())


OF_ORDER_1: dict[str, dict[str, Any]] = {
    "stream": {
        "rows": {"documents": "attend", "chunk_size": 7},
        "data": {"fingerprint": "4a1943f30f8919ffd1b68f1cd62f1b9b", "files": 1, "bytes": 830, "ranges": 5},
        "cursors": [[0, 0, 0, 14]] * 4,
        "lane_tokens": [None] * 4,
    },
    "mixed stream": {
        "rows": {"documents": "attend", "epoch_size": None, "drop_last": False, "chunk_size": 7},
        "lanes": 4,
        "blends": [[0, ["web", 2]]],
        "data": {"web": {"fingerprint": "4a1943f30f8919ffd1b68f1cd62f1b9b", "files": 1, "bytes": 830, "ranges": 5}},
        "streams": {"web": {"cursors": [[0, 0, 0, 14]] * 4, "lane_tokens": [None] * 4}},
    },
}
"""States as the version before wrote them, whose streams had lanes."""


@pytest.mark.parametrize("kind", OF_ORDER_1)
def test_a_state_of_the_first_order_of_streams_is_refused_and_says_that_there_is_a_second(kind: str) -> None:
    old = {
        "format": "millstream state",
        "version": 1,
        "order_version": 1,
        "loader": kind,
        "step": 1,
        "seed": 0,
        "sample": 8,
        "steps": [[0, 0, 8, 1]],
        **OF_ORDER_1[kind],
    }
    opened = stream(FOLDER) if kind == "stream" else mixed({"web": Source(FOLDER)}, seed=0)
    with opened as loader:
        for ask in (loader.load_state_dict, loader.commit):
            with pytest.raises(StateError, match="order version 1") as refused:
                ask(old)
            assert "the order of streams is version 2" in follows_its_hint(refused.value)
        assert loader.step == 0


# Moving and explaining


def test_seek_goes_anywhere_that_is_known_and_not_into_the_unknown(tmp_path: Path) -> None:
    how: dict[str, Any] = {"cut": 300, "batch_size": 6, "cache_dir": tmp_path}
    with stream(LARGE, **how) as loader:
        rows = take(loader, 30)
        for step in (4, 29, 0, 17):
            loader.seek(step)
            assert take(loader, 1) == [rows[step]]
        with pytest.raises(UnknownLength) as refused:
            loader.seek(10**6)
        assert "cache_dir" in follows_its_hint(refused.value)
        assert take(loader, 1) == [rows[18]]
        list(loader), list(loader)
    with stream(LARGE, **how) as loader:
        loader.seek(25)
        assert take(loader, 5) == rows[25:]
        loader.seek(10**6)  # an epoch was counted, so each step is known
        assert loader.next().metadata["step"] == 10**6


@pytest.mark.parametrize("kept", ["disk", "memory"])
def test_past_steps_are_explained_also_those_whose_windows_were_dropped(tmp_path: Path, kept: str) -> None:
    where: dict[str, Any] = {"cache_dir": tmp_path, "cache_limit": 1} if kept == "disk" else {}
    with stream(LARGE, cut=300, batch_size=8, **where) as loader:
        rows = take(loader, 140)
        for step in (0, 5, 60, 139):
            origins = loader.explain(step)
            assert [origin.text for origin in origins] == [TOKENIZER.decode(row) for row in rows[step]]
            for origin in origins:
                assert sum(span.stop - span.start for span in origin.spans) == LENGTH
                assert all(step in loader.steps_of(span.document) for span in origin.spans)
        assert take(loader, 1) != rows[-1:], "it went on where it stood"
        with pytest.raises(UnknownLength) as refused:
            loader.explain(10**6)
        follows_its_hint(refused.value)
        with pytest.raises(LoaderError, match="no document") as none:
            loader.steps_of(1 << 60)
        follows_its_hint(none.value)


def test_a_log_beside_the_checkpoint_explains_the_past_to_a_new_process(tmp_path: Path) -> None:
    how: dict[str, Any] = {"cut": 300, "batch_size": 8}
    with stream(LARGE, cache_dir=tmp_path, **how) as loader:
        take(loader, 100)
        state, explained = json.loads(json.dumps(loader.state_dict())), loader.explain(3)
    with stream(LARGE, cache_dir=tmp_path, **how) as loader:
        loader.load_state_dict(state)
        assert loader.explain(3) == explained
    with stream(LARGE, **how) as loader:
        loader.load_state_dict(state)
        with pytest.raises(UnknownLength) as refused:
            loader.explain(3)
        assert "cache_dir" in follows_its_hint(refused.value)


def test_a_process_that_was_killed_costs_nothing_that_was_made(tmp_path: Path) -> None:
    code = """
        import os, signal, sys
        from pathlib import Path
        from millstream import CharTokenizer, PretrainDataLoader
        tokenizer = CharTokenizer.train(["0123456789 abcdefghijklmnopqrstuvwxyz"])
        how = {"tokenizer": tokenizer, "chunk_size": 7, "streaming": True, "framework": "numpy"}
        loader = PretrainDataLoader(Path(sys.argv[1]), reading={"chunk_bytes": 300}, cache_dir=sys.argv[2], **how)
        for _ in range(50):
            loader.next()
        if sys.argv[3] == "killed":
            print(loader.get_profiling_results()["parts"]["data"]["made"], flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        print(loader.get_profiling_results()["parts"]["data"]["made"])
    """
    killed = run_script(code, LARGE, tmp_path, "killed")
    assert killed.returncode == -9 and int(killed.stdout) > 10
    made = {path: path.stat() for path in tmp_path.rglob("*.json")}
    assert len(made) >= int(killed.stdout)
    (again,) = ran(code, LARGE, tmp_path, "again")
    now = {path: path.stat() for path in tmp_path.rglob("*.json")}
    assert {path: (found.st_ino, found.st_mtime_ns) for path, found in made.items()} == {
        path: (now[path].st_ino, now[path].st_mtime_ns) for path in made
    }
    assert int(again) <= len(now) - len(made)
