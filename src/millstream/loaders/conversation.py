"""ConversationDataLoader: conversations -> rows whose labels are what the model must say, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Unpack, cast, get_args

import numpy as np

from millstream.batches import EngineMeanOf, LossMean, TrainingBatch, check_isolation
from millstream.chats import ChatSettings, DecidedChat
from millstream.errors import LoaderError
from millstream.loaders.answers import answers_of, check_choices, check_length
from millstream.loaders.arguments import refuse_unknown
from millstream.loaders.chat_keywords import ChatKeywords, chat_keywords, chat_settings
from millstream.loaders.delivery import Delivery
from millstream.loaders.explain import origins_of
from millstream.loaders.fillers import RingFiller
from millstream.loaders.growing import (
    BackgroundPrepare,
    GrowingStore,
    RawSettings,
    ReadingKeywords,
    cached_store,
    is_raw,
)
from millstream.loaders.loader import DataLoader
from millstream.loaders.lost_data import chat_recipe, longest_chat
from millstream.loaders.media import MediaRows, media_of_files, media_of_store
from millstream.loaders.rows import (
    Answers,
    Isolation,
    PadTo,
    RowShape,
    RowSource,
    grouped,
    id_limit,
    one_group,
    pad_multiple,
    padding_id,
    row_length,
)
from millstream.loaders.runs import StoreRun
from millstream.loaders.settings import LoaderSettings, SharedKeywords, check_choice, positive, resolve
from millstream.loaders.show import show_document, show_step
from millstream.order import Share, source_key
from millstream.preparation import Mixing, OnBad
from millstream.stats import Shown
from millstream.store import WEIGHTED, TokenStore
from millstream.tokens import Tokenizer, check_tokenizer, find_tokenizer, load_tokenizer


class ConversationKeywords(ChatKeywords, SharedKeywords, total=False):
    """What says how conversations become tokens, and what every loader takes."""


class ConversationDataLoader(DataLoader[TrainingBatch]):
    """Conversations, each token with its weight in the loss; one in a row, or packed.

    Rows of preferences, judged answers (KTO) and judged steps are detected by their fields. Their batches have
    fields of their own: `batch.chosen`, `batch.rejected`; `batch["label"]`, `batch.kl`
    (docs/reference/conversations.md).

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
        path: Files of conversations (JSON lines or arrays, Parquet, Arrow), a data set of Hugging Face or a list of
            dicts, which are tokenised into the cache; or a store that `prepare(kind="chat")` made.
        tokenizer: What `load_tokenizer` takes; a store has its own.
        max_length: The most tokens of a row; by default the model's, or 2048.
        packing: Several conversations in a row: each sees only itself, by `position_ids` and `cu_seqlens`.
        isolation: Of packed rows. "varlen": as above, for flash attention and its kin; "block_mask": `attention_mask`
            is the dense mask; "none": conversations see each other, as if they were one. `check_isolation` tries it.
        pad_to: Rows are as long as the "longest" of their batch (default), or all of "max_length" (packed rows).
        pad_to_multiple_of: Rows of the longest are made longer, to a multiple of this.
        group_by_length: Rows of about one length share a batch, which saves padding.
        max_tokens: A batch has as many rows of about one length as fit into so many places, padding too; then there is
            no batch_size.
        loss: The mean that the batch's denominators are for: over "token"s or over "sequence"s.
        accumulation: Steps that make one update of the model; the denominators count all of them, on all ranks.
        name: Of the source; part of its key, so two sources of one seed have different orders.
        pad_id: What padding is filled with; by default the tokenizer's or the model's, else 0.
        recipe: Steps that clean and filter raw rows, as `prepare` takes them.
        on_bad: What becomes of rows that cannot be used: "error", "skip" or "quarantine".
        reading: How raw files are found, as `prepare` takes it.
        streaming: Raw conversations train while they are tokenised, with or without it; a store has nothing to stream.
        keywords: How conversations become tokens (docs/reference/keywords.md): chat_template, format, columns, roles,
            train, train_reasoning, train_tool_calls, mask_empty_think, truncation, untrained, boundary, trust_content,
            strict, add_control_tokens, variant, history_reasoning, date, …; and the keywords of every loader.
    """

    kind = "conversation"
    _run: StoreRun
    _filler: RingFiller
    _delivery: Delivery

    def __init__(
        self,
        path: Any,
        *,
        tokenizer: Any = None,
        max_length: int | None = None,
        packing: bool = False,
        isolation: Isolation = "varlen",
        pad_to: PadTo | None = None,
        pad_to_multiple_of: int = 1,
        group_by_length: bool = False,
        max_tokens: int | None = None,
        loss: EngineMeanOf = "token",
        accumulation: int = 1,
        name: str = "data",
        pad_id: int | None = None,
        recipe: Any = None,
        on_bad: OnBad = "error",
        reading: ReadingKeywords | None = None,
        streaming: bool = False,
        **keywords: Unpack[ConversationKeywords],
    ) -> None:
        chat, shared = _parted(keywords)
        settings = resolve(shared if max_tokens is None else one_group(shared))
        store = None if is_raw(path) else path if isinstance(path, TokenStore) else TokenStore(path)
        made_for = None if store is None else longest_chat(store)
        length = row_length(made_for if max_length is None else max_length, None, settings, "max_length")
        check_choice("loss", loss, get_args(EngineMeanOf))
        check_choice("isolation", isolation, get_args(Isolation))
        shape = RowShape(length, "packed", isolation=isolation) if packing else RowShape(length, "row")
        multiple = pad_multiple(pad_to or ("max_length" if packing else "longest"), pad_to_multiple_of, length)
        shape = grouped(replace(shape, pad_multiple=multiple), max_tokens, by_length=group_by_length)
        raw = RawSettings(recipe, on_bad, reading=dict(reading or {}))
        if store is not None and streaming:
            raise LoaderError(f"{store.path}: these are tokens, not raw files", hint="leave out streaming=True")
        if store is None:
            source = _raw_source(path, tokenizer, raw, chat_settings(chat, tokenizer, length), settings)
        else:
            asked = [*chat, *([] if raw.untouched else ["recipe, on_bad, reading"])]
            source = _store_source(store, tokenizer, asked, source_key(settings.seed, f"{name}\0packing"), settings)
            check_length(source.store, source.answers, length)
        with source.stopped_on_error():
            if source.answers == "kto" and pad_to is None:
                shape = replace(shape, pad_multiple=0)
            if source.answers is not None:
                check_choices(source.answers, shape, loss=loss, labels=shared.get("labels"))
            padding = padding_id(pad_id, source.tokenizer, settings)
            shape = replace(shape, pad_id=padding, answers=source.answers)
            self.isolation = isolation if packing else None
            self.tokenizer = source.tokenizer
            """The tokenizer, with the control tokens that were added to it."""
            self.loss = LossMean(loss, positive("accumulation", accumulation), alike=source.answers == "stepwise")
            self._media = source.media
            member, growing = partial(source.member, shape), None
            if source.growth is None:
                first, complete = member(source.store, True), True
            else:
                growing = GrowingStore(name, source.growth, member)
                first, complete = growing.more()
            run = StoreRun(
                self.kind,
                {name: first},
                shape,
                settings,
                loss=self.loss,
                one_source=True,
                growing=[] if complete or growing is None else [growing],
            )
            media = None if source.media is None else partial(_add_media, source.media, run)
            delivery = Delivery.of_stores(run, complete=media)
            super().__init__(run, RingFiller(run, delivery.id_bytes), delivery, settings)
            self.shape = shape
            run.tell_losses()

    @property
    def member(self) -> RowSource:
        """This loader's part in a mixture, which waits until it is made."""
        self._run.finish()
        return next(iter(self._run.members.values()))

    @property
    def store(self) -> TokenStore:
        """The store that rows come from, as far as it is made."""
        return next(iter(self._run.members.values())).store

    def wait(self) -> None:
        """Wait until all rows are made; only what looks ahead needs it."""
        self._run.finish()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({next(iter(self._run.members))}: {len(self.store)} tokens; "
            f"rows of {self.shape.length}, step {self.step})"
        )

    @property
    def keeps_media(self) -> bool:
        """Whether batches name the pictures, films and sounds of their rows."""
        return self._media is not None

    def check_isolation(self, model: Any, *, tolerance: float | None = None) -> float:
        """Run conversations of the next batch through a torch model, packed and one by one, and compare the logits.

        Returns the largest difference, or raises LoaderError where one conversation changes another. The run does not
        move.
        """
        if self.isolation in (None, "none"):
            how = "no packing" if self.isolation is None else "isolation='none'"
            hint = "pass packing=True and isolation='varlen' or 'block_mask'"
            raise LoaderError(f"there is nothing to check: this loader has {how}", hint=hint)
        with self._locks.asking:
            batch = self._delivery.batch(self._filler.peek()).copy()
            self._handover.ledger.forget()  # it is delivered later
        return check_isolation(model, batch, tolerance=tolerance)

    def show(self, row: int = 0, step: int | None = None) -> Shown:
        """Show a conversation of the store, or with `step` a row of this rank's batch: decoded, what is learned marked.

        >>> from millstream import BPETokenizer
        >>> from millstream.loaders.pretrain import example_cache
        >>> chats = [{"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}]
        >>> how = {"chat_template": "chatml", "add_control_tokens": True, "cache_dir": example_cache()}
        >>> tokenizer = BPETokenizer.train(["2+2? 4"], vocab_size=260)
        >>> with ConversationDataLoader(chats, tokenizer=tokenizer, framework="numpy", **how) as loader:
        ...     loader.show(0)
        ══ conversation 0 (rows:1)  26 tokens, 2 trained (7.7 %)
        <|im_start|>user
        2+2?<|im_end|>
        <|im_start|>assistant
        ⟦4<|im_end|>⟧
        <BLANKLINE>
        """
        if step is None:
            return show_document(self.member, row)
        return show_step(self._run.members, self.explain(step), step, row)


