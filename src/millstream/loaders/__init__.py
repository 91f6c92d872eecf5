"""Order + store -> an iterator with state: the loaders."""

from millstream.loaders.conversation import ConversationDataLoader
from millstream.loaders.loader import DataLoader
from millstream.loaders.mixed import MixedDataLoader
from millstream.loaders.origin import RowOrigin, Span
from millstream.loaders.pretrain import PretrainDataLoader
from millstream.loaders.stream_state import merge_states
from millstream.loaders.transforms import per_row

__all__ = [
    "ConversationDataLoader",
    "DataLoader",
    "MixedDataLoader",
    "PretrainDataLoader",
    "RowOrigin",
    "Span",
    "merge_states",
    "per_row",
]
