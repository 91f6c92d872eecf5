"""What rollouts cost on their way into a step, each as a ratio to a baseline measured in the same run.

    python benchmarks/rollout.py [--only assembly imbalance ahead verl] [--rounds 7]

`assembly`: ragged columns into padded and packed torch tensors against memcpy of the same bytes into buffers of the
same size, warm on both sides. `imbalance`: how much more the busiest of 8 ranks has to do than the mean. `ahead`:
batches of a fixed set with and without a thread that makes them ahead, for trainers that ask back to back, sleep or
compute between steps. `verl` (with what `make oracles` installs): advantages, balance over ranks and micro-batches
under a cap against verl's functions.
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
from millstream import RolloutDataLoader
from millstream.advantages import compute_advantages
from millstream.batches import RolloutFormat, RolloutRows, RolloutStep, TrainingBatch
from millstream.batches.denominators import Numbers
from millstream.order import CostModel, MicroBatchRule, StepPlan, partition
from millstream.rollouts import RolloutBlock

RESULTS = Path(__file__).parent / "results"
ROLLOUTS, BLOCKS, CAP, LONGEST = 4096, 8, 16_384, 2048
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


def nothing() -> None:
    """What a trainer does that asks back to back."""


def computed() -> None:
    """What a trainer does that computes for 5 ms."""
    until, numbers = time.perf_counter() + 0.005, np.ones(10_000)
    while time.perf_counter() < until:
        np.exp(numbers)


def trained(loader: RolloutDataLoader, train: Callable[[], None], batches: int) -> tuple[float, float, float]:
    """Microseconds of a step: wall time, CPU time of all threads, and the wait for its batch."""
    waited, wall, cpu = 0.0, time.perf_counter(), time.process_time()
    for _ in range(batches):
        start = time.perf_counter()
        batch = loader.next()
        waited += time.perf_counter() - start
        train()
        del batch
    took = time.perf_counter() - wall, time.process_time() - cpu, waited
    return took[0] / batches * 1e6, took[1] / batches * 1e6, took[2] / batches * 1e6


def ahead(rounds: int) -> list[Finding]:
    """Batches of 64 rollouts of 400 tokens; rounds alternate, and the best of each counts."""
    kept = {"token_ids": list(range(5, 405)), "loss_mask": [0] * 100 + [1] * 300, "finish": "stop"}
    records = [{"rollout_id": n, "group_id": n // 8, "reward": float(n % 3), **kept} for n in range(2000)]
    trainers = {
        "back to back": nothing,
        "after 5 ms of sleep": lambda: time.sleep(0.005),
        "after 5 ms of numpy": computed,
    }
    findings = []
    for name, train in trainers.items():
        loaders = [RolloutDataLoader(records, batch_size=64, framework="torch") for _ in range(2)]
        loaders[1]._filler._most = 0  # makes nothing ahead
        for loader in loaders:
            trained(loader, train, 20)
        batches = 200 if train is nothing else 40
        times = [[trained(loader, train, batches) for loader in loaders] for _ in range(rounds)]
        on, off = np.array(times).min(axis=0)
        for loader in loaders:
            loader.close()
        column, limit = (0, 1.1) if train is nothing else (2, 0.5)
        told = [
            f"{wall:.0f} / {cpu:.0f} us a step, wall / CPU; {wait:.0f} us in next()" for wall, cpu, wait in (on, off)
        ]
        ratio = float(on[column] / off[column])
        what = f"batches of 64 rollouts {name}, {'a step' if column == 0 else 'the wait in next()'}"
        findings.append(Finding(what, told[0], f"made in the call: {told[1]}", ratio, f"<= {limit}", ratio <= limit))
    return findings


def steps(rollouts: int, rows: int) -> list[RolloutBlock]:
    """Steps of so many rollouts, 500 tokens on average and at most 2048, in groups of 8, with rewards of 0 and 1."""
    made = []
    for seed in range(-(-rollouts // rows)):
        rng = np.random.default_rng(seed)
        lengths = np.clip(rng.lognormal(5.9, 0.8, rows).astype(np.int64), 8, LONGEST)
        tokens = int(lengths.sum())
        per_row = {
            "rollout_id": np.array([f"{seed}-{row}" for row in range(rows)], object),
            "group_id": np.array([f"{seed}-{row // 8}" for row in range(rows)], object),
            "reward": rng.integers(0, 2, rows).astype(np.float64),
            "finish": np.zeros(rows, np.uint8),
        }
        ids = rng.integers(1, 50_000, tokens).astype(np.uint32)
        made.append(RolloutBlock(np.cumsum(lengths), per_row, {"token_ids": ids, "loss_mask": np.ones(tokens, bool)}))
    return made


def padded(block: RolloutBlock) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What verl works on: ids, mask, and rewards at the last token."""
    ids = torch.zeros((len(block), LONGEST), dtype=torch.int64)
    mask, rewards = torch.zeros_like(ids), torch.zeros(ids.shape)
    for row, length in enumerate(block.lengths.tolist()):
        ids[row, :length] = torch.from_numpy(block.of(row, "token_ids").astype(np.int64))
        mask[row, :length] = 1
        rewards[row, length - 1] = float(block["reward"][row])
    return ids, mask, rewards