def _add_media(media: MediaRows, run: StoreRun, batch: TrainingBatch, step: int) -> TrainingBatch:
    """Name the pictures, films and sounds of the rows of a step."""
    store = next(iter(run.members.values())).store
    batch.metadata["media"] = media.of(store, origins_of(run.rows(step)), np.asarray(batch.input_ids))
    return batch


@dataclass(frozen=True)
class _Conversations:
    """Where conversations come from: a store, which may still be made, and how it becomes rows."""

    store: TokenStore
    tokenizer: Tokenizer | None
    member: Callable[..., RowSource]
    """(shape, store, whether it is complete) -> the store's part in the run."""
    growth: BackgroundPrepare | None = None
    answers: Answers | None = None
    """What rows are, if they are answers."""
    media: MediaRows | None = None
    """What finds pictures, films and sounds, if they are kept."""

    @contextmanager
    def stopped_on_error(self) -> Iterator[None]:
        """Make no more rows if the loader does not come to be."""
        try:
            yield
        except BaseException:
            if self.growth is not None:
                self.growth.close()
            raise


def _raw_source(
    path: Any, tokenizer: Any, raw: RawSettings, chat: ChatSettings, settings: LoaderSettings
) -> _Conversations:
    """Conversations that are tokenised into the cache, by one process, while all train on what is there already."""
    if tokenizer is None:
        raise LoaderError("conversations need a tokenizer", hint="pass tokenizer='gpt2', a file or an object")
    loaded = load_tokenizer(tokenizer)
    mixing = Mixing(None if settings.shuffle == "none" else settings.seed)
    cached = cached_store(path, loaded, raw, settings, chat=chat, mixing=mixing)
    decided = cached.making.chat
    assert isinstance(decided, DecidedChat)
    own = decided.encoder.tokenizer

    def member(shape: RowShape, store: TokenStore, complete: bool) -> RowSource:  # noqa: FBT001 - as it was found
        following = RowSource.following(store, shape, settings.shuffle, cached.output.name, complete=complete)
        return replace(following, id_limit=id_limit(store, own, settings), tokenizer=own)

    growth = None if cached.output.exists() else BackgroundPrepare(cached.output, cached.make, cached.sources)
    store = TokenStore(cached.output) if growth is None else growth.wait(0)[0]
    media = media_of_files(cached.found.files, cached.making.reading, decided)
    return _Conversations(store, own, member, growth, answers_of(decided.settings.kind), media)


