"""Where the tokens lie: what the native engine needs to map a store of any kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from millstream.store.format import shard_name
from millstream.store.table import FILE


@dataclass(frozen=True, eq=False)
class Layout:
    """Files, widths and offsets of a store that was checked at open.

    `index` is "none" (one document), "ends" (an `.idx` beside each `.bin`) or "megatron". `block_tokens` is that of
    the largest blocks, where shards are packed. `paths` names the token file and the index of each shard, where they
    do not lie side by side; a file that is never asked for need not be there.
    """

    directory: str
    file: str
    dtype: str
    header_bytes: int
    table: NDArray[np.uint64] = field(repr=False)
    index: str
    index_file: str = ""
    pointers_offset: int = 0
    boundaries_offset: int = 0
    sequences: int = 0
    boundaries: int = 0
    block_tokens: int = 0
    paths: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def path_of(self, shard: int, suffix: str = ".bin") -> Path:
        """Name a file of a shard (its place in the table, not its file number)."""
        if self.paths:
            tokens, index = map(Path, self.paths[shard])
            return {".bin": tokens, ".idx": index}.get(suffix) or tokens.with_suffix(suffix)
        if self.directory:
            return Path(self.directory, shard_name(int(self.table[shard, FILE])) + suffix)
        if suffix == ".idx" and self.index_file:
            return Path(self.index_file)
        return Path(self.file).with_suffix(suffix)
