from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loaders.samples import Ids, counting_loader, follows_its_hint, inputs, ran, take, windows
from millstream import (
    BudgetError,
    CharTokenizer,
    LoaderError,
    OrderError,
    PretrainDataLoader,
    StateError,
    StoreError,
    TokenizerError,
    TokenStore,
    TokenStoreWriter,
    load,
    prepare,
)
from millstream.storage import disk
from store.samples import write_store

MEGATRON = Path(__file__).parents[1] / "store" / "golden" / "megatron"
PAD = 99
NO_LOSS = -100


@pytest.fixture(scope="module", autouse=True)
def _quick_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "sync", lambda fd: None)
        yield


# Every row against a slow and obvious reference


@dataclass
class Row:
    """A row as it should be; `segments` are the lengths of its segments, padding in ones."""

    inputs: list[int]
    labels: list[int]
    segments: list[int]
    positions: list[int]
    length: int


def make_row(tokens: list[int], owners: list[int], target: int | None, length: int, labels: str, mode: str) -> Row:
    """Lay out tokens of documents `owners`; `target` is the token behind them, if the last one may be asked for it."""
    runs = [len(list(run)) for _, run in itertools.groupby(owners)] if mode == "isolate" else [len(tokens)]
    runs = [run for run in runs if run]
    after: list[int | None] = [*tokens[1:], target]
    rest = length - len(tokens)
    if labels == "same":
        wanted = list(tokens)
    else:
        wanted = [NO_LOSS if token is None else token for token in after[: len(tokens)]]
    start = 0
    for run in runs if mode == "isolate" else ():
        if labels == "same":
            wanted[start] = NO_LOSS  # its predecessor is in another document
        elif start + run < len(tokens):
            wanted[start + run - 1] = NO_LOSS  # its successor is
        start += run
    segments = [*runs, *[1] * rest]
    positions = [place for segment in segments for place in range(segment)]
    return Row([*tokens, *[PAD] * rest], [*wanted, *[NO_LOSS] * rest], segments, positions, len(tokens))


def reference(documents: Ids, length: int, mode: str, labels: str, tail: str) -> list[Row]:
    if mode == "row":
        targets = [text[length] if len(text) > length else None for text in documents]
        return [
            make_row(text[:length], [0] * len(text[:length]), target, length, labels, mode)
            for text, target in zip(documents, targets, strict=True)
        ]
    tokens = [token for text in documents for token in text]
    owners = [number for number, text in enumerate(documents) for _ in text]
    rows = []
    for number, row in enumerate(windows(tokens, length, tail=tail)):
        stop = number * length + len(row)
        follows = stop < len(tokens) and (mode == "attend" or owners[stop] == owners[stop - 1])
        target = tokens[stop] if follows else None
        rows.append(make_row(row, owners[number * length : stop], target, length, labels, mode))
    return rows


def check(loader: PretrainDataLoader, expected: list[Row], mode: str) -> None:
    done = 0
    for batch in loader:
        rows = expected[done : done + batch.metadata["rows"]]
        done += len(rows)
        assert batch.validate().input_ids.tolist() == [row.inputs for row in rows]
        assert batch.labels.tolist() == [row.labels for row in rows]
        assert batch.metadata["tokens"] == sum(row.length for row in rows)
        if mode == "isolate":
            assert batch.position_ids.tolist() == [row.positions for row in rows]
            assert np.diff(batch.cu_seqlens).tolist() == [segment for row in rows for segment in row.segments]
        else:
            assert batch.position_ids is batch.cu_seqlens is None
            assert batch.attention_mask.sum(axis=1).tolist() == [row.length for row in rows]
    assert done == len(expected)


documents_of = st.lists(st.lists(st.integers(0, 60), max_size=12), min_size=1, max_size=14)


