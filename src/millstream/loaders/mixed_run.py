"""Where a mixture in lanes stands: which source every sample of the run comes from, and so where each source stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from millstream._core import order_version
from millstream.errors import UnknownLength
from millstream.loaders import mixed_state
from millstream.loaders.lane_run import DEFAULT_PREFETCH, LaneRun
from millstream.loaders.lane_steps import ENDLESS, Epochs, span_of
from millstream.loaders.losses import named_losses, store_losses
from millstream.loaders.origin import RowOrigin
from millstream.loaders.settings import LoaderSettings
from millstream.loaders.store_order import StoreOrder
from millstream.loaders.stream import Stream, check_ranks
from millstream.loaders.stream_lanes import StreamLanes, Taken
from millstream.loaders.stream_run import warn_of_reading_again
from millstream.loaders.stream_state import delivered
from millstream.order.blends import Blend, Blends
from millstream.order.lanes import Numbers
from millstream.order.phase import steps_in


class MixedStreamRun(LaneRun):
    """A step of a mixture of which some sources are streams.

    The run has as many lanes as the stream that has fewest. Lane l takes samples of each source that are l modulo that
    number; all counts of lanes are powers of two, so those lie in lanes of the stream that the same rank reads.
    """

    kind = mixed_state.KIND

    def __init__(
        self,
        streams: Mapping[str, Stream],
        stores: Mapping[str, StoreOrder],
        quotas: Mapping[str, int],
        settings: LoaderSettings,
        *,
        length: int,
        epochs: Epochs,
        row_facts: dict[str, Any],
        id_limits: Mapping[str, int | None],
        plan_facts: Mapping[str, Any],
    ) -> None:
        super().__init__(settings, {**row_facts, "chunk_size": length})
        self._plan_facts = plan_facts
        self.stores, self.quotas, self.length, self.epochs = stores, dict(quotas), length, epochs
        self._lanes = {
            name: StreamLanes(
                stream,
                length,
                range(settings.rank, stream.lanes, settings.world_size),
                settings.cache_dir,
                partial(self._taken, name),
                id_limits[name],
            )
            for name, stream in streams.items()
        }
        self.restart()

    def restart(self) -> None:
        """Stand at the very beginning."""
        lanes = min(each.stream.lanes for each in self._lanes.values())
        check_ranks(lanes, self.settings.world_size)
        self.blends = Blends(lanes, self.settings.seed, (Blend.of(0, self.quotas),))
        self._retired = mixed_state.NOTHING
        super().restart()

    @property
    def streams(self) -> Mapping[str, StreamLanes]:
        """The lanes of all streams."""
        return self._lanes

    def _taken(self, name: str, lane: int) -> int:
        return stream_taken(self.blends, name, self.sample, self._lanes[name].stream.lanes)(lane)

    def sources_of(self, samples: Sequence[int]) -> tuple[list[str], Numbers]:
        """Name source and sample of it (of a store: use) for samples of one step."""
        return self.blends.at(samples)

    def ahead(self, prefetch: int | None) -> dict[str, int]:
        """As often as a lane is used in that time, and once more: in a block, a source may be ahead of its share."""
        rows, places = (prefetch or DEFAULT_PREFETCH) * self.step_rows, sum(self.quotas.values())
        return {
            name: 1 + -(-rows * self.quotas[name] // (places * each.stream.lanes)) for name, each in self._lanes.items()
        }

    @property
    def epoch(self) -> int:
        """The epoch of the next step; always the first one where nobody said how long one is."""
        return self.sample // self.epochs.size

    @property
    def is_endless(self) -> bool:
        """Whether nobody said how long an epoch is."""
        return self.epochs is ENDLESS

    @property
    def steps_in_phase(self) -> int:
        """Steps of the present phase before the present one."""
        return self.step - self.phases[-1].step

    def span(self, step: int) -> range:
        """The samples of a step, on all ranks."""
        return span_of(step, self.phases, self.epochs)

    def seek(self, step: int) -> None:
        """Go to a step whose places the log knows, and go on from there with the present sources and weights."""
        super().seek(step)
        self.blends = self.blends.change(self.sample, self.quotas)

    def present_state(self) -> dict[str, Any]:
        """Describe where the run stands, with the places of this rank's lanes; those of others may lie far behind."""
        data = {
            **{name: lanes.stream.data for name, lanes in self._lanes.items()},
            **{name: mixed_state.store_facts(store.member) for name, store in self.stores.items()},
        }
        streams = {name: lanes.state() for name, lanes in self._lanes.items()}
        return {**self._header(), **mixed_state.dump(self.blends, self._retired.joined(data, streams))}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Stand where a state was saved, with this loader's sources and weights from there on; or change nothing."""
        self.check(state)
        streams = {name: lanes.stream for name, lanes in self._lanes.items()}
        read = mixed_state.read(state, self.settings.seed, self.epochs)
        read.check_sources(streams, {name: store.member for name, store in self.stores.items()})
        check_ranks(read.blends.lanes, self.settings.world_size)
        places = {
            name: read.lanes_of(name, stream, self.length, stream_taken(read.blends, name, read.sample, stream.lanes))
            for name, stream in streams.items()
        }
        blends = read.blends.change(read.sample, self.quotas)
        self.step, self.sample, self.phases, self.blends = read.step, read.sample, read.phases, blends
        self._retired = read.kept
        for name, lanes in self._lanes.items():
            lanes.resume(places[name])
            warn_of_reading_again(lanes)
        self.resize(self.settings.batch_size)

    def check_epochs(self) -> None:
        """Raise UnknownLength without an epoch_size."""
        self._check_epochs("when an epoch ends")

    def steps_in_epoch(self) -> int:
        """Steps of an epoch at the loader's own batch size; raises UnknownLength without an epoch_size."""
        self._check_epochs("how many batches an epoch has")
        return steps_in(self.epochs.size, self.own_rows, drop_last=self.epochs.drop_last)

    def _check_epochs(self, what: str) -> None:
        if self.is_endless:
            raise UnknownLength(
                f"nobody knows {what}: how much a stream holds is known when it was read",
                hint="pass epoch_size= (samples), or take batches with next() and count steps",
            )

    def origins(self, step: int) -> list[RowOrigin]:
        """Name the origin of each row of this rank's batch: of rows of streams at a step that was delivered."""
        from millstream.loaders import mixed_explain

        return mixed_explain.origins_of(step, self)

    def steps_of(self, document: int, source: str | None) -> list[int]:
        """Name the steps of the present epoch whose rows hold tokens of a document, as `explain` numbers it."""
        from millstream.loaders import mixed_explain

        return mixed_explain.steps_of(document, source, self)

    def fingerprint(self) -> dict[str, Any]:
        """Say what all ranks must have in common."""
        state = self.present_state()
        shared = ("seed", "batch_size", "world_size", "labels", "drop_last", "pad_last")
        return {
            "loader": self.kind,
            "order_version": order_version,
            "sources": ", ".join(self.quotas),
            **{f"data of {name!r}": state["data"][name]["fingerprint"] for name in self.quotas},
            **{key: getattr(self.settings, key) for key in shared},
            "chunk_size": self.length,
            **self._plan_facts,
            "step": self.step,
            "sample": self.sample,
            "lanes": self.blends.lanes,
            "mixtures": state["blends"],
        }

    @property
    def losses(self) -> dict[str, int]:
        """What this rank left out and changed since the run began or last went elsewhere, by source and reason; and, of
        stores, what their making and every epoch leave out."""
        found: dict[str, int] = {}
        for name, store in self.stores.items():
            member = store.member
            if not member.shape.whole_documents:
                found[f"tail_tokens:{name}"] = member.shape.tail_tokens(member.store, member.share.samples)
            found |= store_losses(member.store, name).counts
        for name, lanes in self.streams.items():
            found |= named_losses(name, lanes.left_out, lanes.changed)
        if self.epochs.drop_last:
            found["dropped_rows"] = self.epochs.size % self.own_rows
        return found


def stream_taken(blends: Blends, name: str, sample: int, stream_lanes: int) -> Taken:
    """How many samples of each lane of a stream lie before a sample of the run.

    Use u of a source in lane l of the run is its sample u * lanes + l, which lies in its own lane modulo its own lanes.
    """
    taken, lanes = _taken(blends, name, sample), blends.lanes
    return lambda lane: delivered(int(taken[lane % lanes]), lane // lanes, stream_lanes // lanes)


@lru_cache(maxsize=64)
def _taken(blends: Blends, name: str, sample: int) -> Numbers:
    return blends.taken(name, sample)
