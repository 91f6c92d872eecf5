"""Tokenizers of the Hugging Face `tokenizers` library. The only file that imports it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from millstream.errors import MissingExtra, TokenizerError
from millstream.tokens.definition import fingerprint_of_definition, join_definition, split_definition
from millstream.tokens.fast_engine import EncodingOptions, EngineTokenizer, FastEngine
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
    """A `tokenizers.Tokenizer`, without the settings that would change documents silently.

    It works on a copy, unless the caller gives the object away (`owned`). Truncation and padding are off, nothing is
    added, special tokens in a text are text unless asked for as ids.
    """

    reference = "tokenizers"

    def __init__(
        self,
        tokenizer: Any,
        *,
        name: str,
        eos: str | int | None = None,
        pad: str | int | None = None,
        owned: bool = False,
        **how: Unpack[EncodingOptions],
    ) -> None:
        super().__init__(**how)
        self.name = name
        if not owned or tokenizer.truncation or tokenizer.padding:  # which are off from now on
            self.definition = _written(tokenizer)
        self._tokenizer = self._bare(tokenizer if owned else _read(self.definition))
        self._special = {
            token.content: id for id, token in self._tokenizer.get_added_tokens_decoder().items() if token.special
        }
        self._variants: dict[str, HuggingFaceTokenizer] = {}
        self.eos_id = self._pick(eos, EOS_NAMES)
        self.pad_id = self._pick(pad, PAD_NAMES)

    @cached_property
    def definition(self) -> str:
        """The content of its `tokenizer.json`."""
        return _written(self._tokenizer)

    @property
    def head(self) -> dict[str, Any]:
        """The definition but for its model."""
        return split_definition(self.definition)[0]

    def model(self, *, merges: bool = True) -> dict[str, Any]:
        """The model of the definition. Without its merges, a BPE is asked for the rest, which is faster."""
        own = self._tokenizer.model
        if merges or not isinstance(own, tokenizers.models.BPE):
            parsed: dict[str, Any] = json.loads(split_definition(self.definition)[1])
            return parsed
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=False)
        return {"type": "BPE", "vocab": vocabulary, "unk_token": own.unk_token, "byte_fallback": own.byte_fallback}

    def may_spell(self, token: str) -> bool:
        """Whether the model may make this token of its letters: a BPE that does so anywhere does so with them alone."""
        own = self._tokenizer.model
        if not isinstance(own, tokenizers.models.BPE) or own.dropout:
            return True
        return bool(own.continuing_subword_prefix or own.end_of_word_suffix) or len(own.tokenize(token)) < 2

    def _vocabulary(self) -> str:
        return fingerprint_of_definition(self.definition)

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)

    @classmethod
    def from_object(cls, tokenizer: Any, **how: Unpack[EncodingOptions]) -> HuggingFaceTokenizer:
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
    def from_file(cls, path: str | Path, **how: Unpack[EncodingOptions]) -> HuggingFaceTokenizer:
        """Read a `tokenizer.json`; a `tokenizer_config.json` beside it names the special tokens."""
        path = Path(path)
        try:
            tokenizer = _read(path.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises bare Exception
            raise TokenizerError(
                f"{path}: not a tokenizer that `tokenizers` can read: {error}",
                hint="download it again; a SentencePiece model has to be converted to tokenizer.json",
            ) from error
        config = _config(path.parent / "tokenizer_config.json")
        parent = path.resolve().parent.name
        name = parent if path.name == "tokenizer.json" and parent else path.stem
        return cls(tokenizer, name=name, eos=config.get("eos_token"), pad=config.get("pad_token"), owned=True, **how)

    @classmethod
    def from_content(cls, content: Mapping[str, Any], **how: Unpack[EncodingOptions]) -> HuggingFaceTokenizer:
        """Build it from what `save` wrote for a tokenizer that finds special tokens in texts."""
        tokenizer = _read(json.dumps(content["tokenizer"]))
        how.setdefault("special_in_text", content["special_in_text"])
        return cls(tokenizer, name=content["name"], eos=content["eos"], pad=content["pad"], owned=True, **how)

    def variant(
        self,
        head: Mapping[str, Any],
        model: str | None = None,
        *,
        keep_names: bool = False,
        **how: Unpack[EncodingOptions],
    ) -> HuggingFaceTokenizer:
        """Another tokenizer by its definition; without a `model` it shares ours, which need not be read again.

        With `keep_names` it has the same tokens for ends and padding, else none. Variants are cached: proving an engine
        takes up to a second, and loaders of one tokenizer ask for the same.
        """
        key = fingerprint_of([head, model, keep_names, dict(how)])
        if key not in self._variants:
            self._variants[key] = self._variant(head, model, keep_names=keep_names, **how)
        return self._variants[key]

    def _variant(
        self, head: Mapping[str, Any], model: str | None, *, keep_names: bool, **how: Unpack[EncodingOptions]
    ) -> HuggingFaceTokenizer:
        made = _around(self._tokenizer.model, head) if model is None else None
        if made is None:
            made = _read(join_definition(head, split_definition(self.definition)[1] if model is None else model))
        ids = {"eos": self.eos_id, "pad": self.pad_id} if keep_names else {}
        return type(self)(made, name=self.name, **ids, owned=True, **how)

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
        content = self.definition if self.special_in_text == "text" else json.dumps(self._content())
        Path(path).write_text(content, encoding="utf-8")

    def _content(self) -> dict[str, Any]:
        kept = {"name": self.name, "eos": self.eos_id, "pad": self.pad_id, "special_in_text": self.special_in_text}
        return {"format": HUGGINGFACE_FORMAT, "version": 1, **kept, "tokenizer": json.loads(self.definition)}

    def __getstate__(self) -> dict[str, Any]:
        """The library's own pickles forget what special tokens in a text are."""
        return {**super().__getstate__(), "definition": self.definition, "_tokenizer": None, "_variants": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._tokenizer = self._bare(_read(self.definition))

    def _bare(self, tokenizer: Any) -> Any:
        """The tokenizer without truncation and padding, which change documents silently."""
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = self.special_in_text == "text"
        return tokenizer

    def _reference_batch(self, texts: Sequence[str]) -> list[Ids]:
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]

    def _fast_engine(self) -> FastEngine:
        from millstream.tokens import gigatoken

        return gigatoken.from_definition(self.definition, finds_special=self.special_in_text == "ids")

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