@given(
    documents=documents_of,
    length=st.integers(1, 9),
    shard_tokens=st.sampled_from([1, 5, 20, 1000]),
    batch_size=st.integers(1, 5),
)
@example(documents=[[1], [], [2, 3], [], []], length=2, shard_tokens=1, batch_size=2)
@example(documents=[[1, 2, 3, 4], [5, 6, 7, 8]], length=4, shard_tokens=1, batch_size=2)
@settings(max_examples=40, deadline=None)
def test_every_row_is_what_the_reference_says(documents: Ids, length: int, shard_tokens: int, batch_size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = TokenStore(write_store(Path(folder, "store"), documents, shard_tokens=shard_tokens))
        modes = itertools.product(("attend", "isolate", "row"), ("next", "same"), ("drop", "pad"))
        for mode, labels, tail in modes:
            expected = reference(documents, length, mode, labels, tail)
            given: Any = {"documents": mode, "labels": labels, "tail": tail, "pad_id": PAD, "batch_size": batch_size}
            if not expected:
                with pytest.raises(LoaderError, match="fewer than one row"):
                    PretrainDataLoader(store, chunk_size=length, **given)
                continue
            with PretrainDataLoader(store, chunk_size=length, shuffle=False, framework="numpy", **given) as loader:
                check(loader, expected, mode)


@given(documents=documents_of.filter(lambda texts: sum(map(len, texts)) > 1), length=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_an_explained_row_holds_the_tokens_of_its_spans(documents: Ids, length: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = TokenStore(write_store(Path(folder, "store"), documents, shard_tokens=7))
        for mode in ("attend", "row"):
            given: Any = {"documents": mode, "tail": "pad", "batch_size": 3, "framework": "numpy"}
            with PretrainDataLoader(store, chunk_size=length, **given) as loader:
                for batch in loader:
                    origins = loader.explain(batch.metadata["step"])
                    lengths = batch.attention_mask.sum(axis=1).tolist()
                    for origin, row, real in zip(origins, inputs([batch]), lengths, strict=True):
                        spans = [documents[span.document][span.start : span.stop] for span in origin.spans]
                        assert [token for span in spans for token in span] == row[:real]


# Files of others


@pytest.mark.parametrize("mode", ["attend", "isolate", "row"])
def test_a_megatron_pair_is_read_like_a_store(mode: str) -> None:
    documents = [[1, 2, 3, 4, 5], [6, 7, 8], [], [50256]]
    path = next(MEGATRON.glob("*.bin"))
    expected = reference(documents, 4, mode, "next", "pad")
    given: Any = {"documents": mode, "tail": "pad", "pad_id": PAD, "framework": "numpy", "shuffle": False}
    with PretrainDataLoader(path, chunk_size=4, batch_size=2, **given) as loader:
        check(loader, expected, mode)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "int32"])
@pytest.mark.parametrize("mode", ["attend", "isolate", "row"])
def test_a_bare_file_is_one_document(tmp_path: Path, dtype: str, mode: str) -> None:
    expected = reference([list(range(45))], 10, mode, "next", "pad")
    given: Any = {"documents": mode, "tail": "pad", "pad_id": PAD, "shuffle": False, "dtype": dtype}
    with counting_loader(tmp_path, tokens=45, batch_size=2, **given) as loader:
        check(loader, expected, mode)
        assert {span.document for row in loader.explain(0) for span in row.spans} == {0}


def test_a_bare_file_without_a_dtype_gets_a_hint_that_works(tmp_path: Path) -> None:
    counting_loader(tmp_path).close()
    with pytest.raises(StoreError) as caught:
        PretrainDataLoader(tmp_path / "counting.bin", chunk_size=10)
    assert 'dtype="uint16"' in follows_its_hint(caught.value)

    with load(tmp_path / "counting.bin", chunk_size=10, dtype="uint16", framework="numpy") as loader:
        assert loader.get_num_batches() == 13


def test_a_dtype_that_contradicts_the_store_is_refused(tmp_path: Path) -> None:
    path = write_store(tmp_path / "store", [range(50)])
    for where in (path, TokenStore(path)):
        with pytest.raises((LoaderError, StoreError), match="uint16, not int32"):
            PretrainDataLoader(where, chunk_size=10, dtype="int32")


# Too little data


@pytest.mark.parametrize(("tokens", "length"), [(10, 10), (5, 7), (2, 2)])
def test_a_store_with_less_than_a_row_is_refused_and_its_hints_work(tmp_path: Path, tokens: int, length: int) -> None:
    with pytest.raises(LoaderError, match=f"{tokens} tokens") as caught:
        counting_loader(tmp_path, tokens=tokens, chunk_size=length)
    hint = follows_its_hint(caught.value)
    shorter = re.search(r"chunk_size=(\d+)", hint)
    assert shorter is not None

    with counting_loader(tmp_path, tokens=tokens, chunk_size=int(shorter[1])) as loader:
        assert len(inputs(loader)) == 1
    with counting_loader(tmp_path, tokens=tokens, chunk_size=length, tail="pad") as loader:
        assert len(inputs(loader)) == 1


def test_one_token_has_no_target_and_no_hint_that_leads_nowhere(tmp_path: Path) -> None:
    for tail in ("drop", "pad"):
        with pytest.raises(LoaderError) as caught:
            counting_loader(tmp_path, tokens=1, tail=tail)
        assert "tail" not in follows_its_hint(caught.value)


def test_an_empty_store_is_refused_in_every_mode(tmp_path: Path) -> None:
    path = write_store(tmp_path / "store", [])
    for mode in ("attend", "isolate", "row"):
        with pytest.raises((LoaderError, StoreError)) as caught:
            PretrainDataLoader(path, chunk_size=4, documents=mode)
        follows_its_hint(caught.value)


def test_documents_that_are_all_empty_give_rows_without_loss(tmp_path: Path) -> None:
    path = write_store(tmp_path / "store", [[], []])
    with PretrainDataLoader(path, chunk_size=4, documents="row", framework="numpy") as loader:
        batch = loader.next().validate()

    assert (batch.metadata["rows"], batch.metadata["tokens"], float(batch.loss_mask.sum())) == (2, 0, 0.0)


# Losses


def test_nothing_is_lost_without_being_counted(tmp_path: Path) -> None:
    path = write_store(tmp_path / "store", [range(13), range(4), range(9)])
    given: Any = {"chunk_size": 4, "framework": "numpy", "batch_size": 2}
    with PretrainDataLoader(path, **given) as loader:
        assert loader.losses == {"cut_tokens": 0, "tail_tokens:data": 1}
    with PretrainDataLoader(path, tail="pad", **given) as loader:
        assert loader.losses == {"cut_tokens": 0, "tail_tokens:data": 0}
    with PretrainDataLoader(path, drop_last=True, **{**given, "batch_size": 4}) as loader:
        assert loader.losses["dropped_rows"] == 2
        assert len(inputs(loader)) == 4
    with PretrainDataLoader(path, documents="row", **given) as loader:
        cut = {origin.sample: 0 for step in range(2) for origin in loader.explain(step)}
        for step, batch in enumerate(loader):
            cut |= zip((origin.sample for origin in loader.explain(step)), batch.metadata["cut_tokens"], strict=True)
        assert cut == {0: 9, 1: 0, 2: 5}
        assert loader.losses == {"cut_tokens": 14}
        assert loader.get_profiling_results()["losses"] == loader.losses


def test_rows_that_are_given_again_are_not_cut_again(tmp_path: Path) -> None:
    path = write_store(tmp_path / "store", [range(13), range(4), range(9)])
    with PretrainDataLoader(path, chunk_size=4, framework="numpy", batch_size=3, documents="row") as loader:
        state = loader.state_dict()
        for go_back in (loader.reset, lambda: loader.seek(0), lambda: loader.load_state_dict(state)):
            loader.next()
            assert loader.losses["cut_tokens"] == 14
            go_back()


def test_filler_is_marked_and_has_no_loss(tmp_path: Path) -> None:
    for mode in ("attend", "isolate"):
        with counting_loader(tmp_path, tokens=71, pad_last=True, pad_id=PAD, documents=mode) as loader:
            *_, last = loader
            last.validate()

        assert last.input_ids.shape == (4, 10)
        assert last.metadata["filler"] == [False, False, False, True]
        assert (last.metadata["rows"], last.metadata["tokens"]) == (3, 30)
        assert (last.labels[3] == NO_LOSS).all()
        assert (last.input_ids[3] == PAD).all()


# Names


def test_seq_len_is_another_name_of_chunk_size(tmp_path: Path) -> None:
    with counting_loader(tmp_path, seq_len=5, chunk_size=None) as loader:
        assert take(loader, 1)[0] == take(counting_loader(tmp_path, chunk_size=5), 1)[0]
    with counting_loader(tmp_path, seq_len=5, chunk_size=5) as loader:
        assert loader.shape.length == 5


def test_an_open_store_and_its_path_give_the_same_rows(tmp_path: Path) -> None:
    path = write_store(tmp_path / "store", [range(50), range(30)])
    given: Any = {"chunk_size": 4, "framework": "numpy"}
    rows = []
    for where in (path, str(path), TokenStore(path)):
        with PretrainDataLoader(where, **given) as loader:
            rows.append(inputs(loader))

    assert rows[0] == rows[1] == rows[2]


def test_the_name_of_the_source_is_part_of_its_key(tmp_path: Path) -> None:
    first, again, other = (take(counting_loader(tmp_path, name=name), 25) for name in ("web", "web", "code"))

    assert first == again != other
    assert sorted(first) == sorted(other)


def test_a_batch_size_of_the_moment_is_a_step_like_any_other(tmp_path: Path) -> None:
    with counting_loader(tmp_path) as loader:
        expected = inputs(loader)
    with counting_loader(tmp_path) as loader:
        sizes = [3, 4, 11, 4, 1]
        batches = [loader.get_batch(size) for size in sizes]
        assert [batch.metadata["step"] for batch in batches] == [0, 1, 2, 3, 4]
        assert [len(batch.input_ids) for batch in batches] == sizes
        assert inputs(batches) + inputs(loader) == expected


def test_a_row_of_a_document_cannot_be_cut_by_a_state(tmp_path: Path) -> None:
    path = write_store(tmp_path / "store", [range(9), range(9)])
    with PretrainDataLoader(path, chunk_size=4, documents="row", framework="numpy", batch_size=1) as loader:
        loader.next()
        state = loader.state_dict()
        state["phases"][0]["sources"]["data"]["split"] = 2
        with pytest.raises(StateError, match="other samples"):
            loader.load_state_dict(state)


def test_repr_says_what_it_is_over(tmp_path: Path) -> None:
    with counting_loader(tmp_path) as loader:
        assert repr(loader) == "PretrainDataLoader(data: 1001 tokens; rows of 10, step 0)"


def test_explain_gives_the_text_by_the_tokenizer_that_lies_in_the_store(tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text("the mill goes round and round", "utf-8")
    prepare(tmp_path / "poem.txt", tmp_path / "corpus", tokenizer="char")

    with PretrainDataLoader(tmp_path / "corpus", chunk_size=8, shuffle=False, framework="numpy") as loader:
        assert loader.explain(0)[0].text == "the mill"
    with pytest.raises(TokenizerError, match="was made with"):
        PretrainDataLoader(tmp_path / "corpus", chunk_size=8, tokenizer=CharTokenizer.train(["xyz"]))


def test_padded_rows_cannot_be_cut_shorter_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    with TokenStoreWriter(tmp_path / "store") as writer:
        writer.append(list(range(10)))
    shared: dict[str, Any] = {"tail": "pad", "batch_size": 1, "framework": "numpy"}
    with PretrainDataLoader(tmp_path / "store", chunk_size=8, **shared) as loader:
        loader.next()
        state = loader.state_dict()
    with PretrainDataLoader(tmp_path / "store", chunk_size=4, **shared) as loader:
        with pytest.raises(OrderError, match="cannot become rows of 4"):
            loader.load_state_dict(state)
        assert loader.next().metadata["step"] == 0


def test_explaining_a_file_that_shrank_is_an_error_and_ends_no_process(tmp_path: Path) -> None:
    code = """
        import os, sys
        from millstream import CharTokenizer, PretrainDataLoader, StoreError

        loader = PretrainDataLoader(sys.argv[1], chunk_size=1000, batch_size=1, shuffle=False, framework="numpy",
                                    tokenizer=CharTokenizer("abc"), dtype="uint16")
        print(len(loader.explain(0)[0].text))
        os.truncate(sys.argv[1], 0)
        try:
            loader.explain(3)
        except StoreError as error:
            print("became shorter" in str(error))
    """
    path = tmp_path / "tokens.bin"
    np.ones(20_000, np.uint16).tofile(path)

    assert ran(code, path) == ["1000", "True"]


def test_a_shard_table_that_shrinks_ends_no_process(tmp_path: Path) -> None:
    with TokenStoreWriter(tmp_path / "store", shard_tokens=10) as writer:
        for _ in range(20):
            writer.append(list(range(10)))
    with PretrainDataLoader(tmp_path / "store", chunk_size=8, framework="numpy") as loader:
        for table in (tmp_path / "store" / "versions").glob("*.tab"):
            os.truncate(table, 0)
        assert len(list(loader)) == loader.get_num_batches()


def test_a_budget_counts_a_batch_as_its_columns(tmp_path: Path) -> None:
    """Two of ids, and two numbers per row, each aligned to 64 bytes."""
    with counting_loader(tmp_path, batch_size=3, memory_budget=1) as loader, pytest.raises(BudgetError) as caught:
        loader.next()
    named = re.search(r"the threads take (\d+), a batch (\d+)", caught.value.message)
    assert named is not None
    threads, nbytes = int(named[1]), 2 * 64 * -(-3 * 10 * 8 // 64) + 64
    least = threads + 2 * nbytes

    assert int(named[2]) == nbytes
    assert f"memory_budget={least} or more" in follows_its_hint(caught.value)
    with counting_loader(tmp_path, batch_size=3, memory_budget=least) as loader:
        assert loader.next().metadata["rows"] == 3
    with counting_loader(tmp_path, batch_size=3, memory_budget=least - 1) as loader, pytest.raises(BudgetError):
        loader.next()
