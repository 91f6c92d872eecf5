from __future__ import annotations

import copy
import errno
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.corpora import corpus, stream
from loaders.samples import Ids, counting_file, counting_loader, follows_its_hint, inputs, take
from millstream import (
    FingerprintError,
    MillstreamError,
    MixedDataLoader,
    OrderError,
    PretrainDataLoader,
    RolloutDataLoader,
    StateError,
    StoreError,
    TokenStore,
    TokenStoreWriter,
)
from millstream.storage import disk
from store.samples import write_store

State = dict[str, Any]
REFUSALS = (StateError, OrderError, FingerprintError)


def through_json(state: State) -> State:
    text = json.dumps(state)
    assert len(text) < 4096
    loaded: State = json.loads(text)
    assert loaded == state
    return loaded


def resumed(loader: PretrainDataLoader, state: State) -> Ids:
    """Load a state and give the rest of the epoch."""
    with loader:
        loader.load_state_dict(state)
        return inputs(loader)


# What a state is


def test_a_state_is_small_readable_json_and_equal_on_all_ranks(tmp_path: Path) -> None:
    states = []
    for rank in range(3):
        with counting_loader(tmp_path, rank=rank, world_size=3) as loader:
            take(loader, 5)
            states.append(through_json(loader.state_dict()))

    assert states[0] == states[1] == states[2]
    assert (states[0]["step"], states[0]["epoch"], states[0]["offset"]) == (5, 0, 60)


def test_a_state_counts_what_was_delivered_and_not_what_was_prefetched(tmp_path: Path) -> None:
    with counting_loader(tmp_path, prefetch=20) as loader:
        before = loader.state_dict()
        loader.prefetch(20)
        assert loader.state_dict() == before
        loader.next()
        assert loader.state_dict()["step"] == 1


def test_saving_and_loading_change_nothing(tmp_path: Path) -> None:
    with counting_loader(tmp_path) as loader:
        take(loader, 3)
        state = loader.state_dict()
        saved = copy.deepcopy(state)
        loader.load_state_dict(state)

        assert loader.state_dict() == state == saved
        loader.commit(state)
        loader.close()
        assert loader.state_dict() == state


def test_a_state_may_be_loaded_while_the_loader_is_at_work(tmp_path: Path) -> None:
    with counting_loader(tmp_path) as loader:
        take(loader, 3)
        state = loader.state_dict()
        rest = inputs(loader)
        take(loader, 2)
        loader.load_state_dict(state)

        assert inputs(loader) == rest


def test_the_state_never_overrides_batch_size_rank_and_world_size(tmp_path: Path) -> None:
    with counting_loader(tmp_path, batch_size=8, world_size=2, rank=1) as loader:
        take(loader, 2)
        state = loader.state_dict()
    with counting_loader(tmp_path, batch_size=3) as loader:
        loader.load_state_dict(state)
        assert (loader.next().metadata["rows"], loader.state_dict()["offset"]) == (3, 35)


# What does not fit


def changed(state: State, **changes: Any) -> State:
    return {**state, **changes}


def test_each_mismatch_is_named_and_its_hint_works(tmp_path: Path) -> None:
    given: dict[str, Any] = {"seed": 1, "documents": "attend", "tail": "drop", "name": "data"}
    with counting_loader(tmp_path, **given) as loader:
        take(loader, 3)
        state = loader.state_dict()
        rest = inputs(loader)
    wrong = {"seed": 2, "documents": "isolate", "tail": "pad", "name": "other"}
    for name, value in wrong.items():
        with counting_loader(tmp_path, **{**given, name: value}) as loader, pytest.raises(StateError) as caught:
            loader.load_state_dict(state)
        assert f"{name}={given[name]!r}" in follows_its_hint(caught.value)
        assert f"{name}={value!r}" in str(caught.value)

    assert resumed(counting_loader(tmp_path, **given), state) == rest


def test_a_shuffle_cannot_change_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    with counting_loader(tmp_path) as loader:
        take(loader, 3)
        in_the_middle = loader.state_dict()
        inputs(loader)
        at_the_end = loader.state_dict()
    with counting_loader(tmp_path, shuffle=False) as loader:
        with pytest.raises(OrderError, match="shuffle='global', not 'none'") as caught:
            loader.load_state_dict(in_the_middle)
        assert "ended" in follows_its_hint(caught.value)
        assert loader.step == 0
        loader.load_state_dict(at_the_end)
        assert take(loader, 1)[0] == list(range(10))


