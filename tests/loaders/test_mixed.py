from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.conversations import conversation
from loaders.samples import Ids, counting_file, counting_loader, follows_its_hint, inputs, take
from millstream import (
    BPETokenizer,
    ConversationDataLoader,
    LoaderError,
    MixedDataLoader,
    OrderError,
    PretrainDataLoader,
    StateError,
    prepare,
)

Rows = list[tuple[str, list[int]]]


def source(path: Path, samples: int, **given: Any) -> PretrainDataLoader:
    """A loader over some rows of two tokens."""
    path.mkdir(exist_ok=True)
    file = counting_file(path / f"{samples}.bin", 2 * samples + 1)
    return PretrainDataLoader(file, chunk_size=2, dtype="uint16", framework="numpy", **given)


def mixed(sources: Mapping[str, tuple[Any, float]], **given: Any) -> MixedDataLoader:
    chosen: dict[str, Any] = {"framework": "numpy", "mix_block": 10, **given}
    return MixedDataLoader(sources, **chosen)


def named_rows(loader: MixedDataLoader, batches: int | None = None) -> Rows:
    """Give source and inputs of each row, of the rest of the epoch or of some batches."""
    taken = loader if batches is None else (loader.next() for _ in range(batches))
    return [(name, row) for batch in taken for name, row in zip(batch.metadata["source"], inputs([batch]), strict=True)]


def of(rows: Rows, name: str) -> Ids:
    return [row for source, row in rows if source == name]


# Proportions


@given(
    weights=st.lists(st.floats(0.05, 1), min_size=2, max_size=5),
    block=st.sampled_from([20, 50, 1000]),
    seed=st.integers(0, 5),
)
@settings(max_examples=30, deadline=None)
def test_every_block_holds_each_source_as_often_as_its_weight_says(
    tmp_path_factory: pytest.TempPathFactory, weights: list[float], block: int, seed: int
) -> None:
    loader = source(tmp_path_factory.getbasetemp() / "mix", 30)
    sources = {f"s{number}": (loader, weight) for number, weight in enumerate(weights)}
    try:
        run = mixed(sources, mix_block=block, batch_size=block, seed=seed, epoch_size=3 * block)
    except OrderError as error:
        assert "rounds to none" in str(error)
        return
    with run:
        for batch in run:
            counts = Counter(batch.metadata["source"])
            assert sum(counts.values()) == block
            for name, (_, weight) in sources.items():
                assert abs(counts[name] - weight / sum(weights) * block) < 1


def test_each_source_follows_its_own_order_and_repeats(tmp_path: Path) -> None:
    web, code = source(tmp_path, 40), source(tmp_path, 8)
    with mixed({"web": (web, 0.8), "code": (code, 0.2)}, epoch_size=100, batch_size=10) as loader:
        rows = named_rows(loader)

    assert (len(of(rows, "web")), len(of(rows, "code"))) == (80, 20)
    for name, size in (("web", 40), ("code", 8)):
        used = of(rows, name)
        for epoch in range(len(used) // size):
            assert len(set(map(tuple, used[epoch * size : (epoch + 1) * size]))) == size


def test_adding_a_source_moves_no_other(tmp_path: Path) -> None:
    web, code, books = (source(tmp_path, samples) for samples in (60, 30, 20))
    with mixed({"web": (web, 0.5), "code": (code, 0.5)}) as loader:
        two = named_rows(loader)
    with mixed({"books": (books, 0.4), "web": (web, 0.3), "code": (code, 0.3)}) as loader:
        three = named_rows(loader)

    for name in ("web", "code"):
        shared = min(len(of(two, name)), len(of(three, name)))
        assert shared > 10
        assert of(two, name)[:shared] == of(three, name)[:shared]


# Epochs


def test_an_epoch_lasts_until_the_first_source_is_exhausted(tmp_path: Path) -> None:
    web, code = source(tmp_path, 90), source(tmp_path, 10)
    with mixed({"web": (web, 0.5), "code": (code, 0.5)}, batch_size=3) as loader:
        rows = named_rows(loader)

    assert len(set(map(tuple, of(rows, "code")))) == len(of(rows, "code")) == 10
    assert abs(len(of(rows, "web")) - 10) <= 5


@pytest.mark.parametrize("size", [1, 7, 25, 1000])
def test_an_epoch_size_is_kept(tmp_path: Path, size: int) -> None:
    web, code = source(tmp_path, 30), source(tmp_path, 12)
    with mixed({"web": (web, 0.6), "code": (code, 0.4)}, epoch_size=size, batch_size=4) as loader:
        assert loader.get_num_batches() == -(-size // 4)
        for epoch in range(2):
            assert loader.epoch == epoch
            assert len(named_rows(loader)) == size


@pytest.mark.parametrize("size", [0, -5, 2.5, "all", True])
def test_an_impossible_epoch_size_or_block_is_refused(tmp_path: Path, size: Any) -> None:
    web = source(tmp_path, 30)
    for name in ("epoch_size", "mix_block"):
        with pytest.raises(LoaderError, match=name) as caught:
            mixed({"web": (web, 1)}, **{name: size})
        follows_its_hint(caught.value)


def test_a_block_that_would_not_fit_into_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OrderError, match="places") as caught:
        mixed({"web": (source(tmp_path, 30), 1)}, mix_block=10**12)
    assert "mix_block" in follows_its_hint(caught.value)


# Weights


def test_a_weight_that_rounds_to_nothing_is_refused_and_its_hints_work(tmp_path: Path) -> None:
    web, code = source(tmp_path, 30), source(tmp_path, 12)
    with pytest.raises(OrderError, match=r"'code'.*rounds to none of 10 places") as caught:
        mixed({"web": (web, 1.0), "code": (code, 0.01)})
    hint = follows_its_hint(caught.value)
    enough = re.search(r"at least ([\d.]+)", hint)
    assert enough is not None
    assert "mix_block" in hint

    for repaired in (
        mixed({"web": (web, 1.0), "code": (code, float(enough[1]))}),
        mixed({"web": (web, 1.0), "code": (code, 0.01)}, mix_block=1000),
        mixed({"web": (web, 1.0)}),
    ):
        with repaired:
            repaired.next()


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), "half", None, [0.5], 1j])
def test_a_weight_that_is_none_is_refused(tmp_path: Path, weight: Any) -> None:
    web = source(tmp_path, 30)
    for sources in ({"web": (web, weight)}, {"web": (web, weight), "code": (web, 1.0)}):
        with pytest.raises(OrderError) as caught:
            mixed(sources)
        follows_its_hint(caught.value)


