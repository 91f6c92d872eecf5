"""Accelerate and the Trainer of Hugging Face: the model sees the loader's rows, each once, whoever runs the loop."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from millstream import PretrainDataLoader, TokenStoreWriter, TrainingBatch
from oracles.asked import asked

pytestmark = pytest.mark.oracle
transformers = asked("transformers")
ROWS = [list(range(start, start + 8)) for start in range(1, 121, 8)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with TokenStoreWriter(tmp_path / "numbers") as writer:
        writer.append(range(1, 122))
    return tmp_path / "numbers"


def loader_over(store: Path, **settings: Any) -> PretrainDataLoader:
    return PretrainDataLoader(store, chunk_size=8, batch_size=2, labels="same", shuffle=False, **settings)


class Watching:
    """A model's loss that remembers which batches it was asked for."""

    def __init__(self) -> None:
        self.batches: list[TrainingBatch] = []

    def trainer(self, loader: PretrainDataLoader, folder: Path, **settings: Any) -> Any:
        watching = self

        class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
            def get_train_dataloader(self) -> PretrainDataLoader:
                return loader

            def compute_loss(self, model: Any, inputs: TrainingBatch, *given: Any, **named: Any) -> Any:
                watching.batches.append(inputs.copy())
                return super().compute_loss(model, inputs, *given, **named)

        torch.manual_seed(1)
        config = transformers.GPT2Config(
            vocab_size=128, n_positions=8, n_embd=8, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0
        )
        arguments = transformers.TrainingArguments(
            output_dir=str(folder), use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, **settings
        )
        return Trainer(model=transformers.GPT2LMHeadModel(config), args=arguments)


@pytest.mark.parametrize("settings", [{}, {"label_smoothing_factor": 0.1}, {"gradient_accumulation_steps": 2}])
def test_the_trainer_takes_a_loader_as_it_is(store: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    watching = Watching()
    with loader_over(store) as loader:
        watching.trainer(loader, tmp_path / "out", max_steps=4, **settings).train()
        expected = 4 * settings.get("gradient_accumulation_steps", 1)
        assert loader.state_dict()["step"] == expected

    assert [batch.metadata["step"] for batch in watching.batches] == list(range(expected))
    assert [row for batch in watching.batches for row in batch.input_ids.tolist()] == ROWS[: 2 * expected]


def test_the_trainer_counts_epochs_by_the_loaders_length(store: Path, tmp_path: Path) -> None:
    watching = Watching()
    with loader_over(store) as loader:
        trainer = watching.trainer(loader, tmp_path / "out", num_train_epochs=2)
        trainer.train()

    assert trainer.state.global_step == 2 * 8
    assert [row for batch in watching.batches for row in batch.input_ids.tolist()] == 2 * ROWS
    assert [batch.metadata["epoch"] for batch in watching.batches] == [0] * 8 + [1] * 8


def ran(script: str, *arguments: object, processes: int) -> tuple[dict[int, Any], str]:
    """What each rank says of itself, and all that is told besides."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *launch, script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return dict(lines), done.stderr


SCRIPT = """
    import json, sys
    from accelerate import Accelerator
    from accelerate.data_loader import prepare_data_loader
    from torch.utils.data import DataLoader
    from millstream import PretrainDataLoader

    store, way = sys.argv[1:]
    accelerator = Accelerator(cpu=True)
    ranks = {"rank": 0, "world_size": 1} if way == "one loader" else {}
    loader = PretrainDataLoader(store, chunk_size=8, batch_size=2, labels="same", shuffle=False, **ranks)
    batches = DataLoader(loader, batch_size=None)
    if way == "bare":
        batches = accelerator.prepare(loader)
    elif way == "not dealt":
        batches = prepare_data_loader(
            batches, accelerator.device, num_processes=1, process_index=0, put_on_device=True, dispatch_batches=False
        )
    else:
        batches = accelerator.prepare(batches)
    seen = []
    for batch in batches:
        batch = batch.to(accelerator.device)
        seen.append([batch.metadata["step"], batch["input_ids"].tolist(), type(batch).__name__])
    print(json.dumps([accelerator.process_index, seen]), flush=True)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(SCRIPT))
    return str(path)


@pytest.mark.parametrize("way", ["prepared", "bare", "not dealt"])
def test_accelerate_gives_one_process_every_row(store: Path, script: str, way: str) -> None:
    seen, told = ran(script, store, way, processes=1)

    assert [step for step, _, _ in seen[0]] == list(range(8)), told
    assert [row for _, rows, _ in seen[0] for row in rows] == ROWS
    assert {kind for _, _, kind in seen[0]} == {"TrainingBatch"}


@pytest.mark.parametrize("way", ["bare", "not dealt"])
def test_two_processes_of_accelerate_get_the_rows_of_their_ranks(store: Path, script: str, way: str) -> None:
    seen, told = ran(script, store, way, processes=2)

    assert [[step for step, _, _ in seen[rank]] for rank in range(2)] == [list(range(4))] * 2, told
    assert [row for step in range(4) for rank in range(2) for row in seen[rank][step][1]] == ROWS


def test_accelerate_deals_out_the_rows_of_one_loader(store: Path, script: str) -> None:
    seen, told = ran(script, store, "one loader", processes=2)

    dealt = [row for step in range(4) for rank in range(2) for row in seen[rank][step][1]]
    assert dealt == [*ROWS, ROWS[0]], told  # it fills up the last step with the first rows


def test_accelerate_is_told_at_once_not_to_deal_out_what_is_dealt_out(store: Path, script: str) -> None:
    seen, told = ran(script, store, "prepared", processes=2)

    assert not seen
    for rank in range(2):
        assert f"[rank{rank}]: millstream.errors.LoaderError: Accelerate would deal out once more" in told
    assert "for batch in loader: batch = batch.to(accelerator.device)" in told
