"""Our byte-level BPE: learned with the `tokenizers` library, saved as a `tokenizer.json`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.tokens.flat import Ends, FlatIds, Text
from millstream.tokens.tokenizer import Ids

if TYPE_CHECKING:
    from millstream.tokens.huggingface import HuggingFaceTokenizer

EOS = "<|endoftext|>"


class BPETokenizer:
    """Byte-level BPE: any text can be encoded, and decoding gives it back.

    >>> tokenizer = BPETokenizer.train(["the mill, the stream, the mill"] * 4, vocab_size=270)
    >>> tokenizer.decode(tokenizer.encode("the mill at 世界")), tokenizer.vocab_size
    ('the mill at 世界', 270)
    >>> tokenizer.eos_id in tokenizer.encode("a text with <|endoftext|> inside")
    False
    """

    def __init__(self, adapted: HuggingFaceTokenizer) -> None:
        self._adapted = adapted
        self.vocab_size = adapted.vocab_size
        self.eos_id = adapted.eos_id
        self.pad_id = adapted.pad_id
        self.special_in_text = adapted.special_in_text
        self.name = f"bpe-{adapted.vocab_size}"

    @classmethod
    def train(
        cls, texts: Iterable[str], *, vocab_size: int = 8192, special_tokens: Sequence[str] = (EOS,)
    ) -> BPETokenizer:
        """Learn from texts. The same texts give the same tokenizer; ids of special tokens come first."""
        from millstream.tokens.huggingface import HuggingFaceTokenizer, train_byte_level_bpe

        trained = train_byte_level_bpe(texts, vocab_size, special_tokens)
        return cls(HuggingFaceTokenizer(trained, name="bpe", owned=True))

    @classmethod
    def load(cls, path: str | Path) -> BPETokenizer:
        """Read what `save` wrote."""
        from millstream.tokens.huggingface import HuggingFaceTokenizer

        return cls(HuggingFaceTokenizer.from_file(path))

    def save(self, path: str | Path) -> None:
        """Write it as a `tokenizer.json`."""
        self._adapted.save(path)

    def encode(self, text: str) -> list[int]:
        """The ids of one text."""
        return self._adapted.encode(text)

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of many texts."""
        return self._adapted.encode_batch(texts)

    def encode_flat(self, text: Text, ends: Ends) -> FlatIds:
        """The ids of many documents that lie end to end, and where each document ends."""
        return self._adapted.encode_flat(text, ends)

    @property
    def fingerprint(self) -> str:
        """Equal when two tokenizers give the same ids."""
        return self._adapted.fingerprint

    @property
    def adapted(self) -> HuggingFaceTokenizer:
        """The same vocabulary as a tokenizer of the library that learned it."""
        return self._adapted

    @property
    def engine(self) -> str:
        """The engine that encodes documents: "gigatoken", or "tokenizers"."""
        return self._adapted.engine

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids."""
        return self._adapted.decode(ids)

    def token_id(self, token: str) -> int | None:
        """The id of a token by its spelling."""
        return self._adapted.token_id(token)