def _read(definition: str) -> Any:
    return tokenizers.Tokenizer.from_str(definition)


def _written(tokenizer: Any) -> str:
    try:
        definition: str = tokenizer.to_str()
    except Exception as error:  # the library raises bare Exception
        raise TokenizerError(
            f"this tokenizer cannot be written down: {error}",
            hint="parts written in Python cannot be copied to other threads and machines",
        ) from error
    return definition


def _around(model: Any, head: Mapping[str, Any]) -> Any | None:
    """A tokenizer with a model that is there already; None where its added tokens would get other ids."""
    made = _read(join_definition({**head, "added_tokens": []}))
    made.model = model
    for special, tokens in groupby(head["added_tokens"], key=lambda token: token["special"]):
        add = made.add_special_tokens if special else made.add_tokens
        add([tokenizers.AddedToken(**{key: value for key, value in each.items() if key != "id"}) for each in tokens])
    return made if _added(made) == head["added_tokens"] else None


def _added(tokenizer: Any) -> list[dict[str, Any]]:
    """The added tokens as a definition lists them."""
    flags = ("content", "single_word", "lstrip", "rstrip", "normalized", "special")
    found = sorted(tokenizer.get_added_tokens_decoder().items())
    return [{"id": id, **{flag: getattr(token, flag) for flag in flags}} for id, token in found]


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
