"""Order + store -> an iterator with state: the loaders."""

from typing import TYPE_CHECKING

from millstream.lazy import lazy

if TYPE_CHECKING:
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
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "conversation": "ConversationDataLoader",
            "corruption": "corrupt_spans",
            "infilling": "fill_in_the_middle",
            "loader": "DataLoader",
            "masking": "mask_tokens",
            "mixed": "MixedDataLoader",
            "origin": "RowOrigin Span",
            "pretrain": "PretrainDataLoader",
            "rollout": "RolloutDataLoader",
            "self_play": "SelfPlayDataLoader",
            "state": "merge_states",
            "transforms": "per_row",
        },
    )

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
