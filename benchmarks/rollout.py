"""What rollouts cost on their way into a step, each as a ratio to a baseline measured in the same run.

    python benchmarks/rollout.py [--only assembly imbalance] [--rounds 7]

`assembly`: ragged columns into padded and packed torch tensors against memcpy of the same bytes into buffers of the
same size, warm on both sides. `imbalance`: how much more the busiest of 8 ranks has to do than the mean.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median

import numpy as np
import torch

import machine
from engine import Finding, table
from millstream.batches import TrainingBatch
from millstream.batches.rollout_loss import Numbers
from millstream.batches.rollouts import RolloutFormat, RolloutRows, RolloutStep
from millstream.order import CostModel, MicroBatchRule, StepPlan, partition
from millstream.rollouts import RolloutBlock

RESULTS = Path(__file__).parent / "results"
ROLLOUTS, BLOCKS, CAP = 4096, 8, 16_384
COLUMNS = ("input_ids", "labels", "sampling_logprobs", "ref_logprobs", "values", "advantages")


def block(seed: int, rollouts: int) -> RolloutBlock:
    """Rollouts of about 500 tokens, with four columns besides ids and mask."""
    rng = np.random.default_rng(seed)
    lengths = np.minimum(rng.lognormal(6.0, 0.7, rollouts).astype(np.int64) + 1, CAP)
    tokens = int(lengths.sum())
    floats = {name: rng.normal(size=tokens).astype(np.float32) for name in COLUMNS[2:]}
    ids = {"rollout_id": np.array([f"{seed}-{row}" for row in range(rollouts)], object)}
    masks = {"token_ids": rng.integers(0, 50_000, tokens).astype(np.uint32), "loss_mask": rng.random(tokens) < 0.8}
    return RolloutBlock(np.cumsum(lengths), {**ids, "reward": rng.random(rollouts)}, {**masks, **floats})


def columns(batch: TrainingBatch) -> list[torch.Tensor]:
    """The six columns, and the positions of packed rows."""
    found = [batch.metadata[name] if name in batch.metadata else batch[name] for name in COLUMNS]
    return found if batch.position_ids is None else [*found, batch.position_ids]


def assembled(step: RolloutStep, micro_batches: list[Numbers]) -> float:
    """Every micro-batch once, each in the buffer of the one before, as the copies are."""
    start = time.perf_counter()
    for rows in micro_batches:
        step.batch(rows)
    return time.perf_counter() - start


def copied(sizes: list[list[int]]) -> Callable[[], float]:
    """Copies of so many bytes per column, batch by batch, from as much memory into one set of buffers."""
    source = np.random.default_rng(0).integers(0, 255, sum(map(sum, sizes)), np.uint8)
    buffers = [np.zeros(max(column), np.uint8) for column in zip(*sizes, strict=True)]
    plan, offset = [], source.ctypes.data
    for batch in sizes:
        for buffer, size in zip(buffers, batch, strict=True):
            plan.append((buffer.ctypes.data, offset, size))
            offset += size

    def run() -> float:
        assert source.nbytes and buffers  # they are kept alive
        start = time.perf_counter()
        for there, here, size in plan:
            ctypes.memmove(there, here, size)
        return time.perf_counter() - start

    return run


def assembly(rounds: int) -> list[Finding]:
    """Batches of a step of 4096 rollouts, in micro-batches of at most 16384 tokens."""
    blocks = [block(seed, ROLLOUTS // BLOCKS) for seed in range(BLOCKS)]
    places = np.array([(number, row) for number in range(BLOCKS) for row in range(ROLLOUTS // BLOCKS)])
    places = np.random.default_rng(0).permutation(places)
    findings = []
    for packed in (False, True):
        step = RolloutRows(blocks, RolloutFormat(framework="torch", packed=packed)).step(places)
        plan = StepPlan.of(step.lengths, rule=MicroBatchRule(CAP, packed=packed))
        micro_batches = list(plan.micro_batches[0])
        sizes = [[column.nbytes for column in columns(step.batch(rows))] for rows in micro_batches]
        copy = copied(sizes)
        assembled(step, micro_batches), copy()  # warm
        times = [(assembled(step, micro_batches), copy()) for _ in range(rounds)]
        ratio = median(mine / base for mine, base in times)
        gigabytes = sum(map(sum, sizes)) / 1e9
        mine, base = (gigabytes / median(column) for column in zip(*times, strict=True))
        findings.append(
            Finding(
                f"assembly of {'packed' if packed else 'padded'} rows, six columns",
                f"{mine:.2f} GB/s",
                f"memcpy: {base:.2f} GB/s",
                ratio,
                "<= 2",
                ratio <= 2,
            )
        )
    return findings


def imbalance(rounds: int) -> list[Finding]:
    """256 lognormal lengths on 8 ranks, the worst of many draws; one rollout may cost more than the mean of ranks."""
    findings = []
    for equal_sizes in (False, True):
        worst, strided = 0.0, []
        for seed in range(20 * rounds):
            costs = CostModel().of(np.random.default_rng(seed).lognormal(6.5, 0.9, 256).astype(np.int64) + 1)
            loads = np.bincount(partition(costs, 8, equal_sizes=equal_sizes), costs)
            company = np.sort(costs)[: 31 if equal_sizes else 0].sum()  # that the longest must have
            worst = max(worst, float(loads.max() / max(loads.mean(), costs.max() + company)) - 1)
            dealt = costs.reshape(-1, 8).sum(axis=0)
            strided.append(float(dealt.max() / dealt.mean()) - 1)
        findings.append(
            Finding(
                f"imbalance over 8 ranks{', 32 rows each' if equal_sizes else ''}, worst of {20 * rounds}",
                f"{worst:.4%}",
                f"dealt in turn: {median(strided):.0%}",
                worst / median(strided),
                "<= 0.01 %",
                worst <= 1e-4,
            )
        )
    return findings


SECTIONS: dict[str, Callable[[int], list[Finding]]] = {"assembly": assembly, "imbalance": imbalance}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    findings = [finding for name in arguments.only for finding in SECTIONS[name](arguments.rounds)]
    facts = machine.facts(["torch", "numpy", "millstream"])
    text = "\n".join([f"# Rollouts\n\n{machine.one_line(facts)}\n", table(findings), ""])
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "rollout.md").write_text(text)
    (RESULTS / "rollout.json").write_text(
        json.dumps({"machine": facts, "findings": [asdict(finding) for finding in findings]}, indent=1)
    )
    print(text)


if __name__ == "__main__":
    main()
