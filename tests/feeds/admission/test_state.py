"""Sidecars: what a state names is there and whole, or said not to be."""

from __future__ import annotations

import copy
import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from feeds.admission.samples import assert_same_block, assert_same_cut, group, row, rows
from millstream.errors import StateError, StoreError
from millstream.feeds.admission import Admission, AdmissionRules, AdmissionState, ReplayRules
from millstream.feeds.admission import state as admission_state
from millstream.storage import Sidecars, disk

RULES = AdmissionRules(groups_per_batch=2, group_size=2, replay=ReplayRules())


def some_admission() -> Admission:
    """One with groups that wait, are complete, and were trained on."""
    admission = Admission(RULES)
    admission.arrive(rows(*(group(name, [0, 1], extra={"of": name}) for name in "abc"), row(7, 7)), now=1)
    assert admission.cut(0, 0, now=2) is not None
    return admission


def save(folder: Path, state: AdmissionState) -> dict[str, Any]:
    return Sidecars(folder, admission_state.ADMISSION_SIDECAR).save(admission_state.encode_admission(state), step=0)


def load(folder: Path, named: Mapping[str, Any]) -> AdmissionState:
    return admission_state.decode_admission(
        Sidecars(folder, admission_state.ADMISSION_SIDECAR).load({"sidecar": named}), folder
    )


def test_a_state_is_read_back_and_goes_on_alike(tmp_path: Path) -> None:
    admission = some_admission()
    named = save(tmp_path, admission.state())
    state = load(tmp_path, named)
    assert state.fields == admission.state().fields
    for one, other in zip(state.blocks, admission.state().blocks, strict=True):
        assert_same_block(one, other)
    again = Admission.load(state, RULES)
    for each in (admission, again):
        each.arrive(row("7-1", 7), now=3)
    assert_same_cut(again.cut(1, 0, now=3), admission.cut(1, 0, now=3))


def test_the_same_state_is_the_same_file(tmp_path: Path) -> None:
    assert save(tmp_path, some_admission().state()) == save(tmp_path, some_admission().state())
    assert len(list(tmp_path.iterdir())) == 1


def test_a_sidecar_that_is_missing_or_damaged_is_an_error_that_names_it(tmp_path: Path) -> None:
    named = save(tmp_path, some_admission().state())
    path = tmp_path / named["file"]
    whole = bytearray(path.read_bytes())
    for place in range(0, len(whole), 97):
        whole[place] ^= 1
        path.write_bytes(whole)
        with pytest.raises(StateError, match="is damaged"):
            load(tmp_path, named)
        whole[place] ^= 1
    path.unlink()
    with pytest.raises(StateError, match="is missing"):
        load(tmp_path, named)
    for odd in ({}, {"file": 3}, {"file": "../admission-1.bin"}, {"file": "/admission-1.bin"}):
        with pytest.raises(StateError, match="as its sidecar"):
            load(tmp_path, odd)


def test_releasing_removes_what_no_state_names(tmp_path: Path) -> None:
    admission = some_admission()
    files = Sidecars(tmp_path, admission_state.ADMISSION_SIDECAR, owns=True)
    first = files.save(admission_state.encode_admission(admission.state()), step=0)
    admission.cut(1, 0, now=9)
    second = save(tmp_path, admission.state())
    files.release({"step": 1, "sidecar": second})
    assert [path.name for path in tmp_path.iterdir()] == [second["file"]] != [first["file"]]


@pytest.mark.parametrize("step", ["create", "write", "sync", "rename", "sync_directory"])
def test_a_disk_that_refuses_leaves_the_sidecars_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    admission = some_admission()
    named = save(tmp_path, admission.state())
    admission.cut(1, 0, now=9)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(StoreError, match="No space left"):
        patch.setattr(disk, step, refuse)
        save(tmp_path, admission.state())
    assert load(tmp_path, named).fields["step"] == 1
    assert load(tmp_path, save(tmp_path, admission.state())).fields == admission.state().fields


def test_a_state_stays_as_it_is_when_its_admission_goes_on() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=1, order="group_index", max_staleness=0))
    admission.arrive(row("a", 1, versions=(0,)), now=0)
    state = admission.state()
    before = copy.deepcopy(state.fields)
    assert admission.cut(0, 1, now=0) is None  # it is stale by now: index 1 is not waited for
    assert admission.state().fields["line"] == [0, [1]]
    assert state.fields == before


def test_a_state_that_cannot_be_meant_is_refused() -> None:
    state = some_admission().state()
    short = AdmissionState(state.fields, state.blocks[:-1])
    odd = [AdmissionState({**state.fields, key: value}, state.blocks) for key, value in (("format", 2), ("ready", 3))]
    without = AdmissionState({key: state.fields[key] for key in state.fields if key != "seen"}, state.blocks)
    for wrong in (short, *odd, without):
        with pytest.raises(StateError, match="the state of admission"):
            Admission.load(wrong, RULES)


def test_waiting_goes_on_where_it_was_when_another_process_reads_another_clock() -> None:
    admission = Admission(AdmissionRules(groups_per_batch=1, group_size=2, min_group_size=1, group_timeout_s=60))
    admission.arrive(row("a-0", "a"), now=1000)
    assert admission.cut(0, 0, now=1050) is None
    again = Admission.load(admission.state(), admission.rules, now=7)
    assert again.cut(0, 0, now=16) is None
    assert again.cut(0, 0, now=17) is not None