def test_the_state_of_another_kind_of_loader_is_refused(tmp_path: Path) -> None:
    with counting_loader(tmp_path) as plain, MixedDataLoader({"a": (plain, 1)}, framework="numpy") as mixed:
        for loader, other in ((plain, mixed), (mixed, plain)):
            with pytest.raises(StateError, match="loader, not of a") as caught:
                loader.load_state_dict(other.state_dict())
            follows_its_hint(caught.value)


@pytest.mark.parametrize("state", [None, 5, [], {}, "state", {"format": "millstream state"}, {"format": "other"}])
def test_what_is_no_state_is_refused(tmp_path: Path, state: Any) -> None:
    with counting_loader(tmp_path) as loader:
        for call in (loader.load_state_dict, loader.commit):
            with pytest.raises(StateError) as caught:
                call(state)
            follows_its_hint(caught.value)
        assert loader.step == 0


def test_the_state_of_another_version_is_refused(tmp_path: Path) -> None:
    with counting_loader(tmp_path) as loader:
        state = loader.state_dict()
        for key in ("version", "order_version"):
            with pytest.raises(StateError, match="version 99") as caught:
                loader.load_state_dict(changed(state, **{key: 99}))
            follows_its_hint(caught.value)


def test_a_refused_state_leaves_the_loader_where_it_was(tmp_path: Path) -> None:
    with counting_loader(tmp_path) as loader:
        expected = inputs(loader)
        state = loader.state_dict()
    with counting_loader(tmp_path) as loader:
        got = take(loader, 5)
        changes: list[State] = [{"epoch": 7}, {"phases": []}, {"data": {}}, {"step": -1}, {"data": 5}]
        for change in changes:
            with pytest.raises(StateError) as caught:
                loader.load_state_dict(changed(state, **change))
            follows_its_hint(caught.value)
            got += take(loader, 1)

        assert got + inputs(loader) == expected


def test_a_state_whose_keys_were_sorted_is_still_the_same_state(tmp_path: Path) -> None:
    source = counting_loader(tmp_path, tokens=301)
    sources = {"web": (source, 0.5), "code": (source, 0.3), "books": (source, 0.2)}
    given: dict[str, Any] = {"framework": "numpy", "mix_block": 10}
    with MixedDataLoader(sources, **given) as loader:
        take(loader, 2)
        state = json.loads(json.dumps(loader.state_dict(), sort_keys=True))
        rest = inputs(loader)
    with MixedDataLoader(sources, **given) as loader:
        loader.load_state_dict(state)
        assert inputs(loader) == rest


# Other data


def test_other_data_is_named_with_what_differs(tmp_path: Path) -> None:
    with counting_loader(tmp_path) as loader:
        loader.next()
        state = loader.state_dict()
    (tmp_path / "other").mkdir()
    complaint = r"counting\.bin.*'data'.*tokens: 1001 then, 900 now"
    with counting_loader(tmp_path / "other", tokens=900) as loader, pytest.raises(FingerprintError, match=complaint):
        loader.load_state_dict(state)


def test_a_store_that_was_appended_to_goes_on_in_its_old_version_as_the_hint_says(tmp_path: Path) -> None:
    path = write_store(tmp_path / "store", [range(100), range(100)])
    given: dict[str, Any] = {"chunk_size": 10, "batch_size": 4, "framework": "numpy"}
    with PretrainDataLoader(path, **given) as loader:
        take(loader, 2)
        state = through_json(loader.state_dict())
        rest = inputs(loader)
    with TokenStoreWriter(path, append=True) as writer:
        writer.append(range(50))
    with PretrainDataLoader(path, **given) as loader, pytest.raises(FingerprintError) as caught:
        loader.load_state_dict(state)
    hint = follows_its_hint(caught.value)
    old = eval(hint[hint.index("TokenStore") :], {"TokenStore": TokenStore, "path": path})

    assert resumed(PretrainDataLoader(old, **given), state) == rest


