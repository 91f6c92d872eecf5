"""Random records of rollouts, and whether a rollout is what a record said."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from millstream.rollouts import FINISHES, KINDS, Rollout

IDS = st.text(max_size=8) | st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(-1e6, 1e6, width=32)
LOGPROBS = st.floats(-50, 0, width=32)
JSON = st.dictionaries(
    st.text(max_size=5), st.integers() | st.text(max_size=5) | st.lists(st.booleans(), max_size=2), max_size=3
)
PER_ROW: dict[str, st.SearchStrategy[Any]] = {
    "prompt_id": IDS,
    "sample_idx": st.integers(0, 2**40),
    "kind": st.sampled_from(KINDS),
    "weight": st.floats(0, 1e6),
    "bootstrap_value": FLOATS,
    "logprob_kind": st.sampled_from(["processed", "raw"]),
    "temperature": st.floats(0, 2, width=32),
    "top_p": st.floats(0.125, 1, width=32),
    "top_k": st.integers(1, 2**40),
    "generation_seconds": st.floats(0, 1e6),
    "rewards": st.dictionaries(st.text(max_size=5), st.floats(-1e6, 1e6), max_size=2),
    "extra": JSON,
}
PER_TOKEN: dict[str, st.SearchStrategy[Any]] = {
    "sampling_logprobs": LOGPROBS,
    "ref_logprobs": LOGPROBS,
    "policy_version": st.integers(0, 2**32 - 1),
    "token_rewards": FLOATS,
    "values": FLOATS,
    "done": st.booleans(),
    "routed_experts": st.lists(st.lists(st.integers(0, 300), min_size=2, max_size=2), min_size=1, max_size=1),
    "kept": st.lists(st.integers(0, 2**32 - 1), max_size=3),
}


@st.composite
def records(draw: st.DrawFn, most: int = 5) -> list[dict[str, Any]]:
    """Records that can be in one block: columns of tokens in all or none."""
    columns = draw(st.sets(st.sampled_from(sorted(PER_TOKEN))))
    ids = draw(st.lists(IDS, min_size=1, max_size=most, unique_by=lambda value: (type(value), value)))
    return [draw(_record(name, columns)) for name in ids]


@st.composite
def _record(draw: st.DrawFn, name: Any, columns: set[str]) -> dict[str, Any]:
    length = draw(st.integers(3, 6))

    def numbers(each: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(each, min_size=length, max_size=length))

    record: dict[str, Any] = {
        "rollout_id": name,
        "group_id": draw(IDS),
        "token_ids": numbers(st.integers(0, 2**32 - 1)),
        "loss_mask": numbers(st.booleans()),
        "reward": draw(st.floats(-1e6, 1e6) | st.none()),
        "finish": draw(st.sampled_from(FINISHES)),
    }
    record |= {column: draw(PER_ROW[column]) for column in draw(st.sets(st.sampled_from(sorted(PER_ROW))))}
    record |= {column: numbers(PER_TOKEN[column]) for column in sorted(columns) if column != "kept"}
    if "kept" in columns:
        kept = numbers(PER_TOKEN["kept"])
        record["kept_ids"] = [id for ids in kept for id in ids]
        record["kept_offsets"] = np.cumsum([0, *map(len, kept)]).tolist()
    as_arrays = draw(st.booleans())
    plain = {"kept_ids": np.uint32, "kept_offsets": np.int64}
    return {
        key: np.array(value, plain.get(key)) if as_arrays and isinstance(value, list) else value
        for key, value in record.items()
    }


def assert_same_rollout(rollout: Rollout, record: dict[str, Any]) -> None:
    """Everything that the record says, the rollout says; what it does not say is None or what stands for nothing."""
    mask = np.array(record["loss_mask"], bool)
    for name, said in record.items():
        found = getattr(rollout, name)
        if name in ("sampling_logprobs", "ref_logprobs"):
            assert np.array_equal(found, np.where(mask, np.array(said, np.float32), 0)), name
        elif isinstance(said, list | np.ndarray):
            assert np.array_equal(found, np.array(said).astype(found.dtype)) and len(found) == len(said), name
        elif name == "reward":
            assert found is said or found == said or (said is None and np.isnan(found))
        elif name == "rewards":
            assert (found or {}) == said
        else:
            assert found == said or (found is None and said in ("sample", "processed", 1.0)), name
    others = {name for name in Rollout.__dataclass_fields__ if name not in record}
    assert all(getattr(rollout, name) is None for name in others)
