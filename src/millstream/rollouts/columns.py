"""The columns of rollouts: their names, types and what stands where nobody said anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

Id: TypeAlias = str | int
Finish = Literal["stop", "length", "abort", "error"]
"""Why a rollout ended. "length": it was cut off, and did not end by itself."""
FINISHES: tuple[Finish, ...] = get_args(Finish)
Kind = Literal["sample", "baseline"]
"""A baseline is the greedy rollout of a prompt: other rollouts are compared with it, and nobody trains on it."""
KINDS: tuple[Kind, ...] = get_args(Kind)
LogprobKind = Literal["processed", "raw"]
"""Log-probabilities after temperature, top-p and top-k, or before."""
LOGPROB_KINDS: tuple[LogprobKind, ...] = get_args(LogprobKind)
NAMED_REWARD = "rewards."
"""What the columns of rewards with a name begin with."""
EQUAL_WITHIN = 1e-6
"""Rewards that differ by no more than this are equal: more than adding up float32 leaves, less than any meaning."""


@dataclass(frozen=True)
class Column:
    """A column: its type, and the value of rollouts that do not have it; None: all or none have it."""

    dtype: Any
    absent: Any = None
    required: bool = False
    choices: tuple[str, ...] = ()
    """Words that are kept as their number."""


ROW_COLUMNS = {
    "rollout_id": Column(np.object_, required=True),
    "group_id": Column(np.object_, required=True),
    "prompt_id": Column(np.object_),
    "sample_idx": Column(np.int64, -1),
    "prompt_len": Column(np.int64, -1),
    "reward": Column(np.float64, required=True),
    "finish": Column(np.uint8, required=True, choices=FINISHES),
    "kind": Column(np.uint8, 0, choices=KINDS),
    "weight": Column(np.float64, 1.0),
    "bootstrap_value": Column(np.float64, np.nan),
    "logprob_kind": Column(np.uint8, 0, choices=LOGPROB_KINDS),
    "temperature": Column(np.float32, np.nan),
    "top_p": Column(np.float32, np.nan),
    "top_k": Column(np.int64, -1),
    "generation_seconds": Column(np.float64, np.nan),
    "extra": Column(np.object_),
}
"""One value per rollout. `rewards.NAME` are further ones, float64 with NaN where there is none. `extra` holds what
Millstream only carries along, as JSON: environment, references to media, spans of turns."""

TOKEN_COLUMNS = {
    "token_ids": Column(np.uint32, required=True),
    "loss_mask": Column(np.bool_, required=True),
    "sampling_logprobs": Column(np.float32),
    "policy_version": Column(np.uint32),
    "token_rewards": Column(np.float32),
    "values": Column(np.float32),
    "ref_logprobs": Column(np.float32),
    "done": Column(np.bool_),
    "routed_experts": Column(None),  # uint8 or uint16, of shape (tokens, layers, experts)
    "kept_count": Column(np.uint32),  # how many of `kept_ids` top-p kept for each token
}
"""One value per token, the tokens of all rollouts end to end."""
