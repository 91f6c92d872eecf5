from __future__ import annotations

import copy
import io
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader

from loaders.samples import Ids, counting_file, counting_loader, inputs, ran, run_script, take
from millstream import PretrainDataLoader, TrainingBatch


def test_torchs_loader_takes_ours_as_the_data_set_it_is(tmp_path: Path) -> None:
    with counting_loader(tmp_path) as plain:
        expected = [inputs(plain), inputs(plain)]
    with counting_loader(tmp_path, framework="torch") as loader:
        wrapped: Any = TorchDataLoader(loader, batch_size=None, num_workers=0)  # type: ignore[arg-type]
        batches = [list(wrapped), list(wrapped)]

        assert [inputs(epoch) for epoch in batches] == expected
        assert all(isinstance(batch, TrainingBatch) for batch in batches[0])
        assert batches[0][0].input_ids.dtype == torch.int64


def test_torchs_loader_takes_ours_whatever_the_framework_of_the_batches(tmp_path: Path) -> None:
    code = """
        import sys
        from torch.utils.data import DataLoader
        from millstream import PretrainDataLoader

        loader = PretrainDataLoader(sys.argv[1], chunk_size=10, dtype="uint16", framework="numpy")
        print(len(list(DataLoader(loader, batch_size=None))) == loader.get_num_batches())
    """
    assert ran(code, counting_file(tmp_path / "c.bin")) == ["True"]


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_worker_processes_of_torch_are_refused_and_not_left_hanging(tmp_path: Path, framework: str) -> None:
    code = """
        import sys
        from torch.utils.data import DataLoader
        from millstream import LoaderError, PretrainDataLoader

        path, framework = sys.argv[1:]
        PretrainDataLoader(path, chunk_size=10, dtype="uint16", framework="torch").close()
        loader = PretrainDataLoader(path, chunk_size=10, dtype="uint16", framework=framework)
        loader.next()
        try:
            for batch in DataLoader(loader, batch_size=None, num_workers=2, multiprocessing_context="fork"):
                print("a batch")
        except LoaderError as error:
            print("num_workers=0" in str(error))
        print(loader.next().metadata["step"])
    """
    assert ran(code, counting_file(tmp_path / "c.bin"), framework) == ["True", "1"]


def test_workers_that_are_spawned_are_an_error_too(tmp_path: Path) -> None:
    script = tmp_path / "spawn.py"
    script.write_text(
        textwrap.dedent("""
            import sys
            from torch.utils.data import DataLoader
            from millstream import PretrainDataLoader

            if __name__ == "__main__":
                loader = PretrainDataLoader(sys.argv[1], chunk_size=10, dtype="uint16", framework="torch")
                try:
                    for batch in DataLoader(loader, batch_size=None, num_workers=1, multiprocessing_context="spawn"):
                        print("a batch")
                except Exception as error:
                    print("num_workers=0" in str(error))
        """)
    )
    command = [sys.executable, str(script), str(counting_file(tmp_path / "c.bin"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)

    assert done.stdout.splitlines() == ["True"], done.stderr


RANK = """
    import json, sys
    from millstream import PretrainDataLoader

    with PretrainDataLoader(sys.argv[1], chunk_size=10, batch_size=3, dtype="uint16", framework="numpy") as loader:
        print(json.dumps([batch.input_ids.tolist() for batch in loader]))
        print(json.dumps(loader.state_dict()))
"""


def test_processes_of_torchrun_share_the_rows_and_agree_on_the_state(tmp_path: Path) -> None:
    path = counting_file(tmp_path / "c.bin")
    answers = [ran(RANK, path, env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"}) for rank in range(2)]
    steps = [json.loads(answer[0]) for answer in answers]
    with PretrainDataLoader(path, chunk_size=10, batch_size=6, dtype="uint16", framework="numpy") as whole:
        expected = [batch.input_ids.tolist() for batch in whole]

    assert [first + second for first, second in zip(*steps, strict=True)] == expected
    assert answers[0][1] == answers[1][1]


def test_a_rank_outside_the_world_is_refused(tmp_path: Path) -> None:
    done = run_script(RANK, counting_file(tmp_path / "c.bin"), env={**os.environ, "RANK": "2", "WORLD_SIZE": "2"})

    assert done.returncode == 1
    assert "OrderError: rank 2 is outside 0..1" in done.stderr


class Trainer:
    """As Lightning and Accelerate do it: iterate, save, load, and nothing else."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.seen: Ids = []

    def run(self, batches: int) -> None:
        iterator = iter(self.loader)
        for _ in range(batches):
            batch = next(iterator, None)
            if batch is None:
                iterator = iter(self.loader)
                batch = next(iterator)
            self.seen += inputs([batch])

    def checkpoint(self) -> bytes:
        file = io.BytesIO()
        torch.save({"loader": self.loader.state_dict(), "seen": self.seen}, file)
        return file.getvalue()

    def restore(self, checkpoint: bytes) -> None:
        saved = torch.load(io.BytesIO(checkpoint), weights_only=True)
        self.loader.load_state_dict(saved["loader"])
        self.seen = copy.copy(saved["seen"])


@pytest.mark.parametrize("stop", [0, 7, 25, 30])
def test_a_trainer_that_knows_only_states_and_iteration_resumes_exactly(tmp_path: Path, stop: int) -> None:
    with counting_loader(tmp_path, framework="torch") as loader:
        whole = Trainer(loader)
        whole.run(40)
    with counting_loader(tmp_path, framework="torch") as loader:
        first = Trainer(loader)
        first.run(stop)
        checkpoint = first.checkpoint()
        first.run(3)
    with counting_loader(tmp_path, framework="torch") as loader:
        second = Trainer(loader)
        second.restore(checkpoint)
        second.run(40 - stop)

    assert second.seen == whole.seen


def test_a_model_takes_a_batch_as_keywords(tmp_path: Path) -> None:
    embedding = torch.nn.Embedding(1001, 4)

    def model(input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> float:
        logits = embedding(input_ids) * attention_mask[..., None] @ embedding.weight.T
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        return float(loss.detach())

    with counting_loader(tmp_path, framework="torch", tail="pad", tokens=998) as loader:
        losses = [model(**batch) for batch in loader]

    assert len(losses) == 25
    assert all(loss > 0 for loss in losses)


def test_a_loader_without_a_length_is_used_up_to_the_last_short_batch(tmp_path: Path) -> None:
    with counting_loader(tmp_path, framework="torch", batch_size=7) as loader:
        sizes = [len(batch.input_ids) for batch in loader]

        assert sizes == [7] * 14 + [2]
        assert loader.get_num_batches() == 15
        assert len(take(loader, 15)) == 100
