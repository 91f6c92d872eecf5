"""One loader: five public classes derive from it directly, and a loader of one's own needs four methods."""

from __future__ import annotations

import copy
import inspect
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import millstream
from chats.chatml import bpe
from millstream import (
    ConversationDataLoader,
    DataLoader,
    LoaderError,
    MixedDataLoader,
    PretrainDataLoader,
    RolloutDataLoader,
    SelfPlayDataLoader,
)
from millstream.loaders import example_loader

PUBLIC = (PretrainDataLoader, ConversationDataLoader, RolloutDataLoader, MixedDataLoader, SelfPlayDataLoader)


@pytest.mark.parametrize("loader", PUBLIC)
def test_a_public_loader_derives_directly_and_is_what_its_constructor_says(loader: type) -> None:
    assert loader.__bases__ == (DataLoader,)
    assert [each for each in loader.__mro__ if each.__module__.startswith("millstream")] == [loader, DataLoader]
    assert "__new__" not in vars(loader)
    assert type(loader) is type  # no metaclass that lies about instances


def test_no_other_class_is_a_loader() -> None:
    assert {each for each in DataLoader.__subclasses__() if each.__module__.startswith("millstream.")} == set(PUBLIC)
    assert all(each.__subclasses__() == [] for each in PUBLIC)


class Numbers(DataLoader[int]):
    """A loader of one's own, which does not call the constructor of its base."""

    def __init__(self, numbers: int) -> None:
        self.numbers, self.at = numbers, 0

    def get_batch(self, batch_size: int | None = None) -> int:
        self.at += batch_size or 1
        return self.at - 1

    def get_iterator(self) -> Iterator[int]:
        while self.at < self.numbers:
            yield self.next()

    def get_num_batches(self) -> int:
        return self.numbers

    def reset(self) -> None:
        self.at = 0


def test_a_loader_of_ones_own_has_everything_that_follows_from_its_four_methods() -> None:
    closed: list[str] = []
    with Numbers(3) as loader:
        loader.on_close(lambda: closed.append("closed"))
        assert loader.counters() == {"seconds": 0.0, "stages": {}, "queues": {}} and loader.statistics()["stages"] == {}
        assert (loader.next(), list(loader), len(loader), bool(loader), loader.losses) == (0, [1, 2], 3, True, {})
        loader.reset()
        assert list(loader) == [0, 1, 2]
        assert pickle.loads(pickle.dumps(Numbers(5))).numbers == copy.copy(Numbers(5)).numbers == 5
    assert closed == ["closed"]


ASKED: dict[str, Callable[[DataLoader[int]], Any]] = {
    "state_dict()": lambda loader: loader.state_dict(),
    "load_state_dict()": lambda loader: loader.load_state_dict({}),
    "commit()": lambda loader: loader.commit({}),
    "seek()": lambda loader: loader.seek(1),
    "explain()": lambda loader: loader.explain(0),
    "steps_of()": lambda loader: loader.steps_of(0),
    "plan_fingerprint()": lambda loader: loader.plan_fingerprint(),
    "prefetch()": lambda loader: loader.prefetch(2),
    "enable_profiling()": lambda loader: loader.enable_profiling(),
    "get_profiling_results()": lambda loader: loader.get_profiling_results(),
    "step": lambda loader: loader.step,
    "epoch": lambda loader: loader.epoch,
}


@pytest.mark.parametrize("what", ASKED)
def test_what_needs_a_run_says_that_there_is_none_and_what_to_do(what: str) -> None:
    with pytest.raises(LoaderError, match="Numbers has no run of its own") as refused:
        ASKED[what](Numbers(3))
    assert f"override {what}" in (refused.value.hint or "")


class Nothing(DataLoader[int]):
    """A loader that has forgotten its methods, and needs no constructor."""


@pytest.mark.parametrize("name", ["get_batch", "get_iterator", "get_num_batches", "reset"])
def test_a_method_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(LoaderError, match="Nothing has no run") as refused:
        getattr(Nothing(), name)()
    assert name in (refused.value.hint or "")


@pytest.mark.parametrize(
    "given", [(("corpus/",), {}), (("corpus/",), {"batch_size": 8}), ((Path("x"), 1, 2, 3), {"seed": 1})]
)
def test_the_base_points_to_load(given: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    with pytest.raises(LoaderError, match="does not open data itself") as refused:
        DataLoader(*given[0], **given[1])
    assert "millstream.load(path" in (refused.value.hint or "")
    assert callable(millstream.load)


def calls_of_next(loader: DataLoader[Any]) -> int:
    """Functions of Millstream that a steady `next()` calls."""
    for _ in range(3):
        loader.next()
    seen: set[tuple[str, str]] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and "millstream" in frame.f_code.co_filename:
            seen.add((frame.f_code.co_filename, frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        loader.next()
    finally:
        sys.setprofile(None)
    return len(seen)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_steady_batch_of_texts_takes_13_functions_at_most(framework: str) -> None:
    with example_loader(batch_size=2, framework=framework) as loader:
        assert 5 < calls_of_next(loader) <= 13


def test_a_steady_batch_of_packed_chats_takes_17_functions_at_most(tmp_path: Path) -> None:
    chats = [{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}] * 40
    how: dict[str, Any] = {"chat_template": "chatml", "add_control_tokens": True, "packing": True, "max_length": 64}
    with ConversationDataLoader(chats, tokenizer=bpe(), batch_size=1, cache_dir=tmp_path, **how) as loader:
        loader.wait()
        assert 5 < calls_of_next(loader) <= 17


def test_the_bases_methods_have_docstrings() -> None:
    public = [each for name, each in inspect.getmembers(DataLoader, inspect.isfunction) if not name.startswith("_")]
    assert all(each.__doc__ for each in public) and len(public) > 15
