"""What verl and torchrl make of the rollouts of `advantages.compared`: the same names, results of the same shape."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from advantages.compared import CAP, CONSTANT, FLOOR, GAMMA, GREEDY, LAM, last_policy_tokens
from millstream.rollouts import RolloutBlock
from oracles.asked import asked

torch = asked("torch")
algorithms = asked("verl.trainer.ppo.core_algos")
functional = asked("verl.utils.torch_functional")
correction = asked("verl.trainer.ppo.rollout_corr_helper")


class Padded:
    """A block as verl has it: float64 tensors of a row per rollout, padded with 0."""

    def __init__(self, block: RolloutBlock) -> None:
        self.block = block
        self.rows = np.repeat(np.arange(len(block)), block.lengths)
        self.columns = np.arange(len(self.rows)) - np.repeat(block.starts, block.lengths)
        rewards = np.zeros(len(self.rows))
        rewards[last_policy_tokens(block)] = block["reward"]
        self.rewards = self.of(rewards)
        self.mask = self.of(block["loss_mask"])
        self.index = block["group_id"]

    def of(self, column: Any) -> Any:
        padded = np.zeros((len(self.block), int(self.block.lengths.max())))
        padded[self.rows, self.columns] = column
        return torch.from_numpy(padded)

    def __getitem__(self, name: str) -> Any:
        return self.of(self.block[name])

    def flat(self, tensor: Any) -> Any:
        """A value per token, 0 where nothing is trained: verl leaves garbage there."""
        return tensor.numpy()[self.rows, self.columns] * self.block["loss_mask"]


def grouped(name: str, **how: Any) -> Callable[[Padded], Any]:
    def advantages(given: Padded) -> Any:
        function = algorithms.get_adv_estimator_fn(name)
        return given.flat(function(given.rewards.clone(), response_mask=given.mask, index=given.index, **how)[0])

    return advantages


def reinforce(which: int) -> Callable[[Padded], Any]:
    config = SimpleNamespace(gamma=GAMMA)
    return lambda given: given.flat(
        algorithms.compute_reinforce_plus_plus_outcome_advantage(given.rewards, given.mask, config)[which]
    )


def generalised(which: int) -> Callable[[Padded], Any]:
    return lambda given: given.flat(
        algorithms.compute_gae_advantage_return(given.rewards, given["values"], given.mask, GAMMA, LAM)[which]
    )


def remax(given: Padded) -> Any:
    greedy = torch.full((len(given.block),), GREEDY, dtype=torch.float64)
    return given.flat(algorithms.compute_remax_outcome_advantage(given.rewards, greedy, given.mask)[0])


def whitened(*, shift_mean: bool) -> Callable[[Padded], Any]:
    return lambda given: given.flat(functional.masked_whiten(given["values"], given.mask, shift_mean))


def divergence(kind: str) -> Callable[[Padded], Any]:
    return lambda given: given.flat(algorithms.kl_penalty(given["sampling_logprobs"], given["ref_logprobs"], kind))


def corrected(level: str, threshold: float | str) -> Callable[[Padded], Any]:
    def weights(given: Padded) -> Any:
        ratio = given["ref_logprobs"] - given["sampling_logprobs"]
        return given.flat(correction.compute_rollout_correction_weights(ratio, given.mask, level, threshold)[0])

    return weights


def aggregated(mode: str, **how: Any) -> Callable[[Padded], Any]:
    return lambda given: algorithms.agg_loss(given["values"], given.mask, mode, **how).item()


THEIRS: dict[str, Callable[[Padded], Any]] = {
    "grpo": grouped("grpo"),
    "dr_grpo": grouped("grpo", norm_adv_by_std_in_grpo=False),
    "rloo": grouped("rloo"),
    "opo": grouped("opo"),
    "passk": grouped("grpo_passk", config={"norm_adv_by_std_in_grpo": False}),
    "passk, divided": grouped("grpo_passk", config={"norm_adv_by_std_in_grpo": True}),
    "reinforce++-baseline": grouped("reinforce_plus_plus_baseline"),
    "reinforce++": reinforce(0),
    "reinforce++, returns": reinforce(1),
    "remax": remax,
    "gae": generalised(0),
    "gae, returns": generalised(1),
    "whitened": whitened(shift_mean=True),
    "whitened, not shifted": whitened(shift_mean=False),
    "k1": divergence("k1"),
    "k2": divergence("k2"),
    "k3": divergence("k3"),
    "tokens corrected": corrected("token", CAP),
    "tokens rejected": corrected("token", f"{FLOOR}_{CAP}"),
    "sequences corrected": corrected("sequence", CAP),
    "token-mean": aggregated("token-mean"),
    "seq-mean-token-sum": aggregated("seq-mean-token-sum"),
    "seq-mean-token-mean": aggregated("seq-mean-token-mean"),
    "seq-mean-token-sum-norm": aggregated("seq-mean-token-sum-norm", loss_scale_factor=CONSTANT),
}