def test_weights_need_no_sum(tmp_path: Path) -> None:
    web, code = source(tmp_path, 30), source(tmp_path, 12)
    rows = []
    for scale in (0.01, 1, 1000):
        with mixed({"web": (web, 3 * scale), "code": (code, scale)}, mix_block=4) as loader:
            rows.append(named_rows(loader))

    assert rows[0] == rows[1] == rows[2]


# Sources


@pytest.mark.parametrize("entry", [None, 5, (1, 2, 3), ("web", 1.0), "loader", (None, 1.0)])
def test_what_is_no_pair_of_loader_and_weight_is_refused(tmp_path: Path, entry: Any) -> None:
    with pytest.raises(LoaderError, match="'web'") as caught:
        mixed({"web": entry})
    follows_its_hint(caught.value)
    with pytest.raises(LoaderError, match="needs a source") as caught:
        mixed({})
    follows_its_hint(caught.value)


def test_a_loader_without_a_weight_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoaderError, match="PretrainDataLoader, not a pair"):
        mixed({"web": source(tmp_path, 30)})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "other",
    [
        {"chunk_size": 5},
        {"documents": "isolate"},
        {"tail": "pad"},
        {"labels": "same"},
        {"pad_id": 7},
    ],
)
def test_loaders_of_unequal_rows_cannot_be_mixed(tmp_path: Path, other: dict[str, Any]) -> None:
    first, second = counting_loader(tmp_path), counting_loader(tmp_path, **other)
    with pytest.raises(LoaderError, match=r"'second'.*differ") as caught:
        mixed({"first": (first, 0.5), "second": (second, 0.5)})
    assert next(iter(other)) in follows_its_hint(caught.value)


def test_labels_come_from_the_loaders_and_must_agree(tmp_path: Path) -> None:
    same = counting_loader(tmp_path, labels="same")
    with mixed({"a": (same, 1)}) as loader:
        batch = loader.next()
        assert batch.labels.tolist() == batch.input_ids.tolist()
    with pytest.raises(LoaderError, match="labels"):
        mixed({"a": (same, 1)}, labels="next")


def test_a_shuffle_that_is_not_the_loaders_own_is_refused(tmp_path: Path) -> None:
    ordered = source(tmp_path, 30, shuffle=False)
    with pytest.raises(LoaderError, match="shuffle") as caught:
        mixed({"a": (ordered, 1)}, shuffle="global")
    follows_its_hint(caught.value)

    with mixed({"a": (ordered, 1)}, shuffle=False, batch_size=3) as loader:
        assert take(loader, 1) == [[0, 1], [2, 3], [4, 5]]


def test_the_mixed_loaders_stay_as_they_were(tmp_path: Path) -> None:
    web = source(tmp_path, 30, batch_size=3)
    before = take(web, 2)
    with mixed({"web": (web, 1)}) as loader:
        take(loader, 3)
    assert web.step == 2
    web.reset()
    assert take(web, 2) == before
    web.close()
    with mixed({"web": (web, 1)}) as loader:
        assert loader.next().metadata["rows"] == 8


def test_filler_has_no_source(tmp_path: Path) -> None:
    web, code = source(tmp_path, 30), source(tmp_path, 12)
    sources = {"web": (web, 0.5), "code": (code, 0.5)}
    with mixed(sources, epoch_size=5, batch_size=4, pad_last=True) as loader:
        *_, last = loader

    assert last.metadata["filler"] == [False, True, True, True]
    assert last.metadata["source"][1:] == ["", "", ""]


