"""gigatoken, a faster engine for the vocabularies of others. The only file that imports it."""

from __future__ import annotations

import base64
import json
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from millstream.errors import MissingExtra
from millstream.tokens.definition import join_definition, split_definition
from millstream.tokens.fast_engine import NoFastEngine
from millstream.tokens.flat import Ends, FlatIds, Text

try:
    import awkward
    from gigatoken._load.sentencepiece import sentencepiece_to_tokenizer_json
    from gigatoken.gigatoken_rs import BPETokenizer as _Bpe
    from gigatoken.gigatoken_rs import load_hf_json
except ImportError as error:
    raise MissingExtra.of("gigatoken", "tokenizers") from error

_LIFE = 10.0
_LIFE_OF_BUILDS = 30.0
_TINY = 1 << 13  # bytes whose ids come sooner as lists: an array of arrays takes half a millisecond, whatever it holds
_FEW = 2000
_SMALL = 1 << 20
"""So few documents of so few bytes are copied into objects of their own sooner than an array of them is made."""


class GigatokenEngine:
    """Encodes blocks of documents, each thread with an object of its own: one object serves one thread at a time.

    Objects cache every word they have met, without a limit: some 100 MB in a second at worst. So an object is replaced
    after some seconds of its work. A replacement costs at most 3 % of the time.
    """

    name = "gigatoken"

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        self._idle: deque[_Worker] = deque([self._worker()])

    def encode_flat(self, text: Text, ends: Ends) -> FlatIds:
        """The ids of all documents end to end, and where each document ends."""
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = self._worker()
        ids = worker.encode(text, ends)
        if worker.life > 0:
            self._idle.append(worker)
        return ids

    def _worker(self) -> _Worker:
        started = time.thread_time()
        try:
            backend = self._build()
        except BaseException as error:  # the library raises several kinds; a panic of its core is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            raise NoFastEngine(f"gigatoken does not take this tokenizer: {str(error).splitlines()[0]}") from error
        return _Worker(backend, max(_LIFE, _LIFE_OF_BUILDS * (time.thread_time() - started)))


class _Worker:
    """One object of the library, and the seconds of work that are left to it."""

    def __init__(self, backend: Any, life: float) -> None:
        self._backend = backend
        self.life = life

    def encode(self, text: Text, ends: Ends) -> FlatIds:
        started = time.thread_time()
        if len(text) <= _TINY:
            content, bounds = text.tobytes(), [0, *ends.tolist()]
            documents = [content[start:stop] for start, stop in pairwise(bounds)]
            rows = self._backend.encode_batch_list(documents, parallel=False)
            self.life -= time.thread_time() - started
            stops = np.cumsum([len(row) for row in rows], dtype=np.int64)
            return np.fromiter(chain.from_iterable(rows), np.uint32), stops
        encoded = self._backend.encode_batch(_strings(text, ends), parallel=False).layout
        self.life -= time.thread_time() - started
        return encoded.content.data, np.asarray(encoded.offsets.data[1:], np.int64)


def from_definition(definition: str, *, finds_special: bool = False) -> GigatokenEngine:
    """An engine for a `tokenizer.json`. Where special tokens in a text are text, the engine has none."""
    head, model = split_definition(definition)
    known = [token for token in head.get("added_tokens") or [] if finds_special or not token["special"]]
    plain = join_definition({**head, "added_tokens": known}, model)
    return GigatokenEngine(lambda: load_hf_json(plain))


def from_ranks(ranks: Mapping[bytes, int], scheme: str, special: Mapping[str, int]) -> GigatokenEngine:
    """An engine for the mergeable ranks of a tiktoken encoding, the scheme that splits its words, and the special
    tokens that it finds in a text."""
    lines = [
        b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in sorted(ranks.items(), key=lambda each: each[1])
    ]
    content = b"".join(lines)

    def build() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ranks.tiktoken"
            path.write_bytes(content)
            return _Bpe.from_tiktoken(path, scheme, dict(special))

    return GigatokenEngine(build)


def from_sentencepiece(model: bytes) -> GigatokenEngine:
    """An engine for a SentencePiece model."""
    try:
        content = json.loads(sentencepiece_to_tokenizer_json(model))
        vocabulary = json.dumps(content.pop("model"), ensure_ascii=False)
        return from_definition(join_definition(content, vocabulary))
    except (AssertionError, IndexError, ValueError) as error:
        raise NoFastEngine(f"gigatoken does not take this model: {error}") from error


def _strings(text: Text, ends: Ends) -> Any:
    """The documents as the array of strings that gigatoken reads in place; a list, where that is faster."""
    if 0 < len(ends) <= _FEW and len(text) <= _SMALL:
        content, stops = text.tobytes(), ends.tolist()
        return [content[begin:end] for begin, end in zip([0, *stops[:-1]], stops, strict=True)]
    offsets = np.concatenate([np.zeros(1, np.int64), ends])
    characters = awkward.contents.NumpyArray(np.ascontiguousarray(text), parameters={"__array__": "char"})
    strings = awkward.contents.ListOffsetArray(
        awkward.index.Index64(offsets), characters, parameters={"__array__": "string"}
    )
    return awkward.Array(strings)