def test_a_copy_of_the_data_elsewhere_is_the_same_data(tmp_path: Path) -> None:
    first = write_store(tmp_path / "first", [range(100)])
    second = write_store(tmp_path / "second", [range(100)])
    given: dict[str, Any] = {"chunk_size": 10, "batch_size": 4, "framework": "numpy"}
    with PretrainDataLoader(first, **given) as loader:
        loader.next()
        state = loader.state_dict()
        rest = inputs(loader)

    assert resumed(PretrainDataLoader(second, **given), state) == rest


@pytest.mark.parametrize("changed", [{"shuffle": False}, {"eos": None}])
def test_a_refused_state_changes_nothing_of_a_stream_nor_of_its_log(tmp_path: Path, changed: dict[str, Any]) -> None:
    files = corpus((("jsonl", (9, 5, 7, 9, 8) * 9),))
    with stream(files) as loader:
        while loader.state_dict()["streams"]["data"]["window"] < 2:
            loader.next()
        state = through_json(loader.state_dict())
    with stream(files, **changed) as loader:
        expected = inputs(loader)
    with stream(files, cache_dir=tmp_path, **changed) as loader:
        with pytest.raises(REFUSALS):
            loader.load_state_dict(state)
        logs = list(tmp_path.rglob("*.log"))

        assert inputs(loader) == expected
        assert logs == []


# Hostile states


junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**31, 2**32, 2**53, 2**61, 2**62, 2**63 - 1, 2**63, 2**64, 2**200, -(2**63), -(2**64)]),
    st.floats(),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.sampled_from(["none", "global", "local", "data", "code", "../../etc/passwd"]),
)


