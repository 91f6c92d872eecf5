"""TokenStoreWriter: documents in, a sealed store out; killed at any byte, it leaves nothing that looks whole.

Ids are checked before any is kept. Documents gather in a buffer, go into the open shard, and are kept from the next
checkpoint on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from millstream.errors import StoreError
from millstream.settings import local_path
from millstream.storage import Lock, disk
from millstream.store.frames import DTYPES, id_limit, token_dtype
from millstream.store.manifest import vocabulary
from millstream.store.resume import paths_of, start
from millstream.store.session import Session, Start, totals
from millstream.store.weighted_tokens import WEIGHTED, WHOLE, codes_of, ids_of, weigh
from millstream.store.writer_journal import checked_settings

STAGE_BYTES = 1 << 20
STAGE_DOCUMENTS = 1 << 16

log = logging.getLogger("millstream.store")


class TokenStoreWriter:
    """Writes a store: a directory, or one file when the path ends in `.bin`.

    `documents` and `tokens` count the whole store that will be sealed: a caller that resumes continues with
    document number `documents`. Not for use by several threads at once.

    With dtype="weighted" each token also has its weight in the loss, 1 unless told otherwise.

    `compress=True`, or a level of zstd, packs the tokens in blocks of 4096; a store has the same fingerprint however it
    is packed, and `packing` counts what it gave and cost.

    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp(), "dataset.bin")
    >>> with TokenStoreWriter(path, dtype="uint16") as writer:
    ...     writer.append([1, 2, 3])
    >>> sorted(each.name for each in path.parent.iterdir())
    ['dataset.bin', 'dataset.idx', 'dataset.json', 'dataset.sum']
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        dtype: str | None = None,
        shard_tokens: int | None = None,
        resume: bool = False,
        append: bool = False,
        sources: Iterable[Mapping[str, Any]] = (),
        tokenizer: Mapping[str, Any] | None = None,
        recipe: Any = None,
        compress: bool | int | None = None,
    ) -> None:
        self._state = "not open"
        self._lock: Lock | None = None
        self._session: Session | None = None
        self._settings = checked_settings(dtype, shard_tokens, resume, append, sources, tokenizer, recipe, compress)
        self.path = local_path(path, "a store", StoreError)
        self._paths = paths_of(self.path)
        with disk.reported(self.path):
            disk.make_directory(self._paths.directory)
            if not self._paths.single:
                disk.make_directory(self.path / "versions")
            self._lock = Lock(self._paths.lock)
            try:
                self._begin(start(self._paths, self._settings))
            except BaseException:
                self._release()
                raise

    def _begin(self, begun: Start) -> None:
        rows = begun.base
        self.parent_documents = 0  # of the version that grows
        self.manifest: dict[str, Any] | None = None
        """What describes the store, once it is sealed."""
        self.packing = begun.packing
        if begun.journal is not None:
            self.dtype = begun.journal.dtype
            self._session = Session(self._paths, self._settings, begun, begun.journal)
            self.parent_documents, _ = totals(rows)
            self._state, rows = "open", self._session.rows()
        elif begun.parent is not None:
            self.dtype, self._state = begun.parent.layout.dtype, "finished"
            self.manifest = dict(begun.parent.manifest)
            self._release()
        self.documents, self.tokens = totals(rows)
        known = begun.parent.manifest["tokenizer"] if begun.parent else None
        most = id_limit(self.dtype)
        self._limit = min(most, vocabulary(self._settings.tokenizer or known) or most)
        self._dtype = token_dtype(self.dtype)
        self._stage = np.empty(STAGE_BYTES // self._dtype.itemsize, self._dtype)
        self._stage_fill, self._stage_ends = 0, list[int]()

    def append(self, ids: ArrayLike, weights: ArrayLike | None = None) -> None:
        """Add one document: a list or an integer array of ids, of any length, 0 included."""
        array = as_integers(ids, self.documents)
        array = self._checked(array, np.array([len(array)]), weights)
        with self._at_work() as session:
            if self._stage_fill + len(array) > len(self._stage) or len(self._stage_ends) == STAGE_DOCUMENTS:
                self._unstage(session)
            if len(array) > len(self._stage):
                session.write(array.astype(self._dtype, copy=False), np.array([len(array)]))
            else:
                self._stage[self._stage_fill : self._stage_fill + len(array)] = array
                self._stage_fill += len(array)
                self._stage_ends.append(self._stage_fill)
        self.documents += 1
        self.tokens += len(array)

    def extend(self, tokens: ArrayLike, ends: ArrayLike, weights: ArrayLike | None = None) -> None:
        """Add many documents at once: their tokens one after another, and the place where each ends.

        `weights` are numbers, or their codes (store/weighted_tokens.py) as an array of uint8.
        """
        array, bounds = self._arrays(tokens, ends)
        self._put(self._checked(array, bounds, weights), bounds)

    def extend_weighted(self, tokens: NDArray[np.uint32], ends: ArrayLike) -> None:
        """Add many documents of which each token holds its weight already (`store.weights.weigh`)."""
        if self.dtype != WEIGHTED or tokens.dtype != self._dtype:
            raise StoreError(
                f"tokens of {tokens.dtype} that hold their weights do not belong into a store of {self.dtype}",
                hint=f'write it with dtype="{WEIGHTED}", and join ids and weights with `weigh`',
            )
        array, bounds = self._arrays(tokens, ends)
        refuse_outside(ids_of(array), bounds, first=self.documents, dtype=self.dtype, limit=self._limit)
        self._put(array, bounds)

    def _arrays(self, tokens: ArrayLike, ends: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
        """Tokens of documents and where each ends; refuses ends that are not those of the tokens."""
        array = as_integers(tokens, self.documents)
        bounds = as_integers(ends, self.documents)
        last = int(bounds[-1]) if len(bounds) else 0
        if last != len(array) or (len(bounds) and int(bounds[0]) < 0) or (bounds[1:] < bounds[:-1]).any():
            raise StoreError(
                f"document ends must rise to {len(array)}, the number of tokens; they end at {last}",
                hint="ends count tokens from the first of these documents; the last end is the number of tokens",
            )
        return array, bounds

    def _put(self, array: NDArray[Any], bounds: NDArray[Any]) -> None:
        with self._at_work() as session:
            self._unstage(session)
            session.write(array.astype(self._dtype, copy=False), bounds.astype(np.int64))
        self.documents += len(bounds)
        self.tokens += len(array)

    def _checked(self, array: NDArray[Any], ends: NDArray[Any], weights: ArrayLike | None) -> NDArray[Any]:
        """Check ids, and join them with their weights where they have some."""
        refuse_outside(array, ends, first=self.documents, dtype=self.dtype, limit=self._limit)
        if self.dtype != WEIGHTED:
            if weights is not None:
                raise StoreError(
                    f"a store of {self.dtype} has no room for weights", hint=f'write it with dtype="{WEIGHTED}"'
                )
            return array
        given = np.full(len(array), WHOLE, np.uint8) if weights is None else np.asarray(weights)
        if given.shape != array.shape:
            raise StoreError(
                f"document {self.documents}: {len(array)} ids have weights of shape {given.shape}",
                hint="pass one weight for each id",
            )
        return weigh(array, given if given.dtype == np.uint8 else codes_of(given))

    @contextmanager
    def _at_work(self) -> Iterator[Session]:
        """Refuse work on a closed writer. A failure closes it: only the disk knows how far it came."""
        if self._state == "finished":
            raise StoreError(f"{self.path}: is finished already", hint="append=True adds a version to it")
        if self._state != "open" or self._session is None:
            raise StoreError(f"{self.path}: this writer is {self._state}", hint="open another with resume=True")
        try:
            with disk.reported(self.path):
                yield self._session
        except BaseException:
            self._state = "stopped by an error"
            self._release()
            raise

    def _unstage(self, session: Session) -> None:
        """Move the buffered documents into the open shard."""
        if self._stage_ends:
            ends, fill = np.array(self._stage_ends, np.int64), self._stage_fill
            self._stage_fill, self._stage_ends = 0, []
            session.write(self._stage[:fill], ends)

    def describe(self, *, sources: Iterable[Mapping[str, Any]], recipe: Any) -> None:
        """Say, before the end, what it was made from: some of it is known only when everything was read."""
        final = checked_settings(None, None, False, False, sources, None, recipe)
        self._settings.sources, self._settings.recipe = final.sources, final.recipe

    def checkpoint(self) -> None:
        """Make every document so far durable: a killed writer resumes from here."""
        if self._state == "finished":  # by an earlier run: there is nothing left to do
            return
        with self._at_work() as session:
            self._unstage(session)
            session.save()
        log.debug("%s: checkpoint at %d documents", self.path, self.documents)

    def finish_shard(self) -> None:
        """Seal the open shard, so that a follower (`open_unfinished`) sees what was written so far."""
        if self._state == "finished":
            return
        with self._at_work() as session:
            self._unstage(session)
            session.finish_shard()

    def close(self) -> None:
        """Seal: from here on, what was written is the store."""
        if self._state != "open":
            return
        with self._at_work() as session:
            self._unstage(session)
            self.manifest = session.seal()
        self._state = "closed"
        self._release()

    def abandon(self) -> None:
        """Stop without sealing; what the last checkpoint knows can be resumed."""
        if self._state == "open":
            self._state = "abandoned"
        self._release()

    def _release(self) -> None:
        if self._session is not None:
            self._session.release()
            self._session = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> TokenStoreWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return self.close()
        if self._state == "open":
            try:
                self.checkpoint()  # keep what came before the error
            except StoreError as failure:
                log.warning("%s: no checkpoint could be made: %s", self.path, failure.message)
        return self.abandon()

    def __del__(self) -> None:
        if hasattr(self, "_session"):  # not when the constructor refused its arguments
            self._release()


def as_integers(ids: ArrayLike, document: int) -> NDArray[Any]:
    """Make a one-dimensional integer array of whatever the caller holds.

    >>> as_integers([1, 2], 0), as_integers([], 0).size
    (array([1, 2]), 0)
    """
    try:
        array = np.asarray(ids)
    except (TypeError, ValueError, OverflowError) as error:
        raise StoreError(
            f"document {document}: these are not token ids: {error}", hint="pass a list or an array of whole numbers"
        ) from None
    if array.ndim != 1:
        raise StoreError(
            f"document {document}: ids must lie in a row, not in shape {array.shape}",
            hint="append one document at a time, or flatten the array",
        )
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        raise StoreError(
            f"document {document}: ids must be whole numbers that fit 64 bits, not {array.dtype}",
            hint=f"the first one is {array[0]!r:.60}",
        )
    return array


def refuse_outside(ids: NDArray[Any], ends: NDArray[Any], *, first: int, dtype: str, limit: int) -> None:
    """Refuse ids that are negative or not below `limit`; name the document (the first one here is `first`).

    >>> refuse_outside(np.array([5, 70000]), np.array([1, 2]), first=8, dtype="uint16", limit=65536)
    Traceback (most recent call last):
    millstream.errors.StoreError: document 9: id 70000 does not fit uint16
      hint: write the store with dtype="uint32"
    """
    if ids.size == 0:
        return
    if ids.dtype.kind == "u" and np.iinfo(ids.dtype).max < limit:
        return
    if int(ids.max()) < limit and (ids.dtype.kind == "u" or int(ids.min()) >= 0):
        return
    place = int(((ids < 0) | (ids >= limit)).argmax())
    document = first + int(np.searchsorted(ends, place, side="right"))
    what, hint = explain(document, int(ids[place]), dtype, limit)
    raise StoreError(what, hint=hint)


def explain(document: int, found: int, dtype: str, limit: int) -> tuple[str, str]:
    """Say what is wrong with an id, and what would help."""
    if found < 0:
        return f"document {document}: id {found} is negative", "ids count from 0"
    if limit < id_limit(dtype):
        what = f"document {document}: id {found} is beyond the vocabulary of {limit}"
        return what, "the tokenizer that made it is not the one this store was given"
    fitting = [name for name in DTYPES if found < id_limit(name)]
    hint = f'write the store with dtype="{fitting[0]}"' if fitting else "no dtype holds it; ids end at 2^32 - 1"
    return f"document {document}: id {found} does not fit {dtype}", hint
