from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.selfplay.admission import EVER as EVER
    from millstream.selfplay.admission import AdmissionPolicy as AdmissionPolicy
    from millstream.selfplay.admission import LivePolicy as LivePolicy
    from millstream.selfplay.delivered_state import DeliveredState as DeliveredState
    from millstream.selfplay.delivered_state import RecentSteps as RecentSteps
    from millstream.selfplay.delivered_state import StepSnapshot as StepSnapshot
    from millstream.selfplay.events import EVENTS_FORMAT as EVENTS_FORMAT
    from millstream.selfplay.events import Event as Event
    from millstream.selfplay.events import EventSource as EventSource
    from millstream.selfplay.events import Losses as Losses
    from millstream.selfplay.events import LostUse as LostUse
    from millstream.selfplay.events import apply as apply
    from millstream.selfplay.events import entered as entered
    from millstream.selfplay.events import grouped as grouped
    from millstream.selfplay.folder import Arrival as Arrival
    from millstream.selfplay.folder import FileFound as FileFound
    from millstream.selfplay.folder import FileRemoved as FileRemoved
    from millstream.selfplay.folder import Folder as Folder
    from millstream.selfplay.folder import ScanComplete as ScanComplete
    from millstream.selfplay.folder import sort_key as sort_key
    from millstream.selfplay.graph import GraphMaker as GraphMaker
    from millstream.selfplay.graph import SelfPlayGraph as SelfPlayGraph
    from millstream.selfplay.hanse import HanseSampling as HanseSampling
    from millstream.selfplay.hanse import HanseWeights as HanseWeights
    from millstream.selfplay.journal import JOURNAL as JOURNAL
    from millstream.selfplay.journal import START as START
    from millstream.selfplay.journal import RankRole as RankRole
    from millstream.selfplay.prefetch import TensorPrefetch as TensorPrefetch
    from millstream.selfplay.recipe import stages_of_recipes as stages_of_recipes
    from millstream.selfplay.resume import AdmissionPolicies as AdmissionPolicies
    from millstream.selfplay.resume import Replay as Replay
    from millstream.selfplay.resume import Takeover as Takeover
    from millstream.selfplay.row_log import RowLog as RowLog
    from millstream.selfplay.row_log import StepRows as StepRows
    from millstream.selfplay.run_files import RunFiles as RunFiles
    from millstream.selfplay.run_files import SourceHistory as SourceHistory
    from millstream.selfplay.sampling import ALL_POSITIONS as ALL_POSITIONS
    from millstream.selfplay.sampling import PositionSampling as PositionSampling
    from millstream.selfplay.sampling import PositionWeights as PositionWeights
    from millstream.selfplay.settings import MemoryShares as MemoryShares
    from millstream.selfplay.settings import SelfPlayTask as SelfPlayTask
    from millstream.selfplay.spans import Spans as Spans
    from millstream.selfplay.state import KIND as KIND
    from millstream.selfplay.state import States as States
    from millstream.selfplay.status import EpochLength as EpochLength
    from millstream.selfplay.status import nothing_to_train_on as nothing_to_train_on
    from millstream.selfplay.window import Acceptance as Acceptance
    from millstream.selfplay.window import Window as Window
    from millstream.selfplay.window import WindowEntry as WindowEntry

__all__ = [
    "ALL_POSITIONS",
    "EVENTS_FORMAT",
    "EVER",
    "JOURNAL",
    "KIND",
    "START",
    "Acceptance",
    "AdmissionPolicies",
    "AdmissionPolicy",
    "Arrival",
    "DeliveredState",
    "EpochLength",
    "Event",
    "EventSource",
    "FileFound",
    "FileRemoved",
    "Folder",
    "GraphMaker",
    "HanseSampling",
    "HanseWeights",
    "LivePolicy",
    "Losses",
    "LostUse",
    "MemoryShares",
    "PositionSampling",
    "PositionWeights",
    "RankRole",
    "RecentSteps",
    "Replay",
    "RowLog",
    "RunFiles",
    "ScanComplete",
    "SelfPlayGraph",
    "SelfPlayTask",
    "SourceHistory",
    "Spans",
    "States",
    "StepRows",
    "StepSnapshot",
    "Takeover",
    "TensorPrefetch",
    "Window",
    "WindowEntry",
    "apply",
    "entered",
    "grouped",
    "nothing_to_train_on",
    "sort_key",
    "stages_of_recipes",
]
