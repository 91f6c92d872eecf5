"""SentencePiece models (`.model` files). The only file that imports the library."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from millstream.errors import MissingExtra, TokenizerError
from millstream.tokens.fast_engine import EncodingOptions, EngineTokenizer, FastEngine
from millstream.tokens.tokenizer import SENTENCEPIECE_FORMAT, Ids

try:
    import sentencepiece
except ImportError as error:
    raise MissingExtra.of("sentencepiece", "tokenizers") from error

_PIECES, _TYPE = 1, 3  # fields of a model and of a piece
_CONTROL, _USER_DEFINED = 3, 4  # types of a piece


class SentencePieceTokenizer(EngineTokenizer):
    """A SentencePiece model. Symbols that the model's user defined are found in a text; control symbols are text there,
    unless asked for as ids: then they are treated like the user's."""

    reference = "sentencepiece"

    def __init__(self, model: bytes, *, name: str, **how: Unpack[EncodingOptions]) -> None:
        super().__init__(**how)
        self.name = name
        self._own_model = model
        own: Any = _processor(model)
        self.vocab_size: int = own.vocab_size()
        self.eos_id = _known(own.eos_id())
        self.pad_id = _known(own.pad_id())
        self._model = model if self.special_in_text == "text" else with_control_symbols_found(model)
        self._processor: Any = _processor(self._model)

    def _vocabulary(self) -> str:
        return hashlib.blake2b(self._own_model, digest_size=16).hexdigest()

    @classmethod
    def from_file(cls, path: str | Path, **how: Unpack[EncodingOptions]) -> SentencePieceTokenizer:
        """Read a `.model` file."""
        path = Path(path)
        try:
            return cls(path.read_bytes(), name=path.stem, **how)
        except (RuntimeError, TypeError) as error:
            raise TokenizerError(
                f"{path}: not a SentencePiece model: {error}", hint="pass the .model file that the trainer wrote"
            ) from error

    @classmethod
    def from_object(cls, processor: Any, **how: Unpack[EncodingOptions]) -> SentencePieceTokenizer:
        """Adapt a `SentencePieceProcessor`; its settings for sampling and extra ids do not count."""
        return cls(processor.serialized_model_proto(), name="sentencepiece", **how)

    @classmethod
    def from_content(cls, content: Mapping[str, Any], **how: Unpack[EncodingOptions]) -> SentencePieceTokenizer:
        """Build it from what `save` wrote."""
        how.setdefault("special_in_text", content.get("special_in_text", "text"))
        return cls(base64.b64decode(content["model"]), name=content["name"], **how)

    def save(self, path: str | Path) -> None:
        """Write it as a JSON file that `load_tokenizer` reads."""
        model = base64.b64encode(self._own_model).decode()
        kept = {"name": self.name, "special_in_text": self.special_in_text, "model": model}
        content = {"format": SENTENCEPIECE_FORMAT, "version": 1, **kept}
        Path(path).write_text(json.dumps(content), encoding="utf-8")

    def encode(self, text: str) -> list[int]:
        """The ids of one text."""
        ids: list[int] = self._processor.encode(text)
        return ids

    def offsets(self, texts: Sequence[str]) -> list[tuple[Ids, NDArray[np.int64]]]:
        """The ids of some texts, and which characters [begin, end) each of them covers, by the spelling of pieces."""
        return [self._offsets(text) for text in texts]

    def _offsets(self, text: str) -> tuple[Ids, NDArray[np.int64]]:
        ids = self.encode(text)
        spelled = [self._spelling(id) for id in ids]
        content, joined = text.encode(), b"".join(spelled)
        lead = len(joined) - len(content)  # the space that models put in front
        if joined != b" " * lead + content:
            raise TokenizerError(
                f"{self.name} changes this text, so its tokens have no place in it: {text[:60]!r}",
                hint='pass boundary="split", which encodes each part on its own',
            )
        stops = np.maximum(np.cumsum([len(piece) for piece in spelled], dtype=np.int64) - lead, 0)
        begins = np.concatenate([np.zeros(min(len(ids), 1), np.int64), stops[:-1]])
        starts = np.cumsum((np.frombuffer(content, np.uint8) & 0xC0) != 0x80)  # characters begun up to each byte
        ends = np.concatenate([np.zeros(1, np.int64), starts])
        firsts = np.concatenate([starts - 1, [len(text)]])
        return np.array(ids, np.uint32), np.stack([firsts[begins], ends[stops]], axis=1)

    def _spelling(self, id: int) -> bytes:
        piece: str = self._processor.id_to_piece(id)
        return bytes([int(piece[3:-1], 16)]) if self._processor.is_byte(id) else piece.replace("▁", " ").encode()

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids, as far as the model keeps it: many drop or join spaces."""
        try:
            text: str = self._processor.decode([int(id) for id in ids])
        except IndexError as error:
            raise TokenizerError(
                f"{self.name} cannot decode these ids: {error}",
                hint="were they made with this tokenizer?",
            ) from error
        return text

    def token_id(self, token: str) -> int | None:
        """The id of a piece by its spelling."""
        id: int = self._processor.piece_to_id(token)
        return id if self._processor.id_to_piece(id) == token else None

    def __getstate__(self) -> dict[str, Any]:
        """The processor is rebuilt from the model's bytes."""
        return {**super().__getstate__(), "_processor": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _processor=_processor(state["_model"]))

    def _reference_batch(self, texts: Sequence[str]) -> list[Ids]:
        return [np.array(ids, np.uint32) for ids in self._processor.encode(list(texts), num_threads=1)]

    def _fast_engine(self) -> FastEngine:
        from millstream.tokens import gigatoken

        return gigatoken.from_sentencepiece(self._model)

    def _probe_tokens(self) -> list[str]:
        model = self._processor
        pieces = [
            model.id_to_piece(id) for id in range(self.vocab_size) if model.is_control(id) or model.is_unknown(id)
        ]
        return [*pieces, *_user_defined(model)]


def _processor(model: bytes) -> Any:
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def _user_defined(model: Any) -> list[str]:
    """Pieces that look like tokens of their own; which ones are, the library does not say."""
    pieces = (model.id_to_piece(id) for id in range(model.vocab_size()) if not model.is_byte(id))
    return [piece for piece in pieces if len(piece) > 2 and piece[0] in "<[" and piece[-1] in ">]"]


def with_control_symbols_found(model: bytes) -> bytes:
    """The same model, whose control symbols are symbols of the user: the library finds those in a text."""
    changed = bytearray(model)
    for start, stop in _fields(model, 0, len(model), _PIECES):
        for place, _ in _fields(model, start, stop, _TYPE):
            if model[place] == _CONTROL:
                changed[place] = _USER_DEFINED
    return bytes(changed)


def _fields(message: bytes, at: int, stop: int, wanted: int) -> Iterator[tuple[int, int]]:
    """Where the values of one field of a protobuf message lie; of the others only the lengths are read."""
    while at < stop:
        key, at = _varint(message, at)
        kind, length = key & 7, 0
        if kind == 2:
            length, at = _varint(message, at)
        elif kind == 0:
            length = _varint(message, at)[1] - at
        else:
            length = {1: 8, 5: 4}[kind]
        if key >> 3 == wanted:
            yield at, at + length
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while message[at] & 0x80:
        value |= (message[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | message[at] << shift, at + 1


def _known(id: int) -> int | None:
    return None if id < 0 else id
