"""Run by test_crash.py: children write a store and are killed with SIGKILL; says how it went.

Arguments: where to write, how many kills, the level of compression.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from millstream.errors import StoreError
from millstream.store import TokenStore, column_writers, compressed_blocks, session, writer
from store.samples import corpus, write_store


def child(path: Path, level: int) -> int:
    """Write in another process, from wherever the last one came to."""
    pid = os.fork()
    if pid == 0:
        write_store(path, corpus(2000), shard_tokens=4000, resume=True, compress=level)
        os._exit(0)
    return pid


def main(path: Path, kills: int, level: int) -> None:
    vars(column_writers)["BLOCK_BYTES"] = vars(session)["BLOCK_BYTES"] = 1024
    compressed_blocks.BLOCK_TOKENS = 128
    session.CHECKPOINT_BYTES = 4096
    writer.STAGE_BYTES = 512
    chance, hit = random.Random(7), 0
    for _ in range(kills):
        pid = child(path, level)
        time.sleep(chance.uniform(0.001, 0.03))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        hit += os.WIFSIGNALED(status)
        try:
            assert len(TokenStore(path)) == sum(map(len, corpus(2000)))
        except StoreError as error:
            assert "not finished" in str(error) or "not a store" in str(error) or "no such file" in str(error), error
    write_store(path, corpus(2000), shard_tokens=4000, resume=True, compress=level)
    print(hit)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
