"""Tokenizers of the Hugging Face `tokenizers` library. The only file that imports it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from millstream.errors import MissingExtra, TokenizerError
from millstream.tokens.engine import EngineTokenizer, FastEngine, How
from millstream.tokens.tokenizer import HUGGINGFACE_FORMAT, Ids, fingerprint_of

try:
    import tokenizers
except ImportError as error:
    raise MissingExtra.of("tokenizers", "tokenizers") from error

EOS_NAMES = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<|eos|>",
    "<｜end▁of▁sentence｜>",
)
PAD_NAMES = ("<|pad|>", "<pad>", "[PAD]", "<|padding|>", "<|finetune_right_pad_id|>")


class HuggingFaceTokenizer(EngineTokenizer):
    """A `tokenizers.Tokenizer`, without what would change documents in silence.

    It works on a copy: truncation and padding are off, nothing is added, special tokens in a text are text unless
    asked for as ids.
    """

    reference = "tokenizers"

    def __init__(
        self,
        tokenizer: Any,
        *,
        name: str,
        eos: str | int | None = None,
        pad: str | int | None = None,
        **how: Unpack[How],
    ) -> None:
        super().__init__(**how)
        self.name = name
        self._definition = _definition(tokenizer)
        self._tokenizer = self._bare()
        self._special = {
            token.content: id for id, token in self._tokenizer.get_added_tokens_decoder().items() if token.special
        }
        self.vocab_size: int = 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        self.eos_id = self._pick(eos, EOS_NAMES)
        self.pad_id = self._pick(pad, PAD_NAMES)
        self.fingerprint = self._marked(_fingerprint(self._definition))

    @classmethod
    def from_object(cls, tokenizer: Any, **how: Unpack[How]) -> HuggingFaceTokenizer:
        """Adapt a `tokenizers.Tokenizer`, or a tokenizer of transformers; a slow one is converted first."""
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None and hasattr(tokenizer, "convert_ids_to_tokens"):
            backend = _converted(tokenizer)
        if backend is None:
            return cls(tokenizer, name="tokenizers", **how)
        return cls(
            backend,
            name=str(getattr(tokenizer, "name_or_path", "") or "transformers"),
            eos=getattr(tokenizer, "eos_token_id", None),
            pad=getattr(tokenizer, "pad_token_id", None),
            **how,
        )

    @classmethod
    def from_file(cls, path: str | Path, **how: Unpack[How]) -> HuggingFaceTokenizer:
        """Read a `tokenizer.json`; a `tokenizer_config.json` beside it names the special tokens."""
        path = Path(path)
        try:
            tokenizer = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises bare Exception
            raise TokenizerError(
                f"{path}: not a tokenizer that `tokenizers` can read: {error}",
                hint="download it again; a SentencePiece model has to be converted to tokenizer.json",
            ) from error
        config = _config(path.parent / "tokenizer_config.json")
        parent = path.resolve().parent.name
        name = parent if path.name == "tokenizer.json" and parent else path.stem
        return cls(tokenizer, name=name, eos=config.get("eos_token"), pad=config.get("pad_token"), **how)

    @classmethod
    def from_content(cls, content: Mapping[str, Any], **how: Unpack[How]) -> HuggingFaceTokenizer:
        """Build it from what `save` wrote for a tokenizer that finds special tokens in texts."""
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content["tokenizer"]))
        how.setdefault("special_in_text", content["special_in_text"])
        return cls(tokenizer, name=content["name"], eos=content["eos"], pad=content["pad"], **how)

    @property
    def definition(self) -> str:
        """The content of its `tokenizer.json`."""
        return self._definition

    def offsets(self, texts: Sequence[str]) -> list[tuple[Ids, NDArray[np.int64]]]:
        """The ids of some texts by the library itself, and which characters [begin, end) each of them covers."""
        encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [(np.array(each.ids, np.uint32), np.array(each.offsets, np.int64).reshape(-1, 2)) for each in encodings]

    def encode(self, text: str) -> list[int]:
        """The ids of one text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids."""
        text: str = self._tokenizer.decode([int(id) for id in ids], skip_special_tokens=False)
        return text

    def token_id(self, token: str) -> int | None:
        """The id of a token by its spelling."""
        id: int | None = self._tokenizer.token_to_id(token)
        return id

    def save(self, path: str | Path) -> None:
        """Write it as a `tokenizer.json`; one that finds special tokens in texts, which such a file cannot say, as a
        JSON file that `load_tokenizer` reads."""
        content = self._definition if self.special_in_text == "text" else json.dumps(self._content())
        Path(path).write_text(content, encoding="utf-8")

    def _content(self) -> dict[str, Any]:
        kept = {"name": self.name, "eos": self.eos_id, "pad": self.pad_id, "special_in_text": self.special_in_text}
        return {"format": HUGGINGFACE_FORMAT, "version": 1, **kept, "tokenizer": json.loads(self._definition)}

    def __getstate__(self) -> dict[str, Any]:
        """The library's own pickles forget what special tokens in a text are."""
        return {**super().__getstate__(), "_tokenizer": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._tokenizer = self._bare()

    def _bare(self) -> Any:
        """A copy of the tokenizer that changes no document in silence."""
        tokenizer = tokenizers.Tokenizer.from_str(self._definition)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = self.special_in_text == "text"
        return tokenizer

    def _reference_batch(self, texts: Sequence[str]) -> list[Ids]:
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]

    def _fast_engine(self) -> FastEngine:
        from millstream.tokens import gigatoken

        return gigatoken.from_definition(self._definition, finds_special=self.special_in_text == "ids")

    def _probe_tokens(self) -> list[str]:
        return [token.content for token in self._tokenizer.get_added_tokens_decoder().values()]

    def _pick(self, wanted: str | int | None, known: tuple[str, ...]) -> int | None:
        if isinstance(wanted, int):
            return wanted
        if wanted is not None:
            return self.token_id(wanted)
        return next((self._special[name] for name in known if name in self._special), None)


