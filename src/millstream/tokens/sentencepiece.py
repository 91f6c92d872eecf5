"""SentencePiece models (`.model` files). The only file that imports the library."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from millstream.errors import MissingExtra, TokenizerError
from millstream.tokens.engine import EngineChoice, EngineTokenizer, FastEngine
from millstream.tokens.tokenizer import SENTENCEPIECE_FORMAT, Ids

try:
    import sentencepiece
except ImportError as error:
    raise MissingExtra.of("sentencepiece", "tokenizers") from error


class SentencePieceTokenizer(EngineTokenizer):
    """A SentencePiece model. Control symbols in a text are text; symbols that the model's user defined are found."""

    reference = "sentencepiece"

    def __init__(self, model: bytes, *, name: str, engine: EngineChoice = "auto") -> None:
        super().__init__(engine)
        self.name = name
        self._model = model
        self._processor: Any = _processor(model)
        self.vocab_size: int = self._processor.vocab_size()
        self.eos_id = _known(self._processor.eos_id())
        self.pad_id = _known(self._processor.pad_id())
        self.fingerprint = hashlib.blake2b(model, digest_size=16).hexdigest()

    @classmethod
    def from_file(cls, path: str | Path, *, engine: EngineChoice = "auto") -> SentencePieceTokenizer:
        """Read a `.model` file."""
        path = Path(path)
        try:
            return cls(path.read_bytes(), name=path.stem, engine=engine)
        except (RuntimeError, TypeError) as error:
            raise TokenizerError(
                f"{path}: not a SentencePiece model: {error}", hint="pass the .model file that the trainer wrote"
            ) from error

    @classmethod
    def from_object(cls, processor: Any, *, engine: EngineChoice = "auto") -> SentencePieceTokenizer:
        """Adapt a `SentencePieceProcessor`; its settings for sampling and extra ids do not count."""
        return cls(processor.serialized_model_proto(), name="sentencepiece", engine=engine)

    @classmethod
    def from_content(cls, content: Mapping[str, Any], *, engine: EngineChoice = "auto") -> SentencePieceTokenizer:
        """Build it from what `save` wrote."""
        return cls(base64.b64decode(content["model"]), name=content["name"], engine=engine)

    def save(self, path: str | Path) -> None:
        """Write it as a JSON file that `load_tokenizer` reads."""
        model = base64.b64encode(self._model).decode()
        content = {"format": SENTENCEPIECE_FORMAT, "version": 1, "name": self.name, "model": model}
        Path(path).write_text(json.dumps(content), encoding="utf-8")

    def encode(self, text: str) -> list[int]:
        """The ids of one text."""
        ids: list[int] = self._processor.encode(text)
        return ids

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
        """The processor is built anew from the model's bytes."""
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


def _known(id: int) -> int | None:
    return None if id < 0 else id
