"""Rows that refer to pictures: refused, without them loudly, or kept, each reference with the place of its token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chats.chatml import bpe
from loaders.samples import follows_its_hint
from millstream import ConversationDataLoader, MixedDataLoader, SourceError, TrainingBatch, prepare
from millstream.errors import MillstreamError

SEEN = {
    "messages": [{"role": "user", "content": "<image> What is it?"}, {"role": "assistant", "content": "A mill."}],
    "images": ["mill.png"],
}
HEARD = {"messages": [{"role": "user", "content": "Does it run?"}, {"role": "assistant", "content": "It runs."}]}
HOW: dict[str, Any] = {"chat_template": "chatml", "add_control_tokens": True, "max_length": 128}


def test_a_row_with_a_picture_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(MillstreamError, match=r"rows:2.*mill\.png") as caught:
        prepare([HEARD, SEEN], tmp_path / "store", bpe(), kind="chat", **HOW)

    assert 'media="ignore"' in str(caught.value)


def test_pictures_that_are_ignored_are_counted(tmp_path: Path) -> None:
    report = prepare([HEARD, SEEN], tmp_path / "store", bpe(), kind="chat", media="ignore", **HOW)

    assert (report.documents, report.details["changed"]) == (2, {"media left out": 1})


def test_a_loader_refuses_what_it_cannot_deliver(tmp_path: Path) -> None:
    with pytest.raises(MillstreamError, match="pictures"):
        ConversationDataLoader([SEEN], tokenizer=bpe(), cache_dir=tmp_path, framework="numpy", **HOW).next()


IMAGES = {"image": "<|image_pad|>"}


def talks(count: int) -> list[dict[str, Any]]:
    """Chats with none, one or two pictures and perhaps a film, whose names say whose they are."""
    made: list[dict[str, Any]] = []
    for row in range(count):
        question = " and ".join(["<image>"] * (row % 3)) + " What?" + (" <video>" if row % 5 == 0 else "")
        chat: dict[str, Any] = {
            "messages": [{"role": "user", "content": question}, {"role": "assistant", "content": f"Mill {row}."}]
        }
        if row % 3:
            chat["images"] = [f"{row}-{number}.png" for number in range(row % 3)]
        if row % 5 == 0:
            chat["videos"] = [{"path": f"{row}.mp4", "fps": 2}]
        made.append(chat)
    return made


def check_media(batch: Any, tokenizer: Any) -> list[str]:
    """Each reference lies where its token lies, in the conversation that names it; gives the references."""
    seen = []
    pad = tokenizer.token_id("<|image_pad|>")
    ids = np.asarray(batch.input_ids)
    for row, references in enumerate(batch.metadata["media"]):
        places = [each.position for each in references if each.kind == "image"]
        assert places == np.flatnonzero(ids[row] == pad).tolist()
        for each in references:
            if each.kind == "video":
                assert each.position is None and each.reference["fps"] == 2
            name = each.reference if each.kind == "image" else each.reference["path"]
            number = name.split("-")[0].split(".")[0]
            if each.position is not None:
                after = tokenizer.decode(ids[row, each.position :].tolist())
                assert f"Mill {number}." in after.split("<|im_end|>")[1]
            seen.append(name)
    return seen


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("prepared", [False, True])
def test_references_that_are_kept_come_with_their_rows(tmp_path: Path, packing: bool, prepared: bool) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(chat) + "\n" for chat in talks(40)))
    kept: dict[str, Any] = {**HOW, "media": "keep", "media_tokens": IMAGES}
    shared: dict[str, Any] = {"packing": packing, "batch_size": 4, "framework": "numpy"}
    if prepared:
        prepare(path, tmp_path / "store", bpe(), kind="chat", **kept)
        loader = ConversationDataLoader(tmp_path / "store", max_length=128, **shared)
    else:
        loader = ConversationDataLoader(path, tokenizer=bpe(), cache_dir=tmp_path / "cache", **kept, **shared)
    with loader:
        seen = [name for batch in loader for name in check_media(batch, loader.tokenizer)]
    listed = [
        *(name for chat in talks(40) for name in chat.get("images", [])),
        *(f"{row}.mp4" for row in range(0, 40, 5)),
    ]
    assert sorted(seen) == sorted(listed)


def test_a_resumed_run_finds_the_same_references(tmp_path: Path) -> None:
    how: dict[str, Any] = {**HOW, "media": "keep", "cache_dir": tmp_path, "framework": "numpy", "batch_size": 3}
    with ConversationDataLoader(talks(30), tokenizer=bpe(), **how) as loader:
        loader.next()
        state, expected = loader.state_dict(), loader.next().metadata["media"]
    with ConversationDataLoader(talks(30), tokenizer=bpe(), **how) as again:
        again.load_state_dict(state)
        assert again.next().metadata["media"] == expected and any(expected)


@pytest.mark.parametrize(("truncation", "left"), [("keep_start", ["0-0.png"]), ("keep_end", ["0-1.png"])])
def test_what_is_cut_off_takes_its_picture_with_it(tmp_path: Path, truncation: Any, left: list[str]) -> None:
    long = {
        "messages": [
            {"role": "user", "content": "<image>" + "x " * 20 + "<image>"},
            {"role": "assistant", "content": "y"},
        ],
        "images": ["0-0.png", "0-1.png"],
    }
    how: dict[str, Any] = {
        **HOW,
        "media": "keep",
        "media_tokens": IMAGES,
        "truncation": truncation,
        "untrained": "keep",
    }
    with ConversationDataLoader(
        [long], tokenizer=bpe(), cache_dir=tmp_path, framework="numpy", **how | {"max_length": 24}
    ) as loader:
        batch = loader.next()
    assert [each.reference for each in batch.metadata["media"][0]] == left
    assert loader.tokenizer is not None
    pad = loader.tokenizer.token_id("<|image_pad|>")
    assert [each.position for each in batch.metadata["media"][0]] == np.flatnonzero(batch.input_ids[0] == pad).tolist()


def test_a_text_that_only_spells_a_placeholder_stays_text(tmp_path: Path) -> None:
    spelled = {"messages": [{"role": "user", "content": "<image>"}, {"role": "assistant", "content": "<|image_pad|>"}]}
    how: dict[str, Any] = {**HOW, "media": "keep", "media_tokens": IMAGES}
    with ConversationDataLoader([spelled], tokenizer=bpe(), cache_dir=tmp_path, framework="numpy", **how) as loader:
        batch = loader.next()
    assert loader.tokenizer is not None
    assert loader.tokenizer.token_id("<|image_pad|>") not in batch.input_ids[0]
    assert batch.metadata["media"] == [[]]


def test_a_source_that_changed_is_refused_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps(SEEN) + "\n")
    prepare(path, tmp_path / "store", bpe(), kind="chat", media="keep", **HOW)
    path.write_text(json.dumps(SEEN).replace("mill.png", "mall.png") + "\n")
    with (
        ConversationDataLoader(tmp_path / "store", framework="numpy", batch_size=1) as loader,
        pytest.raises(MillstreamError, match="changed") as caught,
    ):
        loader.next()
    assert "root=" not in follows_its_hint(caught.value)  # which no loader takes


def test_a_batch_whose_media_cannot_be_found_is_told_and_given_again(tmp_path: Path) -> None:
    """Listeners hear of the error, see the media of whole batches, and what transforms do to ids moves no media."""
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps(SEEN) + "\n")
    prepare(path, tmp_path / "store", bpe(), kind="chat", media="keep", media_tokens=IMAGES, **HOW)
    told: list[Any] = []

    class Listener:
        def on_error(self, error: Exception) -> None:
            told.append(type(error))

        def on_batch(self, batch: TrainingBatch) -> None:
            told.append([each.reference for each in batch.metadata["media"][0]])

    def blank(batch: TrainingBatch) -> TrainingBatch:
        batch.input_ids[:] = 0
        return batch

    shared: dict[str, Any] = {"callbacks": [Listener()], "transforms": [blank], "framework": "numpy", "batch_size": 1}
    with ConversationDataLoader(tmp_path / "store", **shared) as loader:
        path.rename(tmp_path / "away")
        with pytest.raises(SourceError):
            loader.next()
        assert loader.step == 0
        (tmp_path / "away").rename(path)
        batch = loader.next()
    assert batch.metadata["step"] == 0
    assert told == [SourceError, ["mill.png"]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"media": "show"},
        {"media_tokens": IMAGES},
        {"media": "keep", "media_tokens": {"picture": "<p>"}},
        {"media": "keep", "media_tokens": {"image": ""}},
        {"media": "keep", "media_tokens": {"image": "<|other|>"}, "add_control_tokens": False},
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(MillstreamError, match=r"media|<\|other\|>"):
        ConversationDataLoader([SEEN], tokenizer=bpe(), cache_dir=tmp_path, framework="numpy", **HOW | wrong)


def test_media_are_not_lost_in_a_mixture(tmp_path: Path) -> None:
    how: dict[str, Any] = {**HOW, "media": "keep", "cache_dir": tmp_path, "framework": "numpy"}
    with (
        ConversationDataLoader([SEEN], tokenizer=bpe(), **how) as loader,
        pytest.raises(MillstreamError, match="keeps media"),
    ):
        MixedDataLoader({"seen": (loader, 1.0)}, framework="numpy", batch_size=1)
