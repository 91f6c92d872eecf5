"""Have all ranks found the same files? Only where each of them looks for itself, since they share no `cache_dir`."""

from __future__ import annotations

from millstream.loaders import Agreement
from millstream.stages import HomeProcess


class FoundFiles:
    """Compares what each rank has found, at the first batch of every epoch, if it is one of torch.distributed."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank, self._world_size = rank, world_size
        self._epoch, self._agreement, self._process = -1, Agreement(rank, world_size), HomeProcess()

    def check(self, epoch: int, found: str | None) -> None:
        """Compare, unless that was done in this epoch, or the first rank has said what there is: `found` is None."""
        if found is None or self._process.left:  # a forked child is none of the ranks
            return
        if epoch != self._epoch:
            self._epoch, self._agreement = epoch, Agreement(self._rank, self._world_size)
        self._agreement.check(lambda: {"epoch": epoch, "files": found})
