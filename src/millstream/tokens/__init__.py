"""Text -> token ids.

A `Tokenizer` turns text into ids and back. Ours are `CharTokenizer` and `BPETokenizer`; Hugging Face `tokenizers`,
tiktoken and SentencePiece are adapted, each in one file that is imported only when it is needed. `encode_flat` encodes
whole blocks of documents, by a faster engine where that is proven to give the same ids.
"""

from millstream.tokens.bpe import BPETokenizer
from millstream.tokens.char import CharTokenizer
from millstream.tokens.flat import encode_flat, unfit_documents
from millstream.tokens.load import learn_tokenizer, load_tokenizer
from millstream.tokens.tokenizer import Tokenizer, resolve_eos

__all__ = [
    "BPETokenizer",
    "CharTokenizer",
    "Tokenizer",
    "encode_flat",
    "learn_tokenizer",
    "load_tokenizer",
    "resolve_eos",
    "unfit_documents",
]
