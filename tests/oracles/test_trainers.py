"""Accelerate and the Trainer of Hugging Face: the model sees the loader's rows, each once, whoever runs the loop."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
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
    """What each rank writes down, and all that is told besides."""
    said = Path(tempfile.mkdtemp())
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *launch, script, *map(str, arguments), str(said)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    return {int(path.stem): json.loads(path.read_text()) for path in said.glob("*.json")}, done.stderr


SCRIPT = """
    import json, sys
    from pathlib import Path
    from accelerate import Accelerator
    from accelerate.data_loader import prepare_data_loader
    from torch.utils.data import DataLoader
    from millstream import PretrainDataLoader

    store, way, said = sys.argv[1:]
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
    Path(said, f"{accelerator.process_index}.json").write_text(json.dumps(seen))
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


TRAINER = """
    import json, os, sys
    from pathlib import Path
    import torch, transformers
    from millstream import PretrainDataLoader

    store, out, said = sys.argv[1:]
    rank = int(os.environ["RANK"])

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return self.loader  # as the guide has it

        def compute_loss(self, model, inputs, *given, **named):
            self.seen.append([inputs.metadata["step"], inputs.metadata["epoch"], inputs["input_ids"].tolist()])
            return super().compute_loss(model, inputs, *given, **named)

    class Saving(transformers.TrainerCallback):
        def __init__(self, loader, path):
            self.loader, self.path = loader, path

        def on_save(self, *_, **__):
            if rank == 0:
                self.path.write_text(json.dumps(self.loader.state_dict()))

    def trained(folder, resume=False, **settings):
        loader = PretrainDataLoader(store, chunk_size=8, batch_size=2, labels="same", shuffle=False)
        torch.manual_seed(1)
        config = transformers.GPT2Config(
            vocab_size=128, n_positions=8, n_embd=8, n_layer=1, n_head=1, bos_token_id=0, eos_token_id=0,
            attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
        )
        arguments = transformers.TrainingArguments(
            output_dir=str(folder), use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="steps", save_steps=3,
            lr_scheduler_type="constant", ignore_data_skip=resume, **settings,
        )
        callbacks = [Saving(loader, folder / "loader.json")]
        trainer = Trainer(model=transformers.GPT2LMHeadModel(config), args=arguments, callbacks=callbacks)
        trainer.loader, trainer.seen = loader, []
        if resume:
            loader.load_state_dict(json.loads((folder / "loader.json").read_text()))
        trainer.train(resume_from_checkpoint=str(folder / "checkpoint-3") if resume else None)
        weights = [float(each.detach().double().sum()) for each in trainer.model.parameters()]
        return {"seen": trainer.seen, "weights": weights, "steps": trainer.state.global_step}

    told = {}
    for name, length in {"steps": {"max_steps": 7}, "epochs": {"num_train_epochs": 2}}.items():
        folder = Path(out, name)
        told[name] = {
            "whole": trained(folder / "whole", **length),
            "first": trained(folder / "stopped", max_steps=3),
            "rest": trained(folder / "stopped", resume=True, **length),
        }
    Path(said, f"{rank}.json").write_text(json.dumps(told))
"""


def dealt(ranks: dict[int, Any], length: str, part: str) -> list[Any]:
    """The rows of all steps, in the order of the run, whatever rank had them."""
    steps = zip(*(ranks[rank][length][part]["seen"] for rank in sorted(ranks)), strict=True)
    return [row for step in steps for _, _, rows in step for row in rows]


@pytest.mark.parametrize("processes", [1, 2])
def test_ranks_of_the_trainer_see_each_row_once_and_go_on_where_they_stopped(
    store: Path, tmp_path: Path, processes: int
) -> None:
    script = tmp_path / "trainer.py"
    script.write_text(textwrap.dedent(TRAINER))
    ranks, told = ran(str(script), store, tmp_path / "out", processes=processes)

    assert sorted(ranks) == list(range(processes)), told
    in_epoch = 8 // processes
    assert dealt(ranks, "epochs", "whole") == 2 * ROWS
    assert dealt(ranks, "steps", "whole") == (2 * ROWS)[: len(dealt(ranks, "steps", "whole"))]
    for rank, length in itertools.product(range(processes), ("steps", "epochs")):
        whole, first, rest = (ranks[rank][length][part] for part in ("whole", "first", "rest"))
        steps = range(7 if length == "steps" else 2 * in_epoch)
        assert [(step, epoch) for step, epoch, _ in whole["seen"]] == [(step, step // in_epoch) for step in steps]
        assert len(first["seen"]) == 3 and first["seen"] + rest["seen"] == whole["seen"]
        assert rest["steps"] == whole["steps"] == len(steps)
        assert rest["weights"] == pytest.approx(whole["weights"], abs=1e-5)
        assert whole["weights"] == ranks[0][length]["whole"]["weights"]  # every rank has made the same updates
