from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.tokens.bpe import BPETokenizer as BPETokenizer
    from millstream.tokens.char import CharTokenizer as CharTokenizer
    from millstream.tokens.flat import Ends as Ends
    from millstream.tokens.flat import FlatIds as FlatIds
    from millstream.tokens.flat import Text as Text
    from millstream.tokens.flat import encode_flat as encode_flat
    from millstream.tokens.flat import join_ids as join_ids
    from millstream.tokens.flat import join_texts as join_texts
    from millstream.tokens.flat import unfit_documents as unfit_documents
    from millstream.tokens.load import is_learned as is_learned
    from millstream.tokens.load import learn_tokenizer as learn_tokenizer
    from millstream.tokens.load import load_tokenizer as load_tokenizer
    from millstream.tokens.load import may_be_learned as may_be_learned
    from millstream.tokens.plain_vocabulary import ControlToken as ControlToken
    from millstream.tokens.plain_vocabulary import PlainVocabulary as PlainVocabulary
    from millstream.tokens.plain_vocabulary import missing_controls as missing_controls
    from millstream.tokens.plain_vocabulary import plain_tokenizer as plain_tokenizer
    from millstream.tokens.plain_vocabulary import with_control_tokens as with_control_tokens
    from millstream.tokens.store_tokenizer import check_tokenizer as check_tokenizer
    from millstream.tokens.store_tokenizer import describe_tokenizer as describe_tokenizer
    from millstream.tokens.store_tokenizer import find_tokenizer as find_tokenizer
    from millstream.tokens.store_tokenizer import keep_tokenizer as keep_tokenizer
    from millstream.tokens.store_tokenizer import kept_tokenizer as kept_tokenizer
    from millstream.tokens.store_tokenizer import share_ids as share_ids
    from millstream.tokens.store_tokenizer import smallest_dtype as smallest_dtype
    from millstream.tokens.tokenizer import Ids as Ids
    from millstream.tokens.tokenizer import Tokenizer as Tokenizer
    from millstream.tokens.tokenizer import resolve_eos as resolve_eos

__all__ = [
    "BPETokenizer",
    "CharTokenizer",
    "ControlToken",
    "Ends",
    "FlatIds",
    "Ids",
    "PlainVocabulary",
    "Text",
    "Tokenizer",
    "check_tokenizer",
    "describe_tokenizer",
    "encode_flat",
    "find_tokenizer",
    "is_learned",
    "join_ids",
    "join_texts",
    "keep_tokenizer",
    "kept_tokenizer",
    "learn_tokenizer",
    "load_tokenizer",
    "may_be_learned",
    "missing_controls",
    "plain_tokenizer",
    "resolve_eos",
    "share_ids",
    "smallest_dtype",
    "unfit_documents",
    "with_control_tokens",
]