def _store_source(
    store: TokenStore, tokenizer: Any, asked: list[str], key: int, settings: LoaderSettings
) -> _Conversations:
    """Conversations of a store: how they became tokens was decided when it was made."""
    if store.dtype != WEIGHTED:
        raise LoaderError(
            f"{store.path}: its tokens have no weights, so what is to be learned of them is not known",
            hint="prepare the conversations with kind='chat'; a corpus of texts is for PretrainDataLoader",
        )
    if asked:
        raise LoaderError(
            f"{store.path}: {', '.join(asked)} are about raw conversations, and these are tokens",
            hint="leave them out, or pass the raw files and their tokenizer",
        )
    given = None if tokenizer is None else load_tokenizer(tokenizer)
    if given is not None:
        check_tokenizer(given, str(store.path), store.manifest.get("tokenizer"))
    limit = id_limit(store, given, settings)

    def member(shape: RowShape, opened: TokenStore, _: bool) -> RowSource:  # noqa: FBT001 - a store is complete
        if shape.fill != "alone":
            return replace(RowSource.packed(opened, shape, settings.shuffle, key), id_limit=limit, tokenizer=given)
        return RowSource(opened, Share(opened.documents, settings.shuffle, unit=shape.unit), shape, limit, given)

    own = given or find_tokenizer(store.path, store.manifest.get("tokenizer"))
    recipe = chat_recipe(store)
    return _Conversations(
        store, own, member, answers=answers_of(recipe.get("kind")), media=media_of_store(store, recipe, own)
    )


def _parted(keywords: ConversationKeywords) -> tuple[ChatKeywords, SharedKeywords]:
    own = ConversationDataLoader.__init__.__kwdefaults__ or ()
    refuse_unknown(keywords, own, ConversationKeywords.__annotations__)
    shared = {key: value for key, value in keywords.items() if key not in ChatKeywords.__annotations__}
    return chat_keywords(keywords), cast(SharedKeywords, shared)
