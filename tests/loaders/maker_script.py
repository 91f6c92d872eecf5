"""Run by test_conversation_growth.py: one rank of a run over conversations that are made meanwhile.

Arguments: source, cache, packing, rank, ranks, and the step of making at which it kills itself (0: none).
It prints what it delivered, one batch a line, until the end of the epoch.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from chats.chatml import bpe
from loaders.conversations import CHAT, CHUNK_BYTES, LENGTH, small
from millstream.loaders.conversation import ConversationDataLoader
from millstream.storage import disk


def main(source: str, cache: str, packing: str, rank: str, ranks: str, deadline: str) -> None:
    left = int(deadline)

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
            packing=packing == "1",
            pad_to="max_length",
            cache_dir=cache,
            reading={"chunk_bytes": CHUNK_BYTES},
            batch_size=4 // int(ranks),
            rank=int(rank),
            world_size=int(ranks),
            framework="numpy",
            **CHAT,
        ) as loader:
            for batch in loader:
                print(json.dumps([batch.input_ids.tolist(), batch.labels.tolist()]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
