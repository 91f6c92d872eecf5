"""ConversationDataLoader: conversations -> rows whose labels are what the model must say, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Unpack, cast, get_args

from millstream.chats.settings import ChatSettings
from millstream.errors import LoaderError
from millstream.loaders.answers import answers_in, check_choices
from millstream.loaders.chat_keywords import ChatKeywords, chat_settings
from millstream.loaders.loss import LossMean, MeanOf
from millstream.loaders.member import Member, RowShape
from millstream.loaders.pretrain import id_limit, padding_id, row_length
from millstream.loaders.raw import RawSettings, described, is_raw, prepared_store
from millstream.loaders.settings import LoaderSettings, SharedKeywords, positive, resolve
from millstream.loaders.stores import StoreDataLoader
from millstream.order import Share
from millstream.order.shuffle import source_key
from millstream.parts.policy import OnBad
from millstream.store import TokenStore
from millstream.store.weights import WEIGHTED
from millstream.tokens import Tokenizer, load_tokenizer
from millstream.tokens.keep import check_tokenizer

Isolation = Literal["varlen", "block_mask", "none"]


class ConversationKeywords(ChatKeywords, SharedKeywords, total=False):
    """What says how conversations become tokens, and what every loader takes."""


class ConversationDataLoader(StoreDataLoader):
    """Conversations, each token with its weight in the loss; one in a row, or packed.

    >>> chats = [{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}]
    >>> from millstream import BPETokenizer
    >>> from millstream.loaders.pretrain import example_cache
    >>> tokenizer = BPETokenizer.train(["2+2? 4"], vocab_size=260)
    >>> how = {"chat_template": "chatml", "add_control_tokens": True, "cache_dir": example_cache()}
    >>> with ConversationDataLoader(chats, tokenizer=tokenizer, max_length=64, framework="numpy", **how) as loader:
    ...     batch = loader.next()
    ...     loader.tokenizer.decode(batch.labels[0][batch.labels[0] >= 0].tolist())
    '4<|im_end|>'

    Args:
        path: Files of conversations (JSON lines, Parquet, Arrow), a data set of Hugging Face or a list of dicts, which
            are tokenised into the cache; or a store that `prepare(kind="chat")` made.
        tokenizer: What `load_tokenizer` takes; a store has its own.
        max_length: The most tokens of a row; by default the model's, or 2048.
        packing: Several conversations in a row: each sees only itself, by `position_ids` and `cu_seqlens`.
        isolation: Of packed rows. "varlen": as above, for flash attention and its kin; "block_mask": `attention_mask`
            is the dense mask; "none": conversations see each other, as if they were one.
        loss: The mean that the batch's denominators are for: over "token"s or over "sequence"s.
        accumulation: Steps that make one update of the model; the denominators count all of them, on all ranks.
        name: Of the source; part of its key, so two sources of one seed have different orders.
        pad_id: What padding is filled with; by default the tokenizer's or the model's, else 0.
        recipe: Steps that clean and filter raw rows, as `prepare` takes them.
        on_bad: What becomes of rows that cannot be used: "error", "skip" or "quarantine".
        reading: How raw files are found, as `prepare` takes it.
        keywords: How conversations become tokens (docs/chat.md): chat_template, format, columns, roles, train,
            train_reasoning, train_tool_calls, mask_empty_think, truncation, untrained, boundary, trust_content, strict,
            add_control_tokens, variant, history_reasoning, date, …; and the keywords of every loader.
    """

    kind = "conversation"

    def __init__(
        self,
        path: Any,
        *,
        tokenizer: Any = None,
        max_length: int | None = None,
        packing: bool = False,
        isolation: Isolation = "varlen",
        loss: MeanOf = "token",
        accumulation: int = 1,
        name: str = "data",
        pad_id: int | None = None,
        recipe: Any = None,
        on_bad: OnBad = "error",
        reading: Mapping[str, Any] | None = None,
        **keywords: Unpack[ConversationKeywords],
    ) -> None:
        chat, shared = _parted(keywords)
        settings = resolve(shared)
        length = row_length(max_length, None, settings)
        for word, value, choices in (("isolation", isolation, get_args(Isolation)), ("loss", loss, get_args(MeanOf))):
            if value not in choices:
                raise LoaderError(f"{word}={value!r} is unknown", hint=f"use one of {', '.join(map(repr, choices))}")
        raw = RawSettings(recipe, on_bad, reading=dict(reading or {}))
        if is_raw(path):
            store = _prepared(path, tokenizer, raw, chat_settings(chat, tokenizer, length), settings)
            given = None
        else:
            store, given = _opened(path, tokenizer, asked={**chat, **({} if raw.untouched else {"reading": reading})})
        answers = answers_in(store, length)
        if answers is not None:
            check_choices(answers, packing=packing, loss=loss, labels=shared.get("labels"))
        shape = RowShape(length, "packed" if packing else "row", pad_id=0, answers=answers)
        member = _member(store, shape, name, settings)
        shape = replace(shape, pad_id=padding_id(pad_id, given or member.text_tokenizer, settings))
        member = replace(member, shape=shape, id_limit=id_limit(store, given, settings), tokenizer=given)
        self.isolation = isolation if packing else None
        mean = LossMean(loss, positive("accumulation", accumulation), alike=answers == "stepwise")
        super().__init__({name: member}, shape, settings, loss=mean)

    @property
    def store(self) -> TokenStore:
        """The store that conversations come from."""
        return self.member.store

    @property
    def member(self) -> Member:
        """This loader's part in a mixture."""
        return next(iter(self._run.members.values()))

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the store, with the control tokens that were added to it."""
        return self.member.text_tokenizer


def _parted(keywords: ConversationKeywords) -> tuple[ChatKeywords, SharedKeywords]:
    chat = {key: value for key, value in keywords.items() if key in ChatKeywords.__annotations__}
    shared = {key: value for key, value in keywords.items() if key not in ChatKeywords.__annotations__}
    return cast(ChatKeywords, chat), cast(SharedKeywords, shared)


def _prepared(path: Any, tokenizer: Any, raw: RawSettings, chat: ChatSettings, settings: LoaderSettings) -> TokenStore:
    """Tokenise raw conversations into the cache, or find them there."""
    if tokenizer is None:
        raise LoaderError("conversations need a tokenizer", hint="pass tokenizer='gpt2', a file or an object")
    return TokenStore(prepared_store(path, load_tokenizer(tokenizer), raw, settings.cache_dir, chat))


def _opened(path: Any, tokenizer: Any, asked: Mapping[str, Any]) -> tuple[TokenStore, Tokenizer | None]:
    """Open a store of conversations: how they became tokens was decided when it was made."""
    store = path if isinstance(path, TokenStore) else TokenStore(path)
    if store.dtype != WEIGHTED:
        raise LoaderError(
            f"{store.path}: its tokens have no weights, so what is to be learned of them is not known",
            hint="prepare the conversations with kind='chat'; a corpus of texts is for PretrainDataLoader",
        )
    if asked:
        raise LoaderError(
            f"{described(path)}: {', '.join(asked)} are about raw conversations, and these are tokens",
            hint="leave them out, or pass the raw files and their tokenizer",
        )
    loaded = None if tokenizer is None else load_tokenizer(tokenizer)
    if loaded is not None:
        check_tokenizer(loaded, str(store.path), store.manifest.get("tokenizer"))
    return store, loaded


def _member(store: TokenStore, shape: RowShape, name: str, settings: LoaderSettings) -> Member:
    if shape.documents == "packed":
        return Member.packed(store, shape, settings.shuffle, source_key(settings.seed, f"{name}\0packing"))
    return Member(store, Share(store.documents, settings.shuffle, unit=shape.unit), shape)