def test_losses_are_told_by_source(tmp_path: Path) -> None:
    first = counting_loader(tmp_path, tokens=108)
    (tmp_path / "b").mkdir()
    second = counting_loader(tmp_path / "b", tokens=203)
    with mixed({"a": (first, 0.5), "b": (second, 0.5)}, drop_last=True, epoch_size=10, batch_size=4) as loader:
        assert loader.losses == {"cut_tokens": 0, "tail_tokens:a": 7, "tail_tokens:b": 2, "dropped_rows": 2}


def test_a_document_of_a_mixture_needs_the_name_of_its_source(tmp_path: Path) -> None:
    web, code = source(tmp_path, 30), source(tmp_path, 12)
    with mixed({"web": (web, 0.5), "code": (code, 0.5)}) as loader:
        for name in (None, "books"):
            with pytest.raises(LoaderError) as caught:
                loader.steps_of(0, name)
            assert "web" in follows_its_hint(caught.value)
        steps = [
            step for step in range(loader.get_num_batches()) if any(r.source == "code" for r in loader.explain(step))
        ]
        assert loader.steps_of(0, "code") == steps


# Tokenizers

BASE, OTHER = (BPETokenizer.train([text], vocab_size=300) for text in ("the mill by the stream", "quick foxes jump"))


def texts(folder: Path, tokenizer: object, **given: Any) -> PretrainDataLoader:
    (folder / "a.txt").write_text("the mill by the stream runs " * 30)
    store = prepare(folder / "a.txt", Path(tempfile.mkdtemp(dir=folder), "store"), tokenizer, **given).path
    return PretrainDataLoader(store, chunk_size=64, framework="numpy")


def chats(folder: Path, tokenizer: BPETokenizer, template: str = "chatml") -> ConversationDataLoader:
    return ConversationDataLoader(
        [conversation(number, 3) for number in range(8)],
        tokenizer=tokenizer,
        chat_template=template,
        add_control_tokens=True,
        max_length=64,
        packing=True,
        framework="numpy",
        cache_dir=folder / "cache",
    )


@pytest.mark.parametrize("one, other", [(texts, texts), (chats, chats), (texts, chats), (chats, texts)])
def test_sources_of_two_tokenizers_are_refused_by_name(tmp_path: Path, one: Any, other: Any) -> None:
    sources = {"web": (one(tmp_path, BASE), 0.5), "more": (other(tmp_path, OTHER), 0.5)}

    with pytest.raises(LoaderError, match=r"'more' has ids of the tokenizer 'bpe-\d+' .*, 'web' of 'bpe-\d+'"):
        mixed(sources)


def test_control_tokens_behind_a_vocabulary_change_none_of_its_ids(tmp_path: Path) -> None:
    with mixed({"web": (texts(tmp_path, BASE), 0.5), "chat": (chats(tmp_path, BASE), 0.5)}, batch_size=10) as loader:
        assert set(loader.next().metadata["source"]) == {"web", "chat"}
    BASE.save(tmp_path / "base.json")
    with_ids = texts(tmp_path, tmp_path / "base.json", special_tokens="ids")
    with mixed({"web": (with_ids, 0.5), "chat": (chats(tmp_path, BASE), 0.5)}, batch_size=10) as loader:
        assert set(loader.next().metadata["source"]) == {"web", "chat"}


def test_a_state_is_small_however_many_names_of_sources_it_holds(tmp_path: Path) -> None:
    """Also where what says how rows are made has them all: texts beside conversations."""
    text, chat = texts(tmp_path, BASE), chats(tmp_path, BASE)
    named = {f"one of many sources with a long name, {number:02d}": (text, 1.0) for number in range(14)}
    shared: dict[str, Any] = {"batch_size": 4, "cache_dir": tmp_path, "mix_block": 100}
    beside = set()
    for count in range(1, 15):
        sources = {**dict(list(named.items())[:count]), "chat": (chat, 1.0)}
        with mixed(sources, **shared) as loader:
            loader.next()
            state, expected = json.dumps(loader.state_dict()), loader.next().input_ids.tolist()
        assert len(state) < 4096
        beside.add("earlier_phases" in state)
        with mixed(sources, **shared) as loader:
            loader.load_state_dict(json.loads(state))
            assert loader.next().input_ids.tolist() == expected
    assert beside == {False, True}
    sources = {f"{name}{'…' * 50}": each for name, each in named.items()} | {"chat": (chat, 1.0)}
    with mixed(sources, **shared) as loader, pytest.raises(StateError) as caught:
        loader.state_dict()
    assert "shorter names" in follows_its_hint(caught.value)


def test_control_tokens_of_two_templates_have_the_same_ids_and_are_not_mixed(tmp_path: Path) -> None:
    sources = {"chat": (chats(tmp_path, BASE), 0.5), "other": (chats(tmp_path, BASE, "llama3"), 0.5)}

    with pytest.raises(LoaderError, match="one id would be two different words"):
        mixed(sources)


def test_a_mixture_has_the_framework_that_its_loaders_agree_on(tmp_path: Path) -> None:
    with MixedDataLoader({"web": (source(tmp_path, 9), 1.0)}) as loader:
        assert loader.settings.framework == "numpy"
