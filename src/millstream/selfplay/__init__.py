"""A folder of self-play games -> shuffled positions: a window of the newest games, its journal, state and resume.

`window.py` decides which game is used next, `admission.py` when a file enters, and `events.py` how both are written
down. `graph.py` connects the stages of `chunk_feed/`. `delivered_state.py` follows the trainer, who is behind them.
"""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "admission": "EVER AdmissionPolicy LivePolicy",
        "delivered_state": "DeliveredState RecentSteps StepSnapshot",
        "events": "EVENTS_FORMAT Event EventSource Losses LostUse apply entered grouped",
        "folder": "Arrival FileFound FileRemoved Folder ScanComplete sort_key",
        "graph": "GraphMaker SelfPlayGraph",
        "hanse": "HanseSampling HanseWeights",
        "journal": "JOURNAL START RankRole",
        "prefetch": "TensorPrefetch",
        "recipe": "stages_of_recipes",
        "resume": "AdmissionPolicies Replay Takeover",
        "row_log": "RowLog StepRows",
        "run_files": "RunFiles SourceHistory",
        "sampling": "ALL_POSITIONS PositionSampling PositionWeights",
        "settings": "MemoryShares SelfPlayTask",
        "spans": "Spans",
        "state": "KIND States",
        "status": "EpochLength nothing_to_train_on",
        "window": "Acceptance Window WindowEntry",
    },
)
