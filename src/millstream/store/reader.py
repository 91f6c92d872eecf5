"""TokenStore: a store of any kind as one long array of tokens and a list of documents.

(path) -> tokens, documents. Nothing is read before it is asked for, and what is given is a view of the mapped
file wherever it lies in one shard that is not packed.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

from millstream.errors import StoreError
from millstream.settings import local_path
from millstream.storage import disk
from millstream.store.foreign import foreign_fingerprint
from millstream.store.frames import Tokens, Words, id_limit, token_dtype
from millstream.store.layout import DOCUMENTS, FIRST_DOCUMENT, FIRST_TOKEN, TOKENS, VERIFY, Layout, total
from millstream.store.manifest import Diff, Version, compare, history
from millstream.store.opening import Opened, open_store
from millstream.store.origins import Origin, Origins, origins_path
from millstream.store.shard_files import Shards, place
from millstream.store.verify import Progress, Report, verify_store
from millstream.store.weighted_tokens import WEIGHTED, ids_in, weights_of


class TokenStore:
    """Tokens and documents of a store, read in place.

    >>> import tempfile
    >>> from millstream.store.writer import TokenStoreWriter
    >>> path = Path(tempfile.mkdtemp(), "corpus")
    >>> with TokenStoreWriter(path) as writer:
    ...     writer.append([10, 11, 12])
    ...     writer.append([20, 21])
    >>> store = TokenStore(path)
    >>> len(store), store.documents, store[3], store[1:4].tolist(), store.document(1).tolist()
    (5, 2, 20, [11, 12, 20], [20, 21])
    """

    def __init__(self, path: str | os.PathLike[str], *, dtype: str | None = None, version: str | None = None) -> None:
        if dtype is not None:
            token_dtype(dtype)
        place = local_path(path, "a store", StoreError)
        with disk.reported(place):
            self._take(place, open_store(place, dtype, version))

    @classmethod
    def of(cls, path: Path, opened: Opened) -> TokenStore:
        """Make a store of what was opened already."""
        store = cls.__new__(cls)
        store._take(path, opened)
        return store

    def _take(self, path: Path, opened: Opened) -> None:
        self.path = path
        self.kind = opened.kind
        self.layout: Layout = opened.layout
        self.manifest: Mapping[str, Any] = MappingProxyType(opened.manifest)
        self.dtype = opened.layout.dtype
        self._given_origins = opened.origins
        self.documents = total(self.layout.table, DOCUMENTS)
        self.id_bound: int | None = opened.manifest["id_bound"]
        self._tokens = total(self.layout.table, TOKENS)
        # Contiguous copies: a search in a column of the table would copy it every time.
        self._first_tokens: Words = np.ascontiguousarray(self.layout.table[:, FIRST_TOKEN])
        self._first_documents: Words = np.ascontiguousarray(self.layout.table[:, FIRST_DOCUMENT])
        self._shards = Shards(self.layout)

    def __len__(self) -> int:
        return self._tokens

    def __iter__(self) -> Iterator[int]:
        for shard in range(len(self.layout.table)):
            for run in self._shards.tokens(shard).runs():
                yield from ids_in(run, self.dtype).tolist()

    def __repr__(self) -> str:
        return f"TokenStore({str(self.path)!r}, {self._tokens} tokens, {self.documents} documents, {self.dtype})"

    def __reduce__(self) -> tuple[Any, ...]:
        version = self.fingerprint if self.kind == "directory" else None
        return reopen, (self.path, self.dtype, version)

    @cached_property
    def fingerprint(self) -> str:
        """Name of the content: equal data has an equal fingerprint on any machine."""
        return self.manifest["fingerprint"] or foreign_fingerprint(self.layout)

    @overload
    def __getitem__(self, where: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, where: slice) -> Tokens: ...
    def __getitem__(self, where: SupportsIndex | slice) -> int | Tokens:
        if isinstance(where, slice):
            return ids_in(self._slice(range(self._tokens)[where]), self.dtype)
        index = self._inside(operator.index(where), self._tokens, "token")
        shard = place(self._first_tokens, index)
        token = self._shards.tokens(shard).at(index - int(self._first_tokens[shard]))
        return token % id_limit(WEIGHTED) if self.dtype == WEIGHTED else token

    def _slice(self, wanted: range) -> Tokens:
        rising = wanted if wanted.step > 0 else wanted[::-1]
        if not wanted:
            return np.empty(0, token_dtype(self.dtype))
        first, inside = self._inside_shard(rising)
        if len(inside) == len(rising):
            body = self._shards.tokens(place(self._first_tokens, rising[0]))
            whole = body.part(range(inside[0] - first, inside[-1] - first + 1, rising.step))
        else:
            whole = self._copy(rising)
        return whole if wanted.step > 0 else whole[::-1]

    def read(self, start: int, stop: int) -> Tokens:
        """Copy tokens [start, stop). They are read, not mapped: a file that shrinks meanwhile is an error, no signal.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "ids.bin")
        >>> np.arange(9, dtype="<u2").tofile(path)
        >>> TokenStore(path, dtype="uint16").read(2, 5).tolist()
        [2, 3, 4]
        """
        return ids_in(self._read(start, stop), self.dtype)

    def _read(self, start: int, stop: int) -> Tokens:
        if not 0 <= start <= stop <= self._tokens:
            raise IndexError(f"tokens [{start}, {stop}) are not inside this store of {self._tokens}")
        return self._copy(range(start, stop))

    def weights(self, start: int, stop: int) -> NDArray[np.float32]:
        """Say what tokens [start, stop) weigh in the loss: 1 each, unless the store holds their weights.

        >>> import tempfile
        >>> from millstream.store.writer import TokenStoreWriter
        >>> path = Path(tempfile.mkdtemp(), "chats")
        >>> with TokenStoreWriter(path, dtype="weighted") as writer:
        ...     writer.append([10, 11, 12], weights=[0, 1, 0.5])
        >>> store = TokenStore(path)
        >>> store[:].tolist(), store.weights(0, 3).tolist()
        ([10, 11, 12], [0.0, 1.0, 0.5])
        """
        tokens = self._read(start, stop)
        return weights_of(tokens) if self.dtype == WEIGHTED else np.ones(len(tokens), np.float32)

    def _copy(self, rising: range) -> Tokens:
        whole, done = np.empty(len(rising), token_dtype(self.dtype)), 0
        while done < len(rising):
            first, inside = self._inside_shard(rising[done:])
            body = self._shards.tokens(place(self._first_tokens, rising[done]))
            local = range(inside[0] - first, inside[-1] - first + 1, rising.step)
            whole[done : done + len(inside)] = body.read(local)
            done += len(inside)
        return whole

    def _inside_shard(self, rising: range) -> tuple[int, range]:
        """Give the first token of the shard where the wanted ones begin, and those of them that lie in it."""
        shard = place(self._first_tokens, rising[0])
        first, count = int(self._first_tokens[shard]), int(self.layout.table[shard, TOKENS])
        return first, rising[: -(-(first + count - rising[0]) // rising.step)]

    def _inside(self, index: int, count: int, what: str) -> int:
        if not -count <= index < count:
            raise IndexError(f"{what} {index} is outside this store of {count}")
        return index + count if index < 0 else index

    def _document_place(self, document: int) -> tuple[int, int]:
        index = self._inside(operator.index(document), self.documents, "document")
        shard = place(self._first_documents, index)
        return shard, index - int(self._first_documents[shard])

    def document_span(self, document: int) -> tuple[int, int]:
        """Give the store-wide tokens [start, stop) of a document."""
        shard, local = self._document_place(document)
        start, stop = self._shards.index(shard).bounds(local, local + 1).tolist()
        first = int(self._first_tokens[shard])
        return first + start, first + stop

    def document(self, document: int) -> Tokens:
        """Give the tokens of a document, without a copy where its shard is not packed."""
        start, stop = self.document_span(document)
        return self[start:stop]

    def document_at(self, token: int) -> int:
        """Find the document that holds a token.

        >>> import tempfile
        >>> from millstream.store.writer import TokenStoreWriter
        >>> path = Path(tempfile.mkdtemp(), "corpus")
        >>> with TokenStoreWriter(path) as writer:
        ...     writer.append([10, 11, 12])
        ...     writer.append([20, 21])
        >>> TokenStore(path).document_at(3)
        1
        """
        index = self._inside(operator.index(token), self._tokens, "token")
        shard = place(self._first_tokens, index)
        local = self._shards.index(shard).at(index - int(self._first_tokens[shard]))
        return int(self._first_documents[shard]) + local

    def spans_of(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Say where tokens [start, stop) come from: (document, start, stop), counted inside each document."""
        if not 0 <= start <= stop <= self._tokens:
            raise IndexError(f"tokens [{start}, {stop}) are not inside this store of {self._tokens}")
        parts = [np.empty((3, 0), np.int64)]
        while start < stop:
            shard = place(self._first_tokens, start)
            first = int(self._first_tokens[shard])
            here = min(stop, first + int(self.layout.table[shard, TOKENS]))
            parts.append(self._spans_in(shard, start - first, here - first))
            start = here
        documents, starts, stops = np.concatenate(parts, axis=1)
        return documents, starts, stops

    def _spans_in(self, shard: int, start: int, stop: int) -> NDArray[np.int64]:
        index = self._shards.index(shard)
        first, last = index.at(start), index.at(stop - 1) + 1
        if last <= first:
            raise StoreError(f"{self.layout.path_of(shard, '.idx')}: document ends fall", hint=VERIFY)
        bounds = index.bounds(first, last).astype(np.int64)
        begins = np.maximum(bounds[:-1], start) - bounds[:-1]
        ends = np.minimum(bounds[1:], stop) - bounds[:-1]
        documents = np.arange(first, last) + int(self._first_documents[shard])
        return np.stack([documents, begins, ends])[:, begins < ends]

    def file_of(self, document: int) -> str:
        """Name the raw file a document was made from; where the manifest does not say, the file that holds it."""
        shard = self._document_place(document)[0]
        return self._origins.file_of(document) or str(self.layout.path_of(shard))

    def origin_of(self, document: int) -> Origin | None:
        """Give the record that a document was made from (file, row, bytes), or None where the store does not say."""
        self._document_place(document)
        return self._origins.origin_of(document)

    @cached_property
    def _origins(self) -> Origins:
        return self._given_origins or Origins(self.manifest, origins_path(self.path, self.fingerprint))

    def verify(self, progress: Progress | None = None) -> Report:
        """Read everything and compare it with its checksums; damage is named block by block."""
        return verify_store(self.layout, progress)

    def log(self) -> list[Version]:
        """List this version and those it was made from, newest first."""
        if self.kind != "directory":
            return [Version(self.fingerprint, None, self._tokens, self.documents, 1, dict(self.manifest))]
        return history(self.path, dict(self.manifest))

    def diff(self, other: str | TokenStore) -> Diff:
        """Say what this version has that another has not; `other` is a version's fingerprint or a store."""
        there = other if isinstance(other, TokenStore) else TokenStore(self.path, version=other)
        return compare(self.layout.table, there.layout.table)

    def close(self) -> None:
        """Forget the mapped files; arrays that were given out stay valid."""
        self._shards.close()

    def __enter__(self) -> TokenStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def reopen(path: Path, dtype: str, version: str | None) -> TokenStore:
    """Open a store again, as pickle does in another process."""
    return TokenStore(path, dtype=dtype, version=version)
