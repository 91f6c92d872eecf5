"""Objectives as transforms of rows: each keeps its definition, and treats a row the same wherever it is delivered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.samples import follows_its_hint
from millstream import (
    BPETokenizer,
    LoaderError,
    PretrainDataLoader,
    TokenStoreWriter,
    corrupt_spans,
    fill_in_the_middle,
    mask_tokens,
)
from millstream.loaders import ConversationDataLoader, PerRow
from millstream.loaders.hooks import Row

MASK, SPECIAL, VOCABULARY = 4, (0, 1, 2), 500
PREFIX, SUFFIX, MIDDLE, END = 501, 502, 503, 1
SENTINELS = range(900, 1000)
Tokens = list[int]

bodies = st.lists(st.integers(5, VOCABULARY - 1), min_size=1, max_size=80)
seeds = st.integers(0, 2**32)


def row_of(tokens: Tokens, padding: int = 0, *, target: int = -100, labels: str = "next") -> Row:
    ids = np.array(tokens + [0] * padding, np.int64)
    targets = [*tokens[1:], target] if labels == "next" else tokens
    return {
        "input_ids": ids,
        "labels": np.array(targets + [-100] * padding, np.int64),
        "length": np.array([len(tokens)], np.int32),
    }


def treated(transform: PerRow, row: Row, seed: int) -> Row:
    return transform(row, np.random.default_rng(seed))


# Masking


@given(bodies, seeds, st.integers(0, 9))
def test_what_is_hidden_is_what_is_learned_and_nothing_else_changes(tokens: Tokens, seed: int, padding: int) -> None:
    tokens = [*SPECIAL, *tokens]
    row = treated(
        mask_tokens(mask_id=MASK, vocab_size=VOCABULARY, special_ids=SPECIAL, rate=0.5), row_of(tokens, padding), seed
    )
    before = np.array(tokens + [0] * padding)
    learned = row["labels"] != -100

    assert (row["labels"][learned] == before[learned]).all()
    assert (row["input_ids"][~learned] == before[~learned]).all()
    assert not learned[: len(SPECIAL)].any() and not learned[len(tokens) :].any()
    assert not np.isin(row["input_ids"][learned], SPECIAL).any()


def test_of_the_chosen_tokens_eighty_percent_are_masked_ten_are_others_and_ten_stay() -> None:
    tokens = np.full(200_000, 77)
    row = treated(mask_tokens(mask_id=MASK, vocab_size=VOCABULARY, rate=0.15), row_of(tokens.tolist()), 1)
    chosen = row["labels"] == 77
    now = row["input_ids"][chosen]

    assert abs(chosen.mean() - 0.15) < 0.005
    assert abs((now == MASK).mean() - 0.8) < 0.01
    assert abs((now == 77).mean() - 0.1) < 0.01
    assert len(set(now.tolist())) > 400  # any token stands in


@given(seeds, st.floats(0.05, 1))
@settings(max_examples=30)
def test_whole_words_are_chosen_whole(words: int, rate: float) -> None:
    tokenizer = words_tokenizer()
    ids = tokenizer.encode("the mills grind slowly the millstream grinding " * 3)
    starts = [tokenizer.decode([id])[:1] == " " or place == 0 for place, id in enumerate(ids)]
    word = np.cumsum(starts)
    transform = mask_tokens(tokenizer, mask_id=tokenizer.vocab_size, rate=rate, whole_words=True)
    learned = treated(transform, row_of(ids), words)["labels"] != -100

    assert max(np.bincount(word)) > 1  # some words have several tokens
    for number in set(word.tolist()):
        assert len(set(learned[word == number].tolist())) == 1


def words_tokenizer() -> BPETokenizer:
    return BPETokenizer.train(["the mills grind slowly"] * 3, vocab_size=266)


def test_a_tokenizer_says_what_masking_needs() -> None:
    tokenizer = BPETokenizer.train(["the mill"], vocab_size=270, special_tokens=("<|endoftext|>", "[MASK]", "[CLS]"))
    specials = [tokenizer.token_id(name) or 0 for name in ("<|endoftext|>", "[MASK]", "[CLS]")]
    row = treated(mask_tokens(tokenizer, rate=1.0), row_of([*specials, *tokenizer.encode("mill the mill")]), 3)

    assert (row["labels"][:3] == -100).all() and (row["labels"][3:] != -100).all()
    assert tokenizer.token_id("[MASK]") in row["input_ids"][3:]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: mask_tokens(), "mask_id"),
        (lambda: mask_tokens(mask_id=3), "vocab_size"),
        (lambda: mask_tokens(mask_id=3, vocab_size=9, whole_words=True), "tokenizer"),
        (lambda: mask_tokens(words_tokenizer()), "has no mask"),
        (lambda: mask_tokens(mask_id=3, vocab_size=9, rate=0), "rate"),
        (lambda: fill_in_the_middle(1, 2, 3, rate=2), "rate"),
        (lambda: fill_in_the_middle(1, 2, 3, labels="last"), "labels"),  # type: ignore[arg-type]
        (lambda: corrupt_spans([1], density=0), "density"),
        (lambda: corrupt_spans([1], mean_length=0.5), "mean_length"),
    ],
)
def test_what_cannot_be_done_is_refused(make: Callable[[], PerRow], says: str) -> None:
    with pytest.raises(LoaderError, match=says) as caught:
        make()
    follows_its_hint(caught.value)


def test_an_id_outside_the_vocabulary_is_an_error() -> None:
    with pytest.raises(LoaderError, match="the id 99"):
        treated(mask_tokens(mask_id=3, vocab_size=9), row_of([5, 99]), 1)


# Fill in the middle


def split(tokens: Tokens) -> tuple[Tokens, Tokens, Tokens] | None:
    """Prefix, suffix and middle of a document that was moved."""
    if PREFIX not in tokens:
        return None
    suffix, middle = tokens.index(SUFFIX), tokens.index(MIDDLE)
    if suffix == 1:  # suffix-prefix-middle, or a prefix of nothing: the same
        return [], tokens[2:middle], tokens[middle + 1 :]
    return tokens[1:suffix], tokens[suffix + 1 : middle], tokens[middle + 1 :]


@given(bodies, seeds, st.booleans(), st.booleans(), st.integers(0, 5))
def test_prefix_middle_and_suffix_are_the_document_less_what_the_sentinels_take(
    tokens: Tokens, seed: int, spm: bool, ends: bool, padding: int
) -> None:
    tokens = [*tokens, END] if ends else tokens
    transform = fill_in_the_middle(PREFIX, SUFFIX, MIDDLE, rate=1, spm_rate=float(spm), end_id=END if ends else None)
    row = treated(transform, row_of(tokens, padding), seed)
    now = row["input_ids"].tolist()

    assert row["labels"].tolist() == [*now[1 : len(tokens)], -100, *[-100] * padding]  # every token is learned
    assert now[len(tokens) :] == [0] * padding
    now = now[: len(tokens)]
    if ends:
        assert now.pop() == END
        tokens = tokens[:-1]
    parts = split(now)
    if parts is None:
        assert now == tokens
    else:
        prefix, suffix, rest = parts
        whole = [*prefix, *rest] if not spm else rest  # what stands before the suffix
        assert [*whole, *suffix] == tokens[:-3]


@given(bodies, seeds)
def test_a_target_behind_the_row_belongs_to_the_document(tokens: Tokens, seed: int) -> None:
    """A window of a store: the permutation is that of the row and one token more, shifted."""
    transform = fill_in_the_middle(PREFIX, SUFFIX, MIDDLE, rate=1)
    longer = treated(transform, row_of([*tokens, 7]), seed)["input_ids"].tolist()
    row = treated(transform, row_of(tokens, target=7), seed)

    assert (row["input_ids"].tolist(), row["labels"].tolist()) == (longer[:-1], longer[1:])


@given(st.lists(bodies, min_size=1, max_size=4), seeds)
def test_documents_of_a_row_are_moved_one_by_one(documents: list[Tokens], seed: int) -> None:
    tokens = [token for document in documents for token in (*document, END)]
    row = treated(fill_in_the_middle(PREFIX, SUFFIX, MIDDLE, rate=1, end_id=END), row_of(tokens), seed)
    ends = np.flatnonzero(row["input_ids"] == END).tolist()

    assert ends == [end - 1 for end in np.cumsum([len(document) + 1 for document in documents])]


@given(bodies, bodies, seeds, st.sampled_from(["next", "same"]))
def test_isolated_documents_stay_in_their_places(one: Tokens, other: Tokens, seed: int, labels: Any) -> None:
    row = row_of([*one, *other], labels=labels)
    row["position_ids"] = np.array([*range(len(one)), *range(len(other))])
    row["labels"][[len(one) - 1, -1] if labels == "next" else [0, len(one)]] = -100
    now = treated(fill_in_the_middle(PREFIX, SUFFIX, MIDDLE, rate=1, labels=labels), row, seed)

    for part in (slice(0, len(one)), slice(len(one), None)):
        inputs, targets = now["input_ids"][part].tolist(), now["labels"][part].tolist()
        assert targets == ([*inputs[1:], -100] if labels == "next" else [-100, *inputs[1:]])
        assert inputs.count(PREFIX) <= 1


def test_labels_of_another_kind_are_refused() -> None:
    with pytest.raises(LoaderError, match="labels"):
        treated(fill_in_the_middle(1, 2, 3, labels="same"), row_of([5, 6, 7]), 1)


# Span corruption


@given(bodies, seeds, st.floats(0.05, 0.9), st.floats(1, 5), st.booleans(), st.integers(0, 4))
def test_encoder_and_decoder_together_hold_the_row(
    tokens: Tokens, seed: int, density: float, mean: float, ends: bool, padding: int
) -> None:
    row = row_of([*tokens, END] if ends else tokens, padding)
    room = len(row["input_ids"])
    transform = corrupt_spans(SENTINELS, end_id=END, density=density, mean_length=mean, pad_id=3)
    now = treated(transform, row, seed)
    if (now["labels"] == -100).all():  # nothing to replace, or no place for it
        assert len(tokens) < 2 or room == 2
        return
    length = int(now["length"][0])
    inputs, targets = now["input_ids"].tolist(), now["labels"].tolist()
    stop = targets.index(-100) if -100 in targets else room

    assert inputs[length:] == [3] * (room - length) and set(targets[stop:]) <= {-100}
    assert inputs[length - 1] == targets[stop - 1] == END
    lost: dict[int, Tokens] = {}
    for token in targets[: stop - 1]:
        if token in SENTINELS:
            lost[token] = []
        else:
            lost[max(lost)].append(token)
    restored = [each for token in inputs[: length - 1] for each in lost.get(token, [token])]
    assert list(lost) == list(SENTINELS[: len(lost)]) and all(lost.values())
    assert restored in (tokens, tokens[:-1]) and (restored == tokens or len(tokens) + 1 > room)


def test_density_and_mean_length_are_kept_on_average() -> None:
    lost = spans = 0
    for seed in range(50):
        targets = treated(corrupt_spans(SENTINELS), row_of(list(range(5, 505))), seed)["labels"]
        found = np.isin(targets, SENTINELS).sum()
        spans, lost = spans + found, lost + (targets != -100).sum() - found

    assert (lost / 50 / 500, lost / spans) == (0.15, 3.0)


def test_too_few_sentinels_are_an_error() -> None:
    with pytest.raises(LoaderError, match="sentinels") as caught:
        treated(corrupt_spans([900], mean_length=1), row_of(list(range(5, 50))), 1)
    assert "7" in follows_its_hint(caught.value)


def test_packed_rows_are_no_single_sequence() -> None:
    row = {**row_of([5, 6]), "position_ids": np.array([0, 0])}
    with pytest.raises(LoaderError, match="kept apart"):
        treated(corrupt_spans([900]), row, 1)


# On their way through a loader

OBJECTIVES = {
    "mask": mask_tokens(mask_id=MASK, vocab_size=VOCABULARY, rate=0.3),
    "middle": fill_in_the_middle(PREFIX, SUFFIX, MIDDLE, rate=0.8, end_id=END),
    "spans": corrupt_spans(SENTINELS, end_id=END),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("objectives") / "store"
    rng = np.random.default_rng(5)
    with TokenStoreWriter(path, dtype="uint16") as writer:
        for _ in range(40):
            writer.append([*rng.integers(5, VOCABULARY, rng.integers(1, 30)).tolist(), END])
    return path


def rows_of(batches: list[Any]) -> list[tuple[Any, ...]]:
    return [
        (ids, labels, mask)
        for batch in batches
        for ids, labels, mask in zip(
            batch.input_ids.tolist(), batch.labels.tolist(), batch.attention_mask.tolist(), strict=True
        )
    ]


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("documents", ["row", "attend"])
@given(batch_size=st.integers(1, 7), world_size=st.integers(1, 3), stop=st.integers(0, 5))
@settings(max_examples=6, deadline=None)
def test_a_row_is_treated_alike_on_any_ranks_and_after_a_resume(
    store: Path, objective: str, documents: Any, batch_size: int, world_size: int, stop: int
) -> None:
    how: dict[str, Any] = {"chunk_size": 24, "documents": documents, "framework": "numpy", "seed": 9}
    how["transforms"] = [OBJECTIVES[objective]]
    with PretrainDataLoader(store, batch_size=1, **how) as loader:
        expected = rows_of([loader.next().copy() for _ in range(30)])
    ranks = [
        PretrainDataLoader(store, batch_size=batch_size, rank=r, world_size=world_size, **how)
        for r in range(world_size)
    ]
    found: list[Any] = []
    for _ in range(stop):
        found += rows_of([loader.next().copy() for loader in ranks])
    state = ranks[0].state_dict()
    for loader in ranks:
        loader.close()
    with PretrainDataLoader(store, batch_size=2, **how) as loader:
        loader.load_state_dict(state)
        while len(found) < 30:
            batch = loader.next().copy()
            found += rows_of([batch])

    assert found[:20] == expected[:20]


def test_lengths_follow_what_a_transform_makes_of_a_row(store: Path) -> None:
    with PretrainDataLoader(
        store, chunk_size=24, documents="row", framework="numpy", pad_id=0, transforms=[OBJECTIVES["spans"]]
    ) as loader:
        batch = loader.next()

    real = batch.input_ids != 0
    assert (batch.attention_mask.astype(bool) == real).all()
    assert batch.metadata["tokens"] == real.sum()


def test_conversations_whose_denominators_are_counted_beforehand_are_not_relabelled(tmp_path: Path) -> None:
    with TokenStoreWriter(tmp_path / "chats", dtype="weighted") as writer:
        writer.append([5, 6, 7], weights=[0, 1, 1])
    with pytest.raises(LoaderError, match="denominators") as caught:
        ConversationDataLoader(tmp_path / "chats", max_length=8, transforms=[OBJECTIVES["mask"]])
    assert "PretrainDataLoader" in follows_its_hint(caught.value)
