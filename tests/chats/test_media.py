"""Batches carry tokens alone: a row that needs pictures is refused, or loses them loudly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chats.chatml import bpe
from millstream import ConversationDataLoader, prepare
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
