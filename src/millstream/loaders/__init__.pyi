from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.loaders.arguments import refuse_unknown as refuse_unknown
    from millstream.loaders.chat_keywords import ChatKeywords as ChatKeywords
    from millstream.loaders.chat_keywords import prepared_chat as prepared_chat
    from millstream.loaders.conversation import ConversationDataLoader as ConversationDataLoader
    from millstream.loaders.detect import are_games as are_games
    from millstream.loaders.detect import are_rollouts as are_rollouts
    from millstream.loaders.detect import journal_of as journal_of
    from millstream.loaders.detect import kind_of as kind_of
    from millstream.loaders.detect import refuse_journal as refuse_journal
    from millstream.loaders.detect import refuse_nothing as refuse_nothing
    from millstream.loaders.explain import Source as Source
    from millstream.loaders.explain import StoreSource as StoreSource
    from millstream.loaders.explain import StreamRows as StreamRows
    from millstream.loaders.explain import origins_of as origins_of
    from millstream.loaders.explain import steps_of as steps_of
    from millstream.loaders.handover import Agreement as Agreement
    from millstream.loaders.hooks import PerRow as PerRow
    from millstream.loaders.hooks import per_row as per_row
    from millstream.loaders.hooks import transform_batch as transform_batch
    from millstream.loaders.lint_data import lint as lint
    from millstream.loaders.loader import DataLoader as DataLoader
    from millstream.loaders.lost_data import named_losses as named_losses
    from millstream.loaders.lost_data import store_losses as store_losses
    from millstream.loaders.lost_data import warn_of_losses as warn_of_losses
    from millstream.loaders.lost_data import warn_of_odd_group as warn_of_odd_group
    from millstream.loaders.mixed import MixedDataLoader as MixedDataLoader
    from millstream.loaders.objectives import corrupt_spans as corrupt_spans
    from millstream.loaders.objectives import fill_in_the_middle as fill_in_the_middle
    from millstream.loaders.objectives import mask_tokens as mask_tokens
    from millstream.loaders.pretrain import PretrainDataLoader as PretrainDataLoader
    from millstream.loaders.pretrain import example_loader as example_loader
    from millstream.loaders.rollout import RolloutDataLoader as RolloutDataLoader
    from millstream.loaders.rows import USUAL_ROW as USUAL_ROW
    from millstream.loaders.rows import RowOrigin as RowOrigin
    from millstream.loaders.rows import RowShape as RowShape
    from millstream.loaders.rows import RowSource as RowSource
    from millstream.loaders.rows import Span as Span
    from millstream.loaders.rows import padding_id as padding_id
    from millstream.loaders.rows import row_facts as row_facts
    from millstream.loaders.self_play import SelfPlayDataLoader as SelfPlayDataLoader
    from millstream.loaders.self_play import example_self_play as example_self_play
    from millstream.loaders.settings import LoaderSettings as LoaderSettings
    from millstream.loaders.settings import SharedKeywords as SharedKeywords
    from millstream.loaders.settings import check_choice as check_choice
    from millstream.loaders.settings import parse_bytes as parse_bytes
    from millstream.loaders.settings import positive as positive
    from millstream.loaders.settings import resolve as resolve
    from millstream.loaders.settings import whole as whole
    from millstream.loaders.show import show_chat as show_chat
    from millstream.loaders.state import PHASES_KIND as PHASES_KIND
    from millstream.loaders.state import check_data as check_data
    from millstream.loaders.state import check_place as check_place
    from millstream.loaders.state import check_samples as check_samples
    from millstream.loaders.state import check_source as check_source
    from millstream.loaders.state import check_stream_order as check_stream_order
    from millstream.loaders.state import check_unit as check_unit
    from millstream.loaders.state import dump_run as dump_run
    from millstream.loaders.state import load_run as load_run
    from millstream.loaders.state import merge_states as merge_states

__all__ = [
    "PHASES_KIND",
    "USUAL_ROW",
    "Agreement",
    "ChatKeywords",
    "ConversationDataLoader",
    "DataLoader",
    "LoaderSettings",
    "MixedDataLoader",
    "PerRow",
    "PretrainDataLoader",
    "RolloutDataLoader",
    "RowOrigin",
    "RowShape",
    "RowSource",
    "SelfPlayDataLoader",
    "SharedKeywords",
    "Source",
    "Span",
    "StoreSource",
    "StreamRows",
    "are_games",
    "are_rollouts",
    "check_choice",
    "check_data",
    "check_place",
    "check_samples",
    "check_source",
    "check_stream_order",
    "check_unit",
    "corrupt_spans",
    "dump_run",
    "example_loader",
    "example_self_play",
    "fill_in_the_middle",
    "journal_of",
    "kind_of",
    "lint",
    "load_run",
    "mask_tokens",
    "merge_states",
    "named_losses",
    "origins_of",
    "padding_id",
    "parse_bytes",
    "per_row",
    "positive",
    "prepared_chat",
    "refuse_journal",
    "refuse_nothing",
    "refuse_unknown",
    "resolve",
    "row_facts",
    "show_chat",
    "steps_of",
    "store_losses",
    "transform_batch",
    "warn_of_losses",
    "warn_of_odd_group",
    "whole",
]
