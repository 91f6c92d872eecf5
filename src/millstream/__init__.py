"""Millstream: training data at the speed of memory, in an order that can be reproduced, resumed and explained.

    sources ─► records ─► tokens ─► preparation ─► store ─► order ─► batches ─► loaders ─► tensors
     bytes      texts      ids       parts, made    mmap     which     rows in    state,     numpy, torch,
     in files   worth      of each   once and       files    row at    buffers    origins    jax, mlx
                keeping    text      cached                  which     from a
                                                             position  pool

`prepare` turns raw files, texts or chats, into a store of tokens. `PretrainDataLoader` turns texts into batches,
`ConversationDataLoader` chats, whose ids have weights; both take stores and raw files. `MixedDataLoader` mixes.
`RolloutDataLoader` takes what engines sampled, `SelfPlayDataLoader` games, both also while they come in.
"""

import logging

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "advantages": "AdvantageSettings compute_advantages",
        "api": "PrepareReport load prepare",
        "batches": "BatchPool BatchQueue CompletionTracker SelfPlayBatch Topology TrainingBatch check_isolation "
        "distribute register_balancer",
        "chats.templates": "ChatTemplate",
        "errors": "BatchError BudgetError BusyError ClosedError CompressionError FingerprintError LoaderError "
        "LossWarning MillstreamError MissingExtra OrderError QueueClosed RecipeError RecordError "
        "SourceError StageError StateError Stopped StoreError TemplateError TokenizerError UnknownLength "
        "WaitTimeout WaitWarning",
        "feeds": "MemoryFeed RolloutSource open_feed open_source",
        "loaders": "ConversationDataLoader DataLoader MixedDataLoader PretrainDataLoader RolloutDataLoader RowOrigin "
        "SelfPlayDataLoader Span corrupt_spans fill_in_the_middle lint mask_tokens merge_states per_row",
        "records": "DataProcessor Recipe Reject register_processor",
        "rollouts": "Rollout",
        "selfplay.chunk_feed": "ChunkFilter ChunkReader ChunkRescorer ChunkSet ChunkSourceFeed ChunkUnpacker "
        "Discovery FrameShuffler StreamShuffler TensorGenerator",
        "sources": "Record RecordFormat register_format",
        "stages": "Pipeline Queue Stage",
        "store": "TokenStore TokenStoreWriter",
        "tokens": "BPETokenizer CharTokenizer load_tokenizer",
    },
)

__version__ = "0.1.0"

logging.getLogger("millstream").addHandler(logging.NullHandler())
