"""The ranks of torch.distributed, where a program has started it: they exchange a few bytes over its store.

No collective is used: those need a device, and hang where one rank does not take part. Torch is not imported here.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from millstream.errors import LoaderError
from millstream.stages import Deadline, poll

logger = logging.getLogger("millstream.tensors")
WORTH_SAYING_S = 30.0
PAUSES_S = (0.001, 0.1)

Judge = Callable[[Sequence[Mapping[str, Any]]], list[str]]


@dataclass(frozen=True)
class Ranks:
    """This process among its peers; `store` is where any of them reads what another one wrote."""

    PATIENCE_S: ClassVar[float] = 1800.0
    """How long a rank is waited for."""

    rank: int
    size: int
    store: Any

    @classmethod
    def started(cls) -> Ranks | None:
        """Give the ranks of torch.distributed, None where it was not started."""
        distributed = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return None
        store = sys.modules["torch.distributed.distributed_c10d"]._get_default_store()
        return cls(distributed.get_rank(), distributed.get_world_size(), store)

    def judged(self, name: str, mine: Mapping[str, Any], judge: Judge) -> list[str]:
        """Let rank 0 hear what every rank says and judge it; give the same verdict to all of them."""
        self.store.set(f"{name}/{self.rank}", json.dumps(mine))
        verdict = f"{name}/verdict"
        if self.rank == 0:
            said = [json.loads(self._wait_for(f"{name}/{rank}", f"rank {rank}")) for rank in range(self.size)]
            self.store.set(verdict, json.dumps(judge(said)))
        found: list[str] = json.loads(self._wait_for(verdict, "some rank"))
        return found

    def _wait_for(self, key: str, who: str) -> bytes:
        def there() -> bool | None:
            return self.store.check([key]) or None

        deadline = Deadline(self.PATIENCE_S)
        if (
            poll(there, Deadline(min(WORTH_SAYING_S, self.PATIENCE_S)), pauses_s=PAUSES_S) is None
            and not deadline.is_over
        ):
            logger.warning("waiting for %s to ask for its first batch", who)
            poll(there, deadline, pauses_s=PAUSES_S)
        if not there():
            raise LoaderError(
                f"{who} has not asked for its first batch after {self.PATIENCE_S:.0f} seconds",
                hint="every rank must use its loader; a loader of one process alone takes rank=0, world_size=1",
            )
        value: bytes = self.store.get(key)
        return value


def refuse_to_be_dealt_again(loader: Any, world_size: int) -> None:
    """Say what to do where Accelerate is about to deal out over its processes what a loader has dealt out already.

    Of torch's iterable data sets it reads those of rank 0 alone, or takes every so many of a rank's: the rest of the
    rows would never be used. Every rank is told, before any of them waits for another.
    """
    accelerate = sys.modules.get("accelerate.data_loader")
    if accelerate is None or world_size == 1:
        return
    running = accelerate.GradientState().active_dataloader
    if isinstance(running, accelerate.DataLoaderDispatcher):
        deals = running.dataset is loader and running.state.num_processes > 1
    else:
        shard: Any = getattr(running, "dataset", None)
        ours = isinstance(shard, accelerate.IterableDatasetShard) and shard.dataset is loader
        deals = ours and shard.num_processes > 1
    if deals:
        raise LoaderError(
            f"Accelerate would deal out once more what this loader deals out to its {world_size} ranks, and leave the "
            "other rows unused",
            hint="drop torch's DataLoader: `for batch in loader: batch = batch.to(accelerator.device)` gives each rank "
            "its rows; or pass rank=0, world_size=1 to the loader, and Accelerate deals them out",
        )