def train_byte_level_bpe(texts: Iterable[str], vocab_size: int, special_tokens: Sequence[str]) -> Any:
    """Learn a byte-level BPE: every text can be encoded, and decoding gives it back."""
    if vocab_size < 256 + len(special_tokens):
        raise TokenizerError(
            f"vocab_size={vocab_size} is too small for 256 bytes and the special tokens ({len(special_tokens)})",
            hint=f'ask for {256 + len(special_tokens)} or more, as in "bpe:4096"',
        )
    split = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special_tokens),
        initial_alphabet=split.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _converted(slow: Any) -> Any:
    """The `tokenizers` form of a slow tokenizer of transformers, by its own converter."""
    try:
        from transformers.convert_slow_tokenizer import convert_slow_tokenizer

        return convert_slow_tokenizer(slow)
    except Exception as error:  # the converter raises whatever its many parts raise
        raise TokenizerError(
            f"{type(slow).__name__}: transformers cannot convert this slow tokenizer: {error}",
            hint="load it with use_fast=True, or pass its tokenizer.json or SentencePiece .model file",
        ) from error


def _definition(tokenizer: Any) -> str:
    try:
        definition: str = tokenizer.to_str()
    except Exception as error:  # the library raises bare Exception
        raise TokenizerError(
            f"this tokenizer cannot be written down: {error}",
            hint="parts written in Python cannot be copied to other threads and machines",
        ) from error
    return definition


def _fingerprint(definition: str) -> str:
    """A hash of what decides the ids: not of truncation, padding, templates or the decoder."""
    content = json.loads(definition)
    model = content["model"]
    merges = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in model.get("merges") or []]
    added = [(token["id"], token["content"], token["special"]) for token in content.get("added_tokens") or []]
    rest = {key: value for key, value in model.items() if key not in ("merges", "type")}
    return fingerprint_of([rest, merges, added, content.get("normalizer"), content.get("pre_tokenizer")])


def _config(path: Path) -> dict[str, Any]:
    """The special tokens that a `tokenizer_config.json` names, as plain strings."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokenizerError(
            f"{path}: not JSON: {error}", hint="download the file again, or remove it: it only names special tokens"
        ) from error
    found = {}
    for key in ("eos_token", "pad_token"):
        value = content.get(key) if isinstance(content, dict) else None
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            found[key] = value
    return found
