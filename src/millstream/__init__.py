"""Millstream: training data at the speed of memory, in an order that can be reproduced, resumed and explained.

    sources ─► tokens ─► store ─► order ─► batches ─► loaders ─► tensors
     bytes      ids       mmap     which     rows in    state,     numpy, torch,
     in files             files    row at    buffers    origins    jax, mlx
                                   which     from a
                                   position  pool

`prepare` turns text into a store of tokens, `PretrainDataLoader` turns a store into batches, `MixedDataLoader` mixes.
"""

import logging

from millstream.api import PrepareReport, load, prepare
from millstream.batches import (
    BatchPool,
    BatchQueue,
    CompletionTracker,
    Topology,
    TrainingBatch,
    distribute,
    register_balancer,
)
from millstream.errors import (
    BatchError,
    BudgetError,
    ClosedError,
    FingerprintError,
    LoaderError,
    MillstreamError,
    MissingExtra,
    OrderError,
    SourceError,
    StateError,
    StoreError,
    TokenizerError,
    UnknownLength,
    WaitTimeout,
)
from millstream.loaders import DataLoader, MixedDataLoader, PretrainDataLoader, RowOrigin, Span, merge_states, per_row
from millstream.store import TokenStore, TokenStoreWriter
from millstream.tokens import BPETokenizer, CharTokenizer, load_tokenizer

__version__ = "0.1.0"
logging.getLogger("millstream").addHandler(logging.NullHandler())

__all__ = [
    "BPETokenizer",
    "BatchError",
    "BatchPool",
    "BatchQueue",
    "BudgetError",
    "CharTokenizer",
    "ClosedError",
    "CompletionTracker",
    "DataLoader",
    "FingerprintError",
    "LoaderError",
    "MillstreamError",
    "MissingExtra",
    "MixedDataLoader",
    "OrderError",
    "PrepareReport",
    "PretrainDataLoader",
    "RowOrigin",
    "SourceError",
    "Span",
    "StateError",
    "StoreError",
    "TokenStore",
    "TokenStoreWriter",
    "TokenizerError",
    "Topology",
    "TrainingBatch",
    "UnknownLength",
    "WaitTimeout",
    "distribute",
    "load",
    "load_tokenizer",
    "merge_states",
    "per_row",
    "prepare",
    "register_balancer",
]
