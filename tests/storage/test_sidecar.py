"""Sidecars: what a state that may still be asked for names is there, and what only earlier states named is not."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forks import in_child
from millstream.storage import Sidecars, sidecar
from millstream.storage.sidecar import MOST_STATES

CONTENTS = st.binary(min_size=1, max_size=2)


def state_of(files: Sidecars, content: bytes, step: int) -> dict[str, Any]:
    return {"step": step, "sidecar": files.save(content, step)}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@given(contents=st.lists(CONTENTS, min_size=1, max_size=8), owns=st.booleans(), data=st.data())
def test_a_commit_releases_what_only_earlier_states_name(
    contents: list[bytes], owns: bool, data: st.DataObject
) -> None:
    with TemporaryDirectory() as name:
        files = Sidecars(name, "window", owns=owns)
        states = [state_of(files, content, step) for step, content in enumerate(contents)]
        committed = data.draw(st.integers(0, len(states) - 1))
        files.release(states[committed])
        assert names(Path(name)) == {state["sidecar"]["file"] for state in states[committed:]}
        for state, content in list(zip(states, contents, strict=True))[committed:]:
            assert files.load(state) == content


@pytest.mark.parametrize("owns", [True, False])
def test_of_states_of_one_step_those_that_were_saved_before_are_released(tmp_path: Path, *, owns: bool) -> None:
    before = Sidecars(tmp_path, "window", owns=owns)
    loaded = state_of(before, b"loaded", 3)
    files = Sidecars(tmp_path, "window", owns=owns)
    files.loaded([loaded["sidecar"]["file"]], 3)
    first, second, third = (state_of(files, content, 3) for content in (b"first", b"second", b"third"))
    files.release(second)
    assert names(tmp_path) == {state["sidecar"]["file"] for state in (second, third)}
    assert first["sidecar"]["file"] not in names(tmp_path)


@pytest.mark.parametrize("owns", [True, False])
def test_a_loaded_state_keeps_its_file_when_an_earlier_one_is_committed(tmp_path: Path, *, owns: bool) -> None:
    before = Sidecars(tmp_path, "window", owns=owns)
    states = [state_of(before, bytes([step]), step) for step in range(3)]
    files = Sidecars(tmp_path, "window", owns=owns)
    files.loaded([states[2]["sidecar"]["file"]], 2)
    files.release(states[1])
    assert files.load(states[2]) == bytes([2])
    assert (tmp_path / states[0]["sidecar"]["file"]).exists() != owns  # whose it is nobody knows in a shared folder


def test_the_files_of_others_stay_in_a_folder_that_is_shared(tmp_path: Path) -> None:
    one, other = Sidecars(tmp_path, "window"), Sidecars(tmp_path, "window")
    kept = state_of(other, b"theirs", 0)
    state_of(one, b"mine", 0)
    last = state_of(one, b"later", 5)
    one.release(last)
    assert names(tmp_path) == {kept["sidecar"]["file"], last["sidecar"]["file"]}


def test_a_state_that_names_no_file_releases_nothing_of_a_folder_that_a_run_owns(tmp_path: Path) -> None:
    files = Sidecars(tmp_path, "window", owns=True)
    state = state_of(files, b"a", 0)
    unnamed: list[dict[str, Any]] = [{}, {"sidecar": None}, {"sidecar": {}}]
    for named in unnamed:
        files.release({"step": 9, **named})
    assert files.load(state) == b"a"


def test_the_same_content_is_written_once_and_again_where_it_is_gone(tmp_path: Path) -> None:
    files = Sidecars(tmp_path, "window")
    first = state_of(files, b"a", 0)
    path = tmp_path / first["sidecar"]["file"]
    written = path.stat().st_ino
    assert state_of(files, b"a", 4)["sidecar"] == first["sidecar"]
    assert path.stat().st_ino == written
    files.release(state_of(files, b"b", 3))
    assert path.exists()  # the state of step 4 names it, too
    path.unlink()
    state_of(files, b"a", 5)
    assert path.exists()


def test_parts_and_the_whole_are_the_same_file(tmp_path: Path) -> None:
    files = Sidecars(tmp_path, "window")
    assert files.save(b"abc", 0) == files.save(iter([b"a", b"bc"]), 1)


def test_a_run_that_never_commits_remembers_a_bounded_number_of_states(tmp_path: Path) -> None:
    files = Sidecars(tmp_path, "window", owns=True)
    files.loaded((f"window-{number}.bin" for number in range(MOST_STATES + 5)), 0)
    assert len(files._steps) == MOST_STATES


def test_a_forked_child_can_save_though_another_thread_of_its_parent_did(tmp_path: Path) -> None:
    files = Sidecars(tmp_path, "window")
    with files._lock:
        named = in_child(lambda: files.save(b"a", 0))()
    assert named["file"] == sidecar.file_of("window", b"a")
