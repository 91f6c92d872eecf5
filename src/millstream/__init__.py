"""Millstream: training data at the speed of memory, in an order that can be reproduced, resumed and explained.

    sources ─► records ─► tokens ─► parts ─► store ─► order ─► batches ─► loaders ─► tensors
     bytes      texts      ids       made     mmap     which     rows in    state,     numpy, torch,
     in files   worth      of each   once,    files    row at    buffers    origins    jax, mlx
                keeping    text      cached            which     from a
                                                       position  pool

`prepare` turns raw files, texts or chats, into a store of tokens. `PretrainDataLoader` turns texts into batches,
`ConversationDataLoader` chats, whose ids have weights; both take stores and raw files. `MixedDataLoader` mixes.
`RolloutDataLoader` takes what engines sampled, `SelfPlayDataLoader` games, both also while they come in.
"""

import logging
from typing import TYPE_CHECKING

from millstream.errors import (
    BatchError,
    BudgetError,
    BusyError,
    ClosedError,
    CompressionError,
    FingerprintError,
    LoaderError,
    LossWarning,
    MillstreamError,
    MissingExtra,
    OrderError,
    QueueClosed,
    RecipeError,
    RecordError,
    SourceError,
    StageError,
    StateError,
    Stopped,
    StoreError,
    TemplateError,
    TokenizerError,
    UnknownLength,
    WaitTimeout,
    WaitWarning,
)
from millstream.lazy import lazy

if TYPE_CHECKING:
    from millstream.advantages import AdvantageSettings, compute_advantages
    from millstream.api import PrepareReport, load, prepare
    from millstream.batches import (
        BatchPool,
        BatchQueue,
        CompletionTracker,
        SelfPlayBatch,
        Topology,
        TrainingBatch,
        check_isolation,
        distribute,
        register_balancer,
    )
    from millstream.chats import ChatTemplate
    from millstream.feeds import MemoryFeed, RolloutSource, open_feed, open_source
    from millstream.live import (
        ChunkFilter,
        ChunkReader,
        ChunkRescorer,
        ChunkSet,
        ChunkSourceFeed,
        ChunkUnpacker,
        Discovery,
        FrameShuffler,
        StreamShuffler,
        TensorGenerator,
    )
    from millstream.loaders import (
        ConversationDataLoader,
        DataLoader,
        MixedDataLoader,
        PretrainDataLoader,
        RolloutDataLoader,
        RowOrigin,
        SelfPlayDataLoader,
        Span,
        corrupt_spans,
        fill_in_the_middle,
        mask_tokens,
        merge_states,
        per_row,
    )
    from millstream.loaders.looking import lint
    from millstream.records import DataProcessor, Recipe, Reject, register_processor
    from millstream.rollouts import Rollout
    from millstream.sources import Record, RecordFormat, register_format
    from millstream.stages import Pipeline, Queue, Stage
    from millstream.store import TokenStore, TokenStoreWriter
    from millstream.tokens import BPETokenizer, CharTokenizer, load_tokenizer
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "advantages": "AdvantageSettings compute_advantages",
            "api": "PrepareReport load prepare",
            "batches": "BatchPool BatchQueue CompletionTracker SelfPlayBatch Topology TrainingBatch check_isolation "
            "distribute register_balancer",
            "chats": "ChatTemplate",
            "feeds": "MemoryFeed RolloutSource open_feed open_source",
            "live": "ChunkFilter ChunkReader ChunkRescorer ChunkSet ChunkSourceFeed ChunkUnpacker Discovery "
            "FrameShuffler StreamShuffler TensorGenerator",
            "loaders": "ConversationDataLoader DataLoader MixedDataLoader PretrainDataLoader RolloutDataLoader "
            "RowOrigin SelfPlayDataLoader Span corrupt_spans fill_in_the_middle mask_tokens merge_states "
            "per_row",
            "loaders.looking": "lint",
            "records": "DataProcessor Recipe Reject register_processor",
            "rollouts": "Rollout",
            "sources": "Record RecordFormat register_format",
            "stages": "Pipeline Queue Stage",
            "store": "TokenStore TokenStoreWriter",
            "tokens": "BPETokenizer CharTokenizer load_tokenizer",
        },
    )

__version__ = "0.1.0"
logging.getLogger("millstream").addHandler(logging.NullHandler())

__all__ = [
    "AdvantageSettings",
    "BPETokenizer",
    "BatchError",
    "BatchPool",
    "BatchQueue",
    "BudgetError",
    "BusyError",
    "CharTokenizer",
    "ChatTemplate",
    "ChunkFilter",
    "ChunkReader",
    "ChunkRescorer",
    "ChunkSet",
    "ChunkSourceFeed",
    "ChunkUnpacker",
    "ClosedError",
    "CompletionTracker",
    "CompressionError",
    "ConversationDataLoader",
    "DataLoader",
    "DataProcessor",
    "Discovery",
    "FingerprintError",
    "FrameShuffler",
    "LoaderError",
    "LossWarning",
    "MemoryFeed",
    "MillstreamError",
    "MissingExtra",
    "MixedDataLoader",
    "OrderError",
    "Pipeline",
    "PrepareReport",
    "PretrainDataLoader",
    "Queue",
    "QueueClosed",
    "Recipe",
    "RecipeError",
    "Record",
    "RecordError",
    "RecordFormat",
    "Reject",
    "Rollout",
    "RolloutDataLoader",
    "RolloutSource",
    "RowOrigin",
    "SelfPlayBatch",
    "SelfPlayDataLoader",
    "SourceError",
    "Span",
    "Stage",
    "StageError",
    "StateError",
    "Stopped",
    "StoreError",
    "StreamShuffler",
    "TemplateError",
    "TensorGenerator",
    "TokenStore",
    "TokenStoreWriter",
    "TokenizerError",
    "Topology",
    "TrainingBatch",
    "UnknownLength",
    "WaitTimeout",
    "WaitWarning",
    "check_isolation",
    "compute_advantages",
    "corrupt_spans",
    "distribute",
    "fill_in_the_middle",
    "lint",
    "load",
    "load_tokenizer",
    "mask_tokens",
    "merge_states",
    "open_feed",
    "open_source",
    "per_row",
    "prepare",
    "register_balancer",
    "register_format",
    "register_processor",
]
