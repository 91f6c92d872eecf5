from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.loaders.agreement import Agreement as Agreement
    from millstream.loaders.chat_keywords import ChatKeywords as ChatKeywords
    from millstream.loaders.chat_keywords import prepared_chat as prepared_chat
    from millstream.loaders.conversation import ConversationDataLoader as ConversationDataLoader
    from millstream.loaders.corruption import corrupt_spans as corrupt_spans
    from millstream.loaders.explain import Source as Source
    from millstream.loaders.explain import StoreSource as StoreSource
    from millstream.loaders.explain import StreamRows as StreamRows
    from millstream.loaders.explain import origins_of as origins_of
    from millstream.loaders.explain import steps_of as steps_of
    from millstream.loaders.feed_explain import Recorded as Recorded
    from millstream.loaders.feed_explain import RecordedRun as RecordedRun
    from millstream.loaders.feed_settings import FEED_SCHEMES as FEED_SCHEMES
    from millstream.loaders.feed_steps import FeedOrder as FeedOrder
    from millstream.loaders.feed_steps import FeedPhase as FeedPhase
    from millstream.loaders.feed_steps import FeedPlace as FeedPlace
    from millstream.loaders.feed_steps import RolloutBatch as RolloutBatch
    from millstream.loaders.growth import GrowingSource as GrowingSource
    from millstream.loaders.growth import stream_of as stream_of
    from millstream.loaders.infilling import fill_in_the_middle as fill_in_the_middle
    from millstream.loaders.loader import DataLoader as DataLoader
    from millstream.loaders.looking import lint as lint
    from millstream.loaders.looking import show_chat as show_chat
    from millstream.loaders.loss import LossMean as LossMean
    from millstream.loaders.losses import store_losses as store_losses
    from millstream.loaders.losses import tell_losses as tell_losses
    from millstream.loaders.losses import tell_odd_group as tell_odd_group
    from millstream.loaders.masking import mask_tokens as mask_tokens
    from millstream.loaders.member import Member as Member
    from millstream.loaders.member import RowShape as RowShape
    from millstream.loaders.mixed import MixedDataLoader as MixedDataLoader
    from millstream.loaders.origin import RowOrigin as RowOrigin
    from millstream.loaders.origin import Span as Span
    from millstream.loaders.phases import PHASES_KIND as PHASES_KIND
    from millstream.loaders.phases import dump_run as dump_run
    from millstream.loaders.phases import load_run as load_run
    from millstream.loaders.pretrain import PretrainDataLoader as PretrainDataLoader
    from millstream.loaders.pretrain import example_loader as example_loader
    from millstream.loaders.raw import CuttingKeywords as CuttingKeywords
    from millstream.loaders.raw import RawSettings as RawSettings
    from millstream.loaders.raw import is_raw as is_raw
    from millstream.loaders.rollout import RolloutDataLoader as RolloutDataLoader
    from millstream.loaders.rollout_gathering import RolloutSet as RolloutSet
    from millstream.loaders.rollout_settings import StepSettings as StepSettings
    from millstream.loaders.rollout_steps import Dealer as Dealer
    from millstream.loaders.rollout_steps import DealtStep as DealtStep
    from millstream.loaders.rollout_steps import MicroBatches as MicroBatches
    from millstream.loaders.rollout_steps import StepSamples as StepSamples
    from millstream.loaders.rollout_task import RolloutTask as RolloutTask
    from millstream.loaders.rows import USUAL_ROW as USUAL_ROW
    from millstream.loaders.self_play import SelfPlayDataLoader as SelfPlayDataLoader
    from millstream.loaders.self_play import example_self_play as example_self_play
    from millstream.loaders.settings import LoaderSettings as LoaderSettings
    from millstream.loaders.settings import parse_bytes as parse_bytes
    from millstream.loaders.settings import positive as positive
    from millstream.loaders.settings import whole as whole
    from millstream.loaders.state import check_data as check_data
    from millstream.loaders.state import check_place as check_place
    from millstream.loaders.state import check_samples as check_samples
    from millstream.loaders.state import check_source as check_source
    from millstream.loaders.state import check_unit as check_unit
    from millstream.loaders.state import merge_states as merge_states
    from millstream.loaders.told import are_games as are_games
    from millstream.loaders.told import are_rollouts as are_rollouts
    from millstream.loaders.told import journal_of as journal_of
    from millstream.loaders.told import kind_of as kind_of
    from millstream.loaders.told import refuse_journal as refuse_journal
    from millstream.loaders.told import refuse_nothing as refuse_nothing
    from millstream.loaders.transforms import PerRow as PerRow
    from millstream.loaders.transforms import per_row as per_row
    from millstream.loaders.transforms import transform_batch as transform_batch

__all__ = [
    "FEED_SCHEMES",
    "PHASES_KIND",
    "USUAL_ROW",
    "Agreement",
    "ChatKeywords",
    "ConversationDataLoader",
    "CuttingKeywords",
    "DataLoader",
    "Dealer",
    "DealtStep",
    "FeedOrder",
    "FeedPhase",
    "FeedPlace",
    "GrowingSource",
    "LoaderSettings",
    "LossMean",
    "Member",
    "MicroBatches",
    "MixedDataLoader",
    "PerRow",
    "PretrainDataLoader",
    "RawSettings",
    "Recorded",
    "RecordedRun",
    "RolloutBatch",
    "RolloutDataLoader",
    "RolloutSet",
    "RolloutTask",
    "RowOrigin",
    "RowShape",
    "SelfPlayDataLoader",
    "Source",
    "Span",
    "StepSamples",
    "StepSettings",
    "StoreSource",
    "StreamRows",
    "are_games",
    "are_rollouts",
    "check_data",
    "check_place",
    "check_samples",
    "check_source",
    "check_unit",
    "corrupt_spans",
    "dump_run",
    "example_loader",
    "example_self_play",
    "fill_in_the_middle",
    "is_raw",
    "journal_of",
    "kind_of",
    "lint",
    "load_run",
    "mask_tokens",
    "merge_states",
    "origins_of",
    "parse_bytes",
    "per_row",
    "positive",
    "prepared_chat",
    "refuse_journal",
    "refuse_nothing",
    "show_chat",
    "steps_of",
    "store_losses",
    "stream_of",
    "tell_losses",
    "tell_odd_group",
    "transform_batch",
    "whole",
]
