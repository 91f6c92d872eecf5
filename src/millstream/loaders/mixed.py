"""MixedDataLoader: rows of several loaders, in exact proportion, under one order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Unpack

from millstream.errors import LoaderError
from millstream.loaders.pretrain import PretrainDataLoader, id_limit, padding_id, row_length
from millstream.loaders.settings import LoaderSettings, SharedKeywords, positive, resolve
from millstream.loaders.stores import StoreDataLoader
from millstream.order.mix import BLOCK_PLACES, quotas


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
        sources: Name -> (loader, weight). Names are part of the keys: adding a source moves no other.
        epoch_size: Samples of an epoch; by default until the first source is exhausted.
        mix_block: Places of a block in which the weights hold exactly.
        shared: The keywords of every loader; `shuffle` and `labels` are those of the mixed loaders.
    """

    kind = "mixed"
    names_rows = True

    def __init__(
        self,
        sources: Mapping[str, tuple[PretrainDataLoader, float]],
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
        settings = resolve(shared)
        for name, loader in loaders.items():
            if (loader.shape, loader.settings.labels) != (first.shape, settings.labels):
                raise LoaderError(
                    f"the rows of {name!r} ({loader.shape}, labels={loader.settings.labels!r}) differ from those of "
                    f"{next(iter(loaders))!r} ({first.shape}, labels={settings.labels!r})",
                    hint="make all loaders with the same chunk_size, documents, tail, pad_id and labels",
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
        size = None if epoch_size is None else positive("epoch_size", epoch_size)
        super().__init__(members, first.shape, settings, epoch_size=size)


def _id_limit(loader: PretrainDataLoader, settings: LoaderSettings) -> int:
    """The stricter one of what the mixture's model and the loader's own settings allow; 0: all ids are known to fit."""
    limits = (id_limit(loader.store, None, settings), loader.member.id_limit)
    return min((limit for limit in limits if limit > 0), default=0)


def _loader(name: str, entry: object) -> PretrainDataLoader:
    loader = entry[0] if isinstance(entry, tuple) and entry else None
    if isinstance(loader, StoreDataLoader) and loader.shape.answers is not None:
        raise LoaderError(
            f"the source {name!r} has {loader.shape.answers} rows, which have fields of their own and are not mixed",
            hint="train on them by themselves; conversations and texts can be mixed",
        )
    if not isinstance(entry, tuple) or len(entry) != 2 or not isinstance(entry[0], PretrainDataLoader):
        raise LoaderError(
            f"the source {name!r} is {type(entry).__name__}, not a pair (loader, weight)",
            hint="pass {'web': (PretrainDataLoader(…), 0.7), …}",
        )
    return entry[0]