def ours(block: RolloutBlock) -> float:
    """Advantages, balance over 8 ranks, micro-batches of each; and, what verl's functions do not do, their batches."""
    start = time.process_time()
    advantages = compute_advantages(block)
    assert advantages.per_rollout is not None
    rated = block.with_columns(advantages=advantages.per_rollout)
    step = RolloutRows([rated], RolloutFormat(framework="torch", packed=True)).step(
        np.stack([np.zeros(len(block), np.int64), np.arange(len(block))], axis=1)
    )
    plan = StepPlan.of(step.lengths, ranks=8, rule=MicroBatchRule(CAP), equal_sizes=True)
    for rank in plan.micro_batches:
        for rows in rank:
            step.batch(rows)
    return time.process_time() - start


def theirs(block: RolloutBlock, tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> float:
    """The same with verl's functions; that its tensors are padded first is not counted."""
    from tensordict import TensorDict
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
    from verl.utils.seqlen_balancing import (
        calculate_workload,
        get_seqlen_balanced_partitions,
        rearrange_micro_batches,
    )

    ids, mask, rewards = tensors
    start = time.process_time()
    compute_grpo_outcome_advantage(rewards, mask, block["group_id"])
    loads = calculate_workload(mask.sum(dim=1)).tolist()
    for rows in get_seqlen_balanced_partitions(loads, 8, equal_size=True):
        own = TensorDict({"input_ids": ids[rows], "attention_mask": mask[rows]}, batch_size=len(rows))
        rearrange_micro_batches(own, CAP)
    return time.process_time() - start


def against_verl(rounds: int) -> list[Finding]:
    """10^5 rollouts in steps of 1024."""
    made = steps(100_000, 1024)
    ours(made[0]), theirs(made[0], padded(made[0]))  # warm
    times = np.array([(ours(block), theirs(block, padded(block))) for block in made])
    rollouts = sum(map(len, made))
    mine, base = rollouts / times.sum(axis=0)
    ratio = float(times[:, 1].sum() / times[:, 0].sum())
    what = f"advantages, ranks and micro-batches of {rollouts:,} rollouts, {int(made[0].lengths.mean())} tokens each"
    told = (f"{mine:,.0f} rollouts per CPU second", f"verl: {base:,.0f}")
    return [Finding(what, *told, ratio, ">= 10", ratio >= 10)]


SECTIONS: dict[str, Callable[[int], list[Finding]]] = {
    "assembly": assembly,
    "imbalance": imbalance,
    "ahead": ahead,
    "verl": against_verl,
}


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
