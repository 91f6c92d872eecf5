from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.advantages import AdvantageSettings as AdvantageSettings
    from millstream.advantages import compute_advantages as compute_advantages
    from millstream.api import PrepareReport as PrepareReport
    from millstream.api import load as load
    from millstream.api import prepare as prepare
    from millstream.batches import BatchPool as BatchPool
    from millstream.batches import BatchQueue as BatchQueue
    from millstream.batches import CompletionTracker as CompletionTracker
    from millstream.batches import SelfPlayBatch as SelfPlayBatch
    from millstream.batches import Topology as Topology
    from millstream.batches import TrainingBatch as TrainingBatch
    from millstream.batches import check_isolation as check_isolation
    from millstream.batches import distribute as distribute
    from millstream.batches import register_balancer as register_balancer
    from millstream.chats.templates import ChatTemplate as ChatTemplate
    from millstream.errors import BatchError as BatchError
    from millstream.errors import BudgetError as BudgetError
    from millstream.errors import BusyError as BusyError
    from millstream.errors import ClosedError as ClosedError
    from millstream.errors import CompressionError as CompressionError
    from millstream.errors import FingerprintError as FingerprintError
    from millstream.errors import LoaderError as LoaderError
    from millstream.errors import LossWarning as LossWarning
    from millstream.errors import MillstreamError as MillstreamError
    from millstream.errors import MissingExtra as MissingExtra
    from millstream.errors import OrderError as OrderError
    from millstream.errors import QueueClosed as QueueClosed
    from millstream.errors import RecipeError as RecipeError
    from millstream.errors import RecordError as RecordError
    from millstream.errors import SourceError as SourceError
    from millstream.errors import StageError as StageError
    from millstream.errors import StateError as StateError
    from millstream.errors import Stopped as Stopped
    from millstream.errors import StoreError as StoreError
    from millstream.errors import TemplateError as TemplateError
    from millstream.errors import TokenizerError as TokenizerError
    from millstream.errors import UnknownLength as UnknownLength
    from millstream.errors import WaitTimeout as WaitTimeout
    from millstream.errors import WaitWarning as WaitWarning
    from millstream.feeds import MemoryFeed as MemoryFeed
    from millstream.feeds import RolloutSource as RolloutSource
    from millstream.feeds import open_feed as open_feed
    from millstream.feeds import open_source as open_source
    from millstream.loaders import ConversationDataLoader as ConversationDataLoader
    from millstream.loaders import DataLoader as DataLoader
    from millstream.loaders import MixedDataLoader as MixedDataLoader
    from millstream.loaders import PretrainDataLoader as PretrainDataLoader
    from millstream.loaders import RolloutDataLoader as RolloutDataLoader
    from millstream.loaders import RowOrigin as RowOrigin
    from millstream.loaders import SelfPlayDataLoader as SelfPlayDataLoader
    from millstream.loaders import Span as Span
    from millstream.loaders import corrupt_spans as corrupt_spans
    from millstream.loaders import fill_in_the_middle as fill_in_the_middle
    from millstream.loaders import lint as lint
    from millstream.loaders import mask_tokens as mask_tokens
    from millstream.loaders import merge_states as merge_states
    from millstream.loaders import per_row as per_row
    from millstream.records import DataProcessor as DataProcessor
    from millstream.records import Recipe as Recipe
    from millstream.records import Reject as Reject
    from millstream.records import register_processor as register_processor
    from millstream.rollouts import Rollout as Rollout
    from millstream.selfplay.chunk_feed import ChunkFilter as ChunkFilter
    from millstream.selfplay.chunk_feed import ChunkReader as ChunkReader
    from millstream.selfplay.chunk_feed import ChunkRescorer as ChunkRescorer
    from millstream.selfplay.chunk_feed import ChunkSet as ChunkSet
    from millstream.selfplay.chunk_feed import ChunkSourceFeed as ChunkSourceFeed
    from millstream.selfplay.chunk_feed import ChunkUnpacker as ChunkUnpacker
    from millstream.selfplay.chunk_feed import Discovery as Discovery
    from millstream.selfplay.chunk_feed import FrameShuffler as FrameShuffler
    from millstream.selfplay.chunk_feed import StreamShuffler as StreamShuffler
    from millstream.selfplay.chunk_feed import TensorGenerator as TensorGenerator
    from millstream.sources import Record as Record
    from millstream.sources import RecordFormat as RecordFormat
    from millstream.sources import register_format as register_format
    from millstream.stages import Pipeline as Pipeline
    from millstream.stages import Queue as Queue
    from millstream.stages import Stage as Stage
    from millstream.store import TokenStore as TokenStore
    from millstream.store import TokenStoreWriter as TokenStoreWriter
    from millstream.tokens import BPETokenizer as BPETokenizer
    from millstream.tokens import CharTokenizer as CharTokenizer
    from millstream.tokens import load_tokenizer as load_tokenizer

__version__: str

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
