"""MixedDataLoader: rows of several loaders, in exact proportion, under one order; and what these must agree on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, TypeAlias, Unpack

from millstream.batches import LossMean, TrainingBatch
from millstream.errors import LoaderError
from millstream.loaders.conversation import ConversationDataLoader
from millstream.loaders.delivery import Delivery
from millstream.loaders.fillers import RingFiller
from millstream.loaders.growing import StreamSource
from millstream.loaders.loader import DataLoader
from millstream.loaders.pretrain import PretrainDataLoader
from millstream.loaders.rollout import RolloutDataLoader
from millstream.loaders.rollouts import MixedRollouts
from millstream.loaders.rows import RowShape, RowSource, id_limit, padding_id, row_length
from millstream.loaders.runs import StoreRun
from millstream.loaders.settings import LoaderSettings, SharedKeywords, positive, resolve
from millstream.order import BLOCK_PLACES, quotas
from millstream.tokens import describe_tokenizer, share_ids

Mixable: TypeAlias = PretrainDataLoader | ConversationDataLoader | RolloutDataLoader


class MixedDataLoader(DataLoader[TrainingBatch]):
    """Rows of several sources, mixed exactly; each source goes through its own order and repeats when it ends.

    Only the order and the data of each loader are used. Weights, sources and batch size may change in mid-run: load
    the state into a loader with the new recipe, and nothing is repeated and nothing is lost.

    >>> from millstream.loaders.pretrain import example_loader
    >>> sources = {"web": (example_loader(), 0.75), "code": (example_loader(), 0.25)}
    >>> with MixedDataLoader(sources, batch_size=4, mix_block=4, framework="numpy") as loader:
    ...     sorted(loader.next().metadata["source"])
    ['code', 'web', 'web', 'web']

    Args:
        sources: Name -> (loader, weight): loaders of texts and of conversations, with rows of one length and ids of one
            tokenizer (conversations may have control tokens after its vocabulary). Names are part of the keys: adding
            a source moves no other.
        epoch_size: Samples of an epoch; by default until the first source is exhausted. With a stream of raw files
            among the sources that is known when it has been counted.
        mix_block: Places of a block in which the weights hold exactly.
        shared: The keywords of every loader; `shuffle` and `labels` are those of the mixed loaders, and so is
            `framework` unless given, where they agree.
    """

    kind = "mixed"

    def __init__(
        self,
        sources: Mapping[str, tuple[Mixable, float]],
        *,
        epoch_size: int | None = None,
        mix_block: int = BLOCK_PLACES,
        **shared: Unpack[SharedKeywords],
    ) -> None:
        mixture = check_compatible(sources, epoch_size, mix_block, shared)
        self.shape, self._names = mixture.shape, list(mixture.loaders)
        settings, growing = mixture.settings, mixture.growing
        run = StoreRun(
            self.kind,
            mixture.members(growing),
            mixture.shape,
            settings,
            mixture.epoch_size,
            mixture.loss,
            growing=growing,
        )
        rollouts = mixture.rollouts

        def add(batch: TrainingBatch, step: int) -> TrainingBatch:
            assert rollouts is not None
            return rollouts.add(batch, *run.schedule.rows(step, run.settings.rank))

        delivery = Delivery.of_stores(run, names_rows=True, complete=None if rollouts is None else add)
        super().__init__(run, RingFiller(run, delivery.id_bytes), delivery, settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._names)}; rows of {self.shape.length}, step {self.step})"


@dataclass(frozen=True)
class Mixture:
    """Loaders whose rows can lie in one batch."""

    loaders: Mapping[str, Mixable]
    quotas: Mapping[str, int]
    """Places of a block that belong to each source."""
    shape: RowShape
    settings: LoaderSettings
    epoch_size: int | None
    loss: LossMean | None

    @property
    def growing(self) -> list[StreamSource]:
        """The sources that are streams of raw files, as they take part in this mixture."""
        found = []
        for name, loader in self.loaders.items():
            if isinstance(loader, PretrainDataLoader) and loader.stream is not None:
                own = loader.settings
                settings = replace(
                    self.settings,
                    shuffle=own.shuffle,
                    cache_dir=self.settings.cache_dir or own.cache_dir,
                    cache_limit=self.settings.cache_limit or own.cache_limit,
                )
                limit = self.settings.limits.vocab_size
                found.append(
                    StreamSource(name, loader.stream, loader.shape, settings, quota=self.quotas[name], id_limit=limit)
                )
        return found

    @property
    def rollouts(self) -> MixedRollouts | None:
        """What knows what is said of rollouts, where some are mixed."""
        blocks = {
            name: each.rollouts.block for name, each in self.loaders.items() if isinstance(each, RolloutDataLoader)
        }
        return MixedRollouts(blocks, self.settings.labels, self.settings.framework) if blocks else None

    def members(self, growing: Sequence[StreamSource]) -> dict[str, RowSource]:
        """What the loaders bring into the mixture; a store that is still being made is waited for."""
        streams = {source.name: source.member for source in growing}
        return {
            name: streams.get(name) or _member(each, self.quotas[name], self.settings)
            for name, each in self.loaders.items()
        }


def check_compatible(
    sources: Mapping[str, tuple[Mixable, float]], epoch_size: int | None, mix_block: int, shared: SharedKeywords
) -> Mixture:
    """Find out what the loaders agree on, or say in what they differ."""
    if not sources:
        raise LoaderError("a mixture needs a source", hint="pass {'web': (loader, 0.7), 'code': (loader, 0.3)}")
    loaders = {name: _loader(name, entry) for name, entry in sources.items()}
    first = next(iter(loaders.values()))
    shared.setdefault("labels", first.settings.labels)
    frameworks = {loader.settings.framework for loader in loaders.values()}
    if len(frameworks) == 1:
        shared.setdefault("framework", frameworks.pop())
    settings = resolve(shared)
    _check_rows(loaders)
    _check_tokenizers(loaders)
    if settings.labels != first.settings.labels:
        raise LoaderError(
            f"the mixture has labels={settings.labels!r}, its loaders labels={first.settings.labels!r}",
            hint="leave labels= out here: it is that of the mixed loaders",
        )
    if "shuffle" in shared and any(loader.settings.shuffle != settings.shuffle for loader in loaders.values()):
        raise LoaderError(
            f"shuffle={shared['shuffle']!r} is not how the mixed loaders shuffle",
            hint="pass shuffle= to each of them, and leave it out here",
        )
    row_length(first.shape.length, None, settings)
    padding_id(first.shape.pad_id, None, settings)
    shares = quotas({name: entry[1] for name, entry in sources.items()}, positive("mix_block", mix_block))
    size = None if epoch_size is None else positive("epoch_size", epoch_size)
    packed = next((loader.shape for loader in loaders.values() if loader.shape.documents == "packed"), first.shape)
    shape = replace(first.shape, isolation=packed.isolation)
    return Mixture(loaders, shares, shape, settings, size, _loss(loaders))


def _member(loader: Mixable, quota: int, settings: LoaderSettings) -> RowSource:
    """A loader's own part, with its share; and ids within the stricter limit of the mixture's model and its own."""
    member = loader.member
    limits = (id_limit(loader.store, None, settings), member.id_limit)
    strictest = min((limit for limit in limits if limit > 0), default=0)  # 0: all ids are known to fit
    return replace(member, share=replace(member.share, quota=quota), id_limit=strictest)


def _check_rows(loaders: Mapping[str, Mixable]) -> None:
    """Insist on rows that can lie in one batch. Conversations may lie beside windows of text."""
    for (other, one), (name, loader) in combinations(loaders.items(), 2):
        if not _alike(loader, one):
            raise LoaderError(
                f"the rows of {name!r} ({loader.shape}, labels={loader.settings.labels!r}) differ from those of "
                f"{other!r} ({one.shape}, labels={one.settings.labels!r})",
                hint="make all loaders with the same chunk_size or max_length, documents, tail, pad_id and labels",
            )


def _check_tokenizers(loaders: Mapping[str, Mixable]) -> None:
    """Refuse ids that mean one thing in one source and another in the next. Bare files do not say what theirs mean."""
    described = {name: _tokenizer_of(loader) for name, loader in loaders.items()}
    known = {name: each for name, each in described.items() if each is not None}
    for (other, one), (name, tokenizer) in combinations(known.items(), 2):
        if not share_ids(one, tokenizer):
            raise LoaderError(
                f"{name!r} has ids of the tokenizer {_told(tokenizer)}, {other!r} of {_told(one)}: "
                "one id would be two different words",
                hint="make all sources with one tokenizer; only control tokens that add_control_tokens=True put after "
                "its vocabulary may come on top, the same ones in all conversations",
            )


def _tokenizer_of(loader: Mixable) -> Mapping[str, Any] | None:
    """What is known of the tokenizer that a loader's ids are of."""
    if isinstance(loader, PretrainDataLoader) and loader.stream is not None:
        return describe_tokenizer(loader.stream.job.tokenizer)
    known: Mapping[str, Any] | None = loader.store.manifest.get("tokenizer")
    tokenizer = loader.member.tokenizer
    return describe_tokenizer(tokenizer) if known is None and tokenizer is not None else known