def places_in(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All paths into a JSON value."""
    found = [path] if path else []
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in entries:
        found += places_in(value, (*path, key))
    return found


def mutated(data: st.DataObject, state: State) -> State:
    wrong = copy.deepcopy(state)
    for _ in range(data.draw(st.integers(1, 3))):
        places = places_in(wrong)
        if not places:
            break
        *way, last = data.draw(st.sampled_from(places))
        node: Any = wrong
        for key in way:
            node = node[key]
        action = data.draw(st.sampled_from(["replace", "replace", "delete", "add", "double"]))
        if action == "replace":
            node[last] = data.draw(junk)
        elif action == "delete":
            del node[last]
        elif action == "add" and isinstance(node, dict):
            node[data.draw(st.text(max_size=4))] = data.draw(junk)
        elif action == "double" and isinstance(node, list):
            node.append(copy.deepcopy(node[last]))
    return wrong


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Loaders in mid-run, of several phases, and their states."""
    folder = tmp_path_factory.mktemp("hostile")
    store = write_store(folder / "store", [range(40), [], range(61)])

    def plain() -> PretrainDataLoader:
        return PretrainDataLoader(store, chunk_size=4, batch_size=3, framework="numpy", shuffle="local")

    def rows() -> PretrainDataLoader:
        return PretrainDataLoader(store, chunk_size=4, batch_size=3, framework="numpy", documents="row")

    def mixed() -> MixedDataLoader:
        code = PretrainDataLoader(counting_file(folder / "c.bin", 50), chunk_size=4, dtype="uint16")
        return MixedDataLoader(
            {"web": (plain(), 0.7), "code": (code, 0.3)}, mix_block=10, framework="numpy", batch_size=3
        )

    found = []
    for make in (plain, rows, mixed):
        with make() as loader:
            take(loader, 2)
            loader.get_batch(2)
            loader.next()
            found.append((make, through_json(loader.state_dict())))
    return found


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_no_state_whatever_crashes_or_hangs_a_loader(runs: Any, data: st.DataObject) -> None:
    make, state = data.draw(st.sampled_from(runs))
    wrong = mutated(data, state)
    with make() as loader:
        try:
            loader.load_state_dict(wrong)
        except REFUSALS:
            assert loader.step == 0
            assert loader.next().metadata["rows"] == 3
            return
        # It may still be a possible state: then the run goes on from there.
        step = loader.step
        batch = loader.next().validate()
        assert batch.metadata["step"] == step
        assert len(loader.explain(step)) == batch.metadata["rows"]
        for past in range(step):
            try:
                loader.explain(past)
            except MillstreamError as error:
                assert error.hint
        assert json.loads(json.dumps(loader.state_dict())) == loader.state_dict()


@given(text=st.text(max_size=6), value=junk)
@settings(max_examples=50, deadline=None)
def test_unknown_entries_and_odd_names_do_no_harm(runs: Any, text: str, value: Any) -> None:
    make, state = runs[0]
    with make() as loader:
        try:
            loader.load_state_dict({**state, text: value})
        except REFUSALS as error:
            assert error.hint


# Many phases


def many_phases(path: Path, phases: int = 500, **given: Any) -> PretrainDataLoader:
    """A loader that has changed its batch size very often."""
    loader = counting_loader(path, tokens=4001, **given)
    for number in range(phases):
        loader.get_batch(1 + number % 2)
    return loader


def test_phases_that_outgrow_the_state_are_left_out_where_there_is_no_folder(tmp_path: Path) -> None:
    with many_phases(tmp_path) as loader:
        state, rest = through_json(loader.state_dict()), inputs(loader)
    assert "cache_dir=" in state["past"]
    assert resumed(counting_loader(tmp_path, tokens=4001), state) == rest


def test_one_phase_that_outgrows_the_state_needs_a_folder_and_the_hint_says_so(tmp_path: Path) -> None:
    with counting_loader(tmp_path, name="…" * 1000) as loader, pytest.raises(StateError, match="1 phases") as caught:
        loader.state_dict()
    assert "cache_dir=" in follows_its_hint(caught.value)


def test_hundreds_of_odd_batches_fit_into_the_state(tmp_path: Path) -> None:
    with many_phases(tmp_path, 300) as loader:
        state = through_json(loader.state_dict())
        past = [loader.explain(step) for step in range(300)]
        rest = inputs(loader)
    with counting_loader(tmp_path, tokens=4001) as loader:
        loader.load_state_dict(state)
        assert [loader.explain(step) for step in range(300)] == past
        assert inputs(loader) == rest


@pytest.mark.parametrize("sizes", [[0], [3, 3, 3], [7, -1], [7, 0], [1, 3], [7, 2**63], "73", [7, True], [7.0, 2]])
def test_sizes_that_no_run_had_are_refused(tmp_path: Path, sizes: Any) -> None:
    with counting_loader(tmp_path) as loader:
        loader.get_batch(2)
        loader.next()
        state = loader.state_dict()
        assert state["phases"][1] == [1, 4]
        state["phases"][1] = sizes
        with pytest.raises(StateError):
            loader.load_state_dict(state)


def test_a_phase_without_steps_is_forgotten(tmp_path: Path) -> None:
    with counting_loader(tmp_path) as loader:
        for _ in range(20):
            loader.get_batch(2)
            loader.seek(loader.step)  # back to the loader's own size, for no step
        assert len(loader.state_dict()["phases"]) == 2


def test_a_state_saved_without_its_phases_goes_on_where_they_are(tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    with many_phases(tmp_path, cache_dir=beside) as loader:
        state = loader.state_dict()
        past = [loader.explain(step) for step in range(500)]
    for cache_dir in (None, tmp_path / "elsewhere"):
        with counting_loader(tmp_path, tokens=4001, cache_dir=cache_dir) as loader:
            loader.load_state_dict(state)
            for number in range(20 if cache_dir is None else 500):
                loader.get_batch(1 + number % 3)
            later = through_json(loader.state_dict())
            present = [loader.explain(step) for step in range(500, loader.step)]
            rest = inputs(loader)
        for file in cache_dir.iterdir() if cache_dir is not None else ():
            file.rename(beside / file.name)
        with counting_loader(tmp_path, tokens=4001, cache_dir=beside) as loader:
            loader.load_state_dict(later)
            assert [loader.explain(step) for step in range(loader.step)] == past + present
            assert inputs(loader) == rest


def test_phases_beside_the_checkpoint_come_back_and_explain_the_past(tmp_path: Path) -> None:
    with many_phases(tmp_path, cache_dir=tmp_path / "beside") as loader:
        state = through_json(loader.state_dict())
        assert loader.state_dict() == state
        past = [loader.explain(step) for step in range(40)]
        rest = inputs(loader)
    assert [file.name for file in (tmp_path / "beside").iterdir()] == [state["earlier_phases"]["file"]]
    with counting_loader(tmp_path, tokens=4001, cache_dir=tmp_path / "beside") as loader:
        loader.load_state_dict(state)
        assert [loader.explain(step) for step in range(40)] == past
        assert inputs(loader) == rest


def test_without_its_phases_a_run_goes_on_but_cannot_explain_its_past(tmp_path: Path) -> None:
    with many_phases(tmp_path, cache_dir=tmp_path / "beside") as loader:
        state = loader.state_dict()
        rest = inputs(loader)
    for cache_dir in (None, tmp_path / "empty"):
        with counting_loader(tmp_path, tokens=4001, cache_dir=cache_dir) as loader:
            loader.load_state_dict(state)
            with pytest.raises(OrderError, match="step 0 lies before what is known") as caught:
                loader.explain(0)
            assert "cache_dir" in follows_its_hint(caught.value)
            assert inputs(loader) == rest


@pytest.mark.parametrize("damage", [b"", b"[]", b"\xff\xfe", None])
def test_damaged_phases_are_refused(tmp_path: Path, damage: bytes | None) -> None:
    with many_phases(tmp_path, cache_dir=tmp_path / "beside") as loader:
        state = loader.state_dict()
    (file,) = (tmp_path / "beside").iterdir()
    if damage is None:
        file.unlink()
        file.mkdir()
    else:
        file.write_bytes(damage)
    with counting_loader(tmp_path, tokens=4001, cache_dir=tmp_path / "beside") as loader:
        with pytest.raises(StateError, match=file.name) as caught:
            loader.load_state_dict(state)
        assert "restore" in follows_its_hint(caught.value)


def test_a_state_of_an_older_version_finds_its_phases_and_commit_removes_them(tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    with many_phases(tmp_path, cache_dir=beside) as loader:
        state, past, rest = loader.state_dict(), [loader.explain(step) for step in range(40)], inputs(loader)
    digest = state["earlier_phases"]["file"].removeprefix("phases-").removesuffix(".bin")
    old = (beside / state["earlier_phases"]["file"]).rename(beside / f"phases-{digest}.json")
    state["earlier_phases"] = {"file": old.name, "blake2b": digest}
    with counting_loader(tmp_path, tokens=4001, cache_dir=beside) as loader:
        loader.load_state_dict(state)
        assert [loader.explain(step) for step in range(40)] == past
        loader.next()
        assert inputs(loader) == rest[4:]
        later = loader.state_dict()
        assert old.exists()
        loader.commit(later)
    assert [file.name for file in beside.iterdir()] == [later["earlier_phases"]["file"]]
    old.write_bytes(b"{}")
    with counting_loader(tmp_path, tokens=4001, cache_dir=beside) as loader:
        with pytest.raises(StateError, match=old.name) as caught:
            loader.load_state_dict(state)
        assert "restore" in follows_its_hint(caught.value)


@pytest.mark.parametrize("step", ["create", "write", "sync", "rename", "sync_directory"])
def test_phases_lie_on_the_disk_before_a_state_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "beside").mkdir()
    with many_phases(tmp_path, cache_dir=tmp_path / "beside") as loader:
        with monkeypatch.context() as patch, pytest.raises(StoreError, match="No space left"):
            patch.setattr(disk, step, refuse)
            loader.state_dict()
        state = loader.state_dict()
    with counting_loader(tmp_path, tokens=4001, cache_dir=tmp_path / "beside") as loader:
        loader.load_state_dict(state)
        assert loader.explain(0)


def rollouts_of_many_phases(path: Path) -> RolloutDataLoader:
    """The same over a fixed set of rollouts."""
    record = {"token_ids": [1, 2], "loss_mask": [0, 1], "finish": "stop", "reward": 1.0}
    records = [{**record, "group_id": "g", "rollout_id": number} for number in range(2000)]
    loader = RolloutDataLoader(records, compute_advantages=False, framework="numpy", cache_dir=path / "beside")
    for number in range(500):
        loader.get_batch(1 + number % 2)
    return loader


@pytest.mark.parametrize("kind", ["store", "rollouts"])
def test_commit_removes_the_phases_of_older_states_of_this_run_alone(tmp_path: Path, kind: str) -> None:
    beside = tmp_path / "beside"
    store = kind == "store"
    loader = many_phases(tmp_path, cache_dir=beside) if store else rollouts_of_many_phases(tmp_path)
    with many_phases(tmp_path, seed=7, cache_dir=beside) as other:
        another = other.state_dict()["earlier_phases"]["file"]
    with loader:
        states = [loader.state_dict()]
        for number in range(3):
            loader.get_batch(3 + number)
            states.append(loader.state_dict())
        names = [state["earlier_phases"]["file"] for state in states]
        assert len(set(names)) == 4
        assert {file.name for file in beside.iterdir()} == {another, *names}
        for committed in (0, 2, 2, 1, 3):
            loader.commit(states[committed])
            last = max(committed, 2) if committed == 1 else committed
            assert {file.name for file in beside.iterdir()} == {another, *names[last:]}
        loader.load_state_dict(through_json(states[3]))
        loader.get_batch(9)
        loader.commit(last_state := loader.state_dict())
        assert {file.name for file in beside.iterdir()} == {another, last_state["earlier_phases"]["file"]}


def test_a_state_that_is_refused_loses_no_file_at_the_next_commit(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    beside = tmp_path / "beside"
    with many_phases(tmp_path, cache_dir=beside) as loader:
        state = loader.state_dict()
    with counting_loader(tmp_path / "other", tokens=5001, cache_dir=beside) as other:
        with pytest.raises(MillstreamError):
            other.load_state_dict(state)
        for _ in range(501):
            other.next()
        other.commit(other.state_dict())
    assert (beside / state["earlier_phases"]["file"]).exists()


def test_rollouts_remember_where_phases_lie_that_are_not_here(tmp_path: Path) -> None:
    with rollouts_of_many_phases(tmp_path) as loader:
        state = loader.state_dict()
        (tmp_path / "beside").rename(tmp_path / "away")
        loader.load_state_dict(state)
        loader.next()
        later = loader.state_dict()
        (tmp_path / "away").rename(tmp_path / "beside")
        loader.load_state_dict(later)
        assert len(loader.explain(0)) == 1


def test_ranks_that_save_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    loaders = [many_phases(tmp_path, cache_dir=tmp_path / "beside", rank=rank, world_size=2) for rank in range(2)]
    (tmp_path / "beside").mkdir()
    states = []
    for loader in loaders:
        states.append(loader.state_dict())
        for file in (tmp_path / "beside").iterdir():
            file.rename(file.with_suffix(".moved"))  # as if the other rank had not seen it
        loader.close()

    assert states[0] == states[1]


def test_a_mixture_of_very_many_sources_still_has_a_small_state(tmp_path: Path) -> None:
    source = counting_loader(tmp_path, tokens=201)
    sources = {f"a rather long name of source {number}": (source, 1.0) for number in range(60)}
    with MixedDataLoader(sources, framework="numpy", batch_size=7, cache_dir=tmp_path / "beside") as loader:
        take(loader, 5)
        state = through_json(loader.state_dict())
        rest = inputs(loader)
    with MixedDataLoader(sources, framework="numpy", batch_size=7, cache_dir=tmp_path / "beside") as loader:
        loader.load_state_dict(state)
        assert inputs(loader) == rest
    with MixedDataLoader(sources, framework="numpy", batch_size=7) as loader:
        with pytest.raises(StateError) as caught:
            loader.load_state_dict(state)
        assert "cache_dir" in follows_its_hint(caught.value)
        loader.next()
        with pytest.raises(StateError) as caught:
            loader.state_dict()
        assert "cache_dir" in follows_its_hint(caught.value)


def test_a_source_that_was_taken_out_returns_where_it_stood_and_must_be_the_same(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    web, code = counting_loader(tmp_path, tokens=201), counting_loader(tmp_path, tokens=201, name="code")
    given: dict[str, Any] = {"framework": "numpy", "mix_block": 4, "batch_size": 4, "shuffle": "global"}
    both = {"web": (web, 0.5), "code": (code, 0.5)}
    with MixedDataLoader(both, **given) as loader:
        used = take(loader, 1)
        state = loader.state_dict()
    with MixedDataLoader({"web": (web, 1.0)}, **given) as loader:
        loader.load_state_dict(state)
        loader.next()
        state = through_json(loader.state_dict())
    with MixedDataLoader(both, **given) as loader:
        loader.load_state_dict(state)
        batch = loader.next()
        again = [
            row for row, name in zip(batch.input_ids.tolist(), batch.metadata["source"], strict=True) if name == "code"
        ]
        assert len(again) == 2
        assert all(row not in used for row in again)
    other = counting_loader(tmp_path / "other", tokens=199)
    loader = MixedDataLoader({"web": (web, 0.5), "code": (other, 0.5)}, **given)
    with loader, pytest.raises(FingerprintError, match="'code'"):
        loader.load_state_dict(state)
