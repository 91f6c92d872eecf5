"""PretrainDataLoader: a store of tokens -> rows of equal length, in a global order."""

from __future__ import annotations

import glob
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from millstream.batches import TrainingBatch
from millstream.errors import LoaderError, SourceError
from millstream.loaders.delivery import Delivery
from millstream.loaders.fillers import RingFiller
from millstream.loaders.growing import RawSettings, ReadingKeywords, described, is_raw, prepared_store
from millstream.loaders.loader import DataLoader
from millstream.loaders.rows import Documents, RowShape, RowSource, id_limit, padding_id, row_length
from millstream.loaders.runs import StoreRun
from millstream.loaders.settings import SharedKeywords, check_choice, resolve
from millstream.order import Share
from millstream.preparation import OnBad
from millstream.settings import local_path
from millstream.store import TokenStore, TokenStoreWriter
from millstream.tokens import Tokenizer, check_tokenizer, is_learned, load_tokenizer

if TYPE_CHECKING:
    from millstream.loaders.growing import Stream


class PretrainDataLoader(DataLoader[TrainingBatch]):
    """Windows of a token store, shuffled globally, resumable anywhere, on any number of ranks.

    Sample i is tokens [i * chunk_size, (i + 1) * chunk_size] of the store: its inputs, and one more as the last target.

    >>> import numpy as np, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "tokens.bin")
    >>> np.arange(101, dtype=np.uint16).tofile(path)
    >>> loader = PretrainDataLoader(path, chunk_size=10, batch_size=4, shuffle=False, dtype="uint16", framework="numpy")
    >>> batch = loader.next()
    >>> batch.input_ids[0].tolist(), batch.labels[0].tolist()
    ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    >>> loader.get_num_batches(), loader.explain(0)[1].spans[0].start
    (3, 10)
    >>> loader.close()

    Args:
        path: A store, a token file (`dtype=` for bare ones), an open TokenStore; or, with a tokenizer, raw files as
            `prepare` takes them: they are prepared once into the cache (`cache_dir`), and mapped from there.
        chunk_size: Tokens of a row; `seq_len` is another name for it.
        tokenizer: Gives `explain()` the text of each row (without it, the one that lies in the store does), and checks
            ids against its vocabulary.
        documents: "attend" lets rows run across documents, "isolate" resets positions and masks across them, "row"
            makes one padded or cut document a row (not of a stream).
        tail: "drop" counts the tokens after the last whole row as lost, "pad" makes a padded row of them.
        dtype: Of a bare token file.
        name: Of the source; part of its key, so two sources of one seed have different orders.
        pad_id: What padding is filled with; by default the tokenizer's or the model's, else 0.
        streaming: Tokenise raw files while training runs, window by window, instead of preparing them first.
            `cache_dir` keeps what was tokenised for other ranks and later runs, at most `cache_limit` bytes of it;
            without a folder, or with "memory://", windows stay in memory (docs/howto/stream_raw_files.md).
        recipe: Steps that clean and filter raw records, as `prepare` takes them.
        on_bad: What becomes of raw records that cannot be used: "error", "skip" or "quarantine".
        eos: The token that ends each raw document.
        reading: How raw files are found and cut into documents: `text_field`, `documents`, `separator`, `encoding`,
            `on_invalid`, `format`, `include`, `exclude`, … as `prepare` takes them.
        shared: The keywords of every loader: batch_size, seed, shuffle, rank, world_size, framework, threads, prefetch,
            labels, drop_last, pad_last, memory_budget, cache_dir, cache_limit, transforms, callbacks, model_config.
    """

    kind = "pretrain"
    _run: StoreRun
    stream: Stream | None = None
    """The raw files that are tokenised on the way, with `streaming=True`."""

    def __init__(
        self,
        path: Any,
        *,
        chunk_size: int | None = None,
        seq_len: int | None = None,
        tokenizer: Any = None,
        documents: Documents = "attend",
        tail: Literal["drop", "pad"] = "drop",
        dtype: str | None = None,
        name: str = "data",
        pad_id: int | None = None,
        streaming: bool = False,
        recipe: Any = None,
        on_bad: OnBad = "error",
        eos: str | int | None = "auto",
        reading: ReadingKeywords | None = None,
        **shared: Unpack[SharedKeywords],
    ) -> None:
        settings = resolve(shared)
        length = row_length(chunk_size, seq_len, settings)
        check_choice("documents", documents, ("attend", "isolate", "row"))
        check_choice("tail", tail, ("drop", "pad"))
        raw = RawSettings(recipe, on_bad, eos, reading or {})
        if streaming:
            from millstream.loaders.growing import Stream, StreamSource

            streamed = _check_stream(path, tokenizer, documents, dtype)
            shape = RowShape(length, documents, tail, padding_id(pad_id, streamed, settings))
            self.stream = Stream.open(path, streamed, raw, settings, shared.get("threads"))
            growing = StreamSource(name, self.stream, shape, settings)
            run = StoreRun(self.kind, {name: growing.member}, shape, settings, one_source=True, growing=[growing])
            delivery = Delivery.of_stores(run)
            super().__init__(run, RingFiller(run, delivery.id_bytes), delivery, settings)
            self.shape = shape
            return
        if tokenizer is not None and dtype is None and is_raw(path):
            tokenizer = tokenizer if is_learned(tokenizer) else load_tokenizer(tokenizer)
            path, tokenizer = prepared_store(path, tokenizer, raw, settings), None
        elif not raw.untouched:
            raise LoaderError(
                f"{described(path)}: recipe, on_bad, eos and reading are about raw files, and these are tokens",
                hint="leave them out, or pass the raw files and their tokenizer",
            )
        loaded = None if tokenizer is None else load_tokenizer(tokenizer)
        store = path if isinstance(path, TokenStore) else TokenStore(path, dtype=dtype)
        if dtype not in (None, store.dtype):
            raise LoaderError(f"{store.path}: the ids are {store.dtype}, not {dtype}", hint="leave out dtype=")
        if loaded is not None:
            check_tokenizer(loaded, str(store.path), store.manifest.get("tokenizer"))
        shape = RowShape(length, documents, tail, padding_id(pad_id, loaded, settings))
        share = Share(_samples(store, shape), settings.shuffle)
        member = RowSource(store, share, shape, id_limit(store, loaded, settings), loaded)
        run = StoreRun(self.kind, {name: member}, shape, settings, one_source=True)
        delivery = Delivery.of_stores(run)
        super().__init__(run, RingFiller(run, delivery.id_bytes), delivery, settings)
        self.shape = shape
        run.tell_losses()

    @property
    def member(self) -> RowSource:
        """This loader's part in a mixture."""
        member: RowSource = next(iter(self._run.members.values()))
        return member

    @property
    def store(self) -> TokenStore:
        """The store that rows come from; of a stream, what of it is made just now."""
        return self.member.store

    def __repr__(self) -> str:
        facts = f"{next(iter(self._run.members))}: {len(self.store)} tokens"
        if self.stream is not None:
            facts = f"{len(self.stream.found.files)} files, streaming"
        return f"{type(self).__name__}({facts}; rows of {self.shape.length}, step {self.step})"