def _told(tokenizer: Mapping[str, Any]) -> str:
    """A tokenizer by name; the fingerprint tells two of one name apart."""
    return f"{tokenizer.get('name')!r} ({str(tokenizer.get('fingerprint'))[:8]}, {tokenizer.get('vocab_size')} ids)"


def _alike(loader: Mixable, other: Mixable) -> bool:
    if loader.settings.labels != other.settings.labels:
        return False
    if _kind(loader) == _kind(other):
        return loader.shape == other.shape
    return (loader.shape.length, loader.shape.pad_id) == (other.shape.length, other.shape.pad_id)


def _kind(loader: Mixable) -> str:
    """What rows are: two of a kind must look alike, others only be as long and be filled up alike."""
    return loader.kind if isinstance(loader, ConversationDataLoader | RolloutDataLoader) else "text"


def _loss(loaders: Mapping[str, Mixable]) -> LossMean | None:
    """The mean that the loaders of conversations ask for; they must ask for the same."""
    kinds = (ConversationDataLoader, RolloutDataLoader)
    asked = {name: loader.loss for name, loader in loaders.items() if isinstance(loader, kinds)}
    if len(set(asked.values())) > 1:
        raise LoaderError(
            f"the losses of {', '.join(asked)} are means of different things",
            hint="make all loaders of conversations and rollouts with the same loss and accumulation",
        )
    return next(iter(asked.values()), None)


