"""Text -> token ids.

A `Tokenizer` turns text into ids and back. Ours are `CharTokenizer` and `BPETokenizer`; Hugging Face `tokenizers`,
tiktoken and SentencePiece are adapted, each in one file that is imported only when it is needed. `encode_flat` encodes
whole blocks of documents, by a faster engine where that is proven to give the same ids.
"""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "bpe": "BPETokenizer",
        "char": "CharTokenizer",
        "flat": "Ends FlatIds Text encode_flat join_ids join_texts unfit_documents",
        "load": "is_learned learn_tokenizer load_tokenizer may_be_learned",
        "plain_vocabulary": "ControlToken PlainVocabulary missing_controls plain_tokenizer with_control_tokens",
        "store_tokenizer": "check_tokenizer describe_tokenizer find_tokenizer keep_tokenizer kept_tokenizer "
        "share_ids smallest_dtype",
        "tokenizer": "Ids Tokenizer resolve_eos",
    },
)