def _check_stream(path: Any, tokenizer: Any, documents: Documents, dtype: str | None) -> Tokenizer:
    """Check that raw files can be tokenised on the way; gives their tokenizer."""
    if tokenizer is None:
        raise LoaderError("a stream of raw files needs a tokenizer", hint="pass tokenizer='gpt2', a file or an object")
    if isinstance(path, str | os.PathLike):
        local_path(path, "a source", SourceError)
        if not os.path.lexists(path) and not glob.has_magic(os.fspath(path)):
            raise SourceError(f"{path}: there is no such file or folder", hint="check the name")
    if dtype is not None or not is_raw(path):
        raise LoaderError(f"{described(path)}: these are tokens, not raw files", hint="leave out streaming=True")
    if documents == "row":
        raise LoaderError(
            'a stream has no documents="row": its rows are cut before all documents are known',
            hint="leave it out, or leave out streaming=True",
        )
    return load_tokenizer(tokenizer)


def _samples(store: TokenStore, shape: RowShape) -> int:
    samples = shape.samples(store)
    if samples == 0:
        smaller = f"use chunk_size={len(store) - 1} or less, or tail='pad'"
        raise LoaderError(
            f"{store.path}: {len(store)} tokens in {store.documents} documents are fewer than one row of "
            f"{shape.length} inputs and a target",
            hint=smaller if len(store) > 1 else "a store needs two tokens, an input and a target: prepare more data",
        )
    return samples


def example_loader(**shared: Unpack[SharedKeywords]) -> PretrainDataLoader:
    """Make a loader over a tiny store of three documents, for examples and first steps."""
    path = Path(tempfile.mkdtemp(prefix="millstream-example-"), "store")
    with TokenStoreWriter(path) as writer:
        for document in (range(7), range(10, 16), range(20, 28)):
            writer.append(list(document))
    shared.setdefault("framework", "numpy")
    return PretrainDataLoader(path, chunk_size=4, **shared)


def example_cache() -> Path:
    """A cache that only this example uses."""
    return Path(tempfile.mkdtemp(prefix="millstream-example-"))