def _loader(name: str, entry: object) -> Mixable:
    if isinstance(entry, tuple) and entry and getattr(entry[0], "is_feed", False):
        raise LoaderError(
            f"the source {name!r} is a feed, whose order is not known beforehand",
            hint="mix fixed sets of rollouts, such as one rollout batch at a time",
        )
    if not isinstance(entry, tuple) or len(entry) != 2 or not isinstance(entry[0], Mixable):
        raise LoaderError(
            f"the source {name!r} is {type(entry).__name__}, not a pair (loader, weight)",
            hint="pass {'web': (PretrainDataLoader(…), 0.7), 'chat': (ConversationDataLoader(…), 0.3)}",
        )
    loader: Mixable = entry[0]
    if loader.shape.answers is not None:
        raise LoaderError(
            f"the source {name!r} has {loader.shape.answers} rows, which have fields of their own and are not mixed",
            hint="train on them by themselves; conversations and texts can be mixed",
        )
    if isinstance(loader, ConversationDataLoader) and loader.keeps_media:
        raise LoaderError(
            f"the source {name!r} keeps media, whose references the batches of a mixture do not carry",
            hint='train on it by itself, or pass media="ignore" to its loader',
        )
    if loader.shape.max_tokens:
        raise LoaderError(
            f"the source {name!r} has batches of at most so many tokens, and a mixture counts rows",
            hint="make its loader without max_tokens=; group_by_length= and packing= can be mixed",
        )
    return loader
