"""Order + store -> an iterator with state: the loaders."""

from millstream.loaders.conversation import ConversationDataLoader
from millstream.loaders.corruption import corrupt_spans
from millstream.loaders.infilling import fill_in_the_middle
from millstream.loaders.loader import DataLoader
from millstream.loaders.masking import mask_tokens
from millstream.loaders.mixed import MixedDataLoader
from millstream.loaders.origin import RowOrigin, Span
from millstream.loaders.pretrain import PretrainDataLoader
from millstream.loaders.rollout import RolloutDataLoader
from millstream.loaders.self_play import SelfPlayDataLoader
from millstream.loaders.state import merge_states
from millstream.loaders.transforms import per_row

__all__ = [
    "ConversationDataLoader",
    "DataLoader",
    "MixedDataLoader",
    "PretrainDataLoader",
    "RolloutDataLoader",
    "RowOrigin",
    "SelfPlayDataLoader",
    "Span",
    "corrupt_spans",
    "fill_in_the_middle",
    "mask_tokens",
    "merge_states",
    "per_row",
]
