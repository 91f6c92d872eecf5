from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.live.arrivals import Arrival as Arrival
    from millstream.live.arrivals import Found as Found
    from millstream.live.arrivals import sort_key as sort_key
    from millstream.live.barren import Barren as Barren
    from millstream.live.chunk_filter import ChunkFilter as ChunkFilter
    from millstream.live.chunk_reader import ChunkReader as ChunkReader
    from millstream.live.chunk_rescorer import ChunkRescorer as ChunkRescorer
    from millstream.live.chunk_set import ChunkSet as ChunkSet
    from millstream.live.chunk_source_feed import ChunkSourceFeed as ChunkSourceFeed
    from millstream.live.chunk_source_feed import Partial as Partial
    from millstream.live.chunk_unpacker import ChunkUnpacker as ChunkUnpacker
    from millstream.live.discovery import Discovery as Discovery
    from millstream.live.entrance import AsItWas as AsItWas
    from millstream.live.entrance import AsTheyCome as AsTheyCome
    from millstream.live.entrance import AsWritten as AsWritten
    from millstream.live.entrance import Entrance as Entrance
    from millstream.live.events import CHANGES as CHANGES
    from millstream.live.events import EVENTS_FORMAT as EVENTS_FORMAT
    from millstream.live.events import Event as Event
    from millstream.live.events import entered as entered
    from millstream.live.events import unpacked as unpacked
    from millstream.live.frame_shuffler import GONE_FROM_RESERVOIR as GONE_FROM_RESERVOIR
    from millstream.live.frame_shuffler import FrameShuffler as FrameShuffler
    from millstream.live.frame_shuffler import Moves as Moves
    from millstream.live.frame_shuffler import Shuffled as Shuffled
    from millstream.live.frame_shuffler import joined as joined
    from millstream.live.game_stage import GameStage as GameStage
    from millstream.live.hanse import HanseSampling as HanseSampling
    from millstream.live.led import EVER as EVER
    from millstream.live.led import AsLed as AsLed
    from millstream.live.led import AtOnce as AtOnce
    from millstream.live.led import Leads as Leads
    from millstream.live.look import open_sources as open_sources
    from millstream.live.look import places_of as places_of
    from millstream.live.losses import Loss as Loss
    from millstream.live.losses import Losses as Losses
    from millstream.live.losses import LostSlots as LostSlots
    from millstream.live.losses import LostUse as LostUse
    from millstream.live.losses import is_loss as is_loss
    from millstream.live.losses import read_loss as read_loss
    from millstream.live.mirror import Mirror as Mirror
    from millstream.live.place import Place as Place
    from millstream.live.position_cache import PREFETCHED_USES as PREFETCHED_USES
    from millstream.live.position_cache import PositionCache as PositionCache
    from millstream.live.positions import ALL_POSITIONS as ALL_POSITIONS
    from millstream.live.positions import PositionSampling as PositionSampling
    from millstream.live.positions import PositionWeights as PositionWeights
    from millstream.live.recipe import stages_of_recipes as stages_of_recipes
    from millstream.live.row_log import RowLog as RowLog
    from millstream.live.row_log import StepRows as StepRows
    from millstream.live.same_rows import SameRows as SameRows
    from millstream.live.stream_shuffler import StreamShuffler as StreamShuffler
    from millstream.live.tensor_generator import TensorGenerator as TensorGenerator
    from millstream.live.tensor_maker import LAYOUTS as LAYOUTS
    from millstream.live.tensor_maker import Output as Output
    from millstream.live.tensor_maker import TensorMaker as TensorMaker
    from millstream.live.tensor_maker import Tensors as Tensors
    from millstream.live.tensor_maker import buffer_offsets as buffer_offsets
    from millstream.live.tensor_maker import take_rows as take_rows
    from millstream.live.window import Arrays as Arrays
    from millstream.live.window import Entry as Entry
    from millstream.live.window import Window as Window

__all__ = [
    "ALL_POSITIONS",
    "CHANGES",
    "EVENTS_FORMAT",
    "EVER",
    "GONE_FROM_RESERVOIR",
    "LAYOUTS",
    "PREFETCHED_USES",
    "Arrays",
    "Arrival",
    "AsItWas",
    "AsLed",
    "AsTheyCome",
    "AsWritten",
    "AtOnce",
    "Barren",
    "ChunkFilter",
    "ChunkReader",
    "ChunkRescorer",
    "ChunkSet",
    "ChunkSourceFeed",
    "ChunkUnpacker",
    "Discovery",
    "Entrance",
    "Entry",
    "Event",
    "Found",
    "FrameShuffler",
    "GameStage",
    "HanseSampling",
    "Leads",
    "Loss",
    "Losses",
    "LostSlots",
    "LostUse",
    "Mirror",
    "Moves",
    "Output",
    "Partial",
    "Place",
    "PositionCache",
    "PositionSampling",
    "PositionWeights",
    "RowLog",
    "SameRows",
    "Shuffled",
    "StepRows",
    "StreamShuffler",
    "TensorGenerator",
    "TensorMaker",
    "Tensors",
    "Window",
    "buffer_offsets",
    "entered",
    "is_loss",
    "joined",
    "open_sources",
    "places_of",
    "read_loss",
    "sort_key",
    "stages_of_recipes",
    "take_rows",
    "unpacked",
]
