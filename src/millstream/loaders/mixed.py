"""MixedDataLoader: rows of several loaders, in exact proportion, under one order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any, TypeAlias, Unpack

from millstream.errors import LoaderError
from millstream.loaders.conversation import ConversationDataLoader
from millstream.loaders.loss import LossMean
from millstream.loaders.member import Member
from millstream.loaders.pretrain import PretrainDataLoader, id_limit, padding_id, row_length
from millstream.loaders.settings import LoaderSettings, SharedKeywords, positive, resolve
from millstream.loaders.stores import StoreDataLoader
from millstream.order.mix import BLOCK_PLACES, quotas
from millstream.tokens.keep import describe_tokenizer, share_ids

Mixable: TypeAlias = PretrainDataLoader | ConversationDataLoader


class MixedDataLoader(StoreDataLoader):
    """Rows of several sources, mixed exactly; each source goes through its own order and repeats when it ends.

    Only the order and the store of each loader are used. Weights, sources and batch size may change in mid-run: load
    the state into a loader with the new recipe, and nothing is repeated and nothing is lost.

    >>> from millstream.loaders.pretrain import example_loader
    >>> sources = {"web": (example_loader(), 0.75), "code": (example_loader(), 0.25)}
    >>> with MixedDataLoader(sources, batch_size=4, mix_block=4, framework="numpy") as loader:
    ...     sorted(loader.next().metadata["source"])
    ['code', 'web', 'web', 'web']

    Args:
        sources: Name -> (loader, weight): loaders of texts and of conversations, with rows of one length and ids of one
            tokenizer (conversations may have control tokens behind its vocabulary). Names are part of the keys: adding
            a source moves no other.
        epoch_size: Samples of an epoch; by default until the first source is exhausted.
        mix_block: Places of a block in which the weights hold exactly.
        shared: The keywords of every loader; `shuffle` and `labels` are those of the mixed loaders, and so is
            `framework` unless told otherwise, where they agree.
    """

    kind = "mixed"
    names_rows = True

    def __init__(
        self,
        sources: Mapping[str, tuple[Mixable, float]],
        *,
        epoch_size: int | None = None,
        mix_block: int = BLOCK_PLACES,
        **shared: Unpack[SharedKeywords],
    ) -> None:
        if not sources:
            raise LoaderError("a mixture needs a source", hint="pass {'web': (loader, 0.7), 'code': (loader, 0.3)}")
        loaders = {name: _loader(name, entry) for name, entry in sources.items()}
        first = next(iter(loaders.values()))
        shared.setdefault("labels", first.settings.labels)
        frameworks = {loader.settings.framework for loader in loaders.values()}
        if len(frameworks) == 1:
            shared.setdefault("framework", frameworks.pop())
        settings = resolve(shared)
        for (other, one), (name, loader) in combinations(loaders.items(), 2):
            if not _alike(loader, one):
                raise LoaderError(
                    f"the rows of {name!r} ({loader.shape}, labels={loader.settings.labels!r}) differ from those of "
                    f"{other!r} ({one.shape}, labels={one.settings.labels!r})",
                    hint="make all loaders with the same chunk_size or max_length, documents, tail, pad_id and labels",
                )
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
        members = {
            name: replace(
                loader.member,
                share=replace(loader.member.share, quota=shares[name]),
                id_limit=_id_limit(loader, settings),
            )
            for name, loader in loaders.items()
        }
        _check_tokenizers(members)
        size = None if epoch_size is None else positive("epoch_size", epoch_size)
        packed = next((loader.shape for loader in loaders.values() if loader.shape.documents == "packed"), first.shape)
        shape = replace(first.shape, isolation=packed.isolation)
        super().__init__(members, shape, settings, epoch_size=size, loss=_loss(loaders))


def _check_tokenizers(members: Mapping[str, Member]) -> None:
    """Refuse ids that mean one thing in one source and another in the next. Bare files do not say what theirs mean."""
    described = {name: member.store.manifest.get("tokenizer") for name, member in members.items()}
    for name, member in members.items():
        if described[name] is None and member.tokenizer is not None:
            described[name] = describe_tokenizer(member.tokenizer)
    known = {name: each for name, each in described.items() if each is not None}
    for (other, one), (name, tokenizer) in combinations(known.items(), 2):
        if not share_ids(one, tokenizer):
            raise LoaderError(
                f"{name!r} has ids of the tokenizer {_told(tokenizer)}, {other!r} of {_told(one)}: "
                "one id would be two different words",
                hint="make all sources with one tokenizer; only control tokens that add_control_tokens=True put behind "
                "its vocabulary may come on top, the same ones in all conversations",
            )


def _told(tokenizer: Mapping[str, Any]) -> str:
    """A tokenizer by name; the fingerprint tells two of one name apart."""
    return f"{tokenizer.get('name')!r} ({str(tokenizer.get('fingerprint'))[:8]}, {tokenizer.get('vocab_size')} ids)"


def _alike(loader: Mixable, other: Mixable) -> bool:
    """Whether the rows of two loaders can lie in one batch. Conversations may lie beside windows of text."""
    if loader.settings.labels != other.settings.labels:
        return False
    if type(loader) is type(other):
        return loader.shape == other.shape
    return (loader.shape.length, loader.shape.pad_id) == (other.shape.length, other.shape.pad_id)


def _loss(loaders: Mapping[str, Mixable]) -> LossMean | None:
    """The mean that the loaders of conversations ask for; they must ask for the same."""
    asked = {name: loader.loss for name, loader in loaders.items() if isinstance(loader, ConversationDataLoader)}
    if len(set(asked.values())) > 1:
        raise LoaderError(
            f"the losses of {', '.join(asked)} are means of different things",
            hint="make all loaders of conversations with the same loss and accumulation",
        )
    return next(iter(asked.values()), None)


def _id_limit(loader: Mixable, settings: LoaderSettings) -> int:
    """The stricter one of what the mixture's model and the loader's own settings allow; 0: all ids are known to fit."""
    limits = (id_limit(loader.store, None, settings), loader.member.id_limit)
    return min((limit for limit in limits if limit > 0), default=0)


def _loader(name: str, entry: object) -> Mixable:
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
