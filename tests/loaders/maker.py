"""One rank of a run over conversations that are made meanwhile, for a process of its own."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from chats.chatml import bpe
from loaders.conversations import CHAT, CHUNK_BYTES, LENGTH, small
from millstream.loaders import ConversationDataLoader
from millstream.storage import disk


def train_rank(source: Path, cache: Path, rank: int, ranks: int, deadline: int, *, packing: bool) -> None:
    """Print what is delivered, one batch a line, until the end of the epoch, or the step of making at which it kills
    itself (0: none)."""
    left = deadline

    def counted(operation: Any) -> Any:
        def call(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.001)  # so that others see it half done
            return operation(*arguments)

        return call

    with small() as patch:
        for name in ("write", "rename", "publish"):
            patch.setattr(disk, name, counted(getattr(disk, name)))
        with ConversationDataLoader(
            source,
            tokenizer=bpe(),
            max_length=LENGTH,
            packing=packing,
            pad_to="max_length",
            cache_dir=cache,
            reading={"chunk_bytes": CHUNK_BYTES},
            batch_size=4 // ranks,
            rank=rank,
            world_size=ranks,
            framework="numpy",
            **CHAT,
        ) as loader:
            for batch in loader:
                print(json.dumps([batch.input_ids.tolist(), batch.labels.tolist()]), flush=True)
