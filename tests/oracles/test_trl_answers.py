"""TRL's own collators: given the same prompts and answers, they make the batches that our loaders deliver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loaders.answers import LENGTH, TOKENIZER, Answers, rows_of_kind
from oracles.asked import asked

pytestmark = pytest.mark.oracle
dpo = asked("trl.trainer.dpo_trainer")
kto = asked("trl.trainer.kto_trainer")
PAD = 3
ROWS = 7


def ids(text: str, *, ends: bool = False) -> list[int]:
    """What TRL's trainers tokenise: prompts, and answers that end with the end of text."""
    assert TOKENIZER.eos_id is not None
    return [*TOKENIZER.encode(text), *([TOKENIZER.eos_id] if ends else [])]


def delivered(kind: str, labels: Any) -> dict[str, Any]:
    data = Answers(kind, ROWS, stored=True)
    with data.loader(shuffle=False, batch_size=ROWS, framework="torch", pad_id=PAD, labels=labels) as loader:
        return loader.next().trl_inputs()


def compare(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Equal, but that TRL pads to the longest row and we to the longest there may be."""
    assert set(ours) == set(theirs)
    for name, tensor in theirs.items():
        mine = ours[name]
        assert mine.dtype == tensor.dtype, name
        width = tensor.shape[1] if tensor.ndim == 2 else None
        assert np.array_equal(mine if width is None else mine[:, :width], tensor), name
        if width is not None:
            assert set(mine[:, width:].flatten().tolist()) <= {PAD if name.endswith("input_ids") else 0}, name


@pytest.mark.parametrize("labels", ["next", "same"])
def test_pairs_are_those_of_the_collator_for_preferences(labels: str) -> None:
    examples = [
        {
            "prompt_ids": ids(row["prompt"]),
            "chosen_ids": ids(row["chosen"], ends=True),
            "rejected_ids": ids(row["rejected"], ends=True),
        }
        for row in rows_of_kind("preference", ROWS)
    ]
    fitting = [each for each in examples if len(each["prompt_ids"] + each["chosen_ids"]) <= LENGTH]
    assert len(fitting) >= 4, "the first rows are not cut"
    ours = delivered("preference", labels)
    rows = [*range(len(fitting)), *range(ROWS, ROWS + len(fitting))]
    compare({name: tensor[rows] for name, tensor in ours.items()}, dpo.DataCollatorForPreference(PAD)(fitting))


@pytest.mark.parametrize("labels", ["next", "same"])
def test_judged_answers_are_those_of_the_collator_for_unpaired_preferences(labels: str) -> None:
    rows = rows_of_kind("kto", ROWS)
    examples = [
        {
            "prompt_ids": ids(row["prompt"]),
            "completion_ids": ids(row["completion"], ends=True),
            "KL_completion_ids": ids(rows[number ^ 1 if number ^ 1 < ROWS else number - 1]["completion"], ends=True),
            "label": row["label"],
        }
        for number, row in enumerate(rows)
    ]
    ours = delivered("kto", labels)
    fitting = [
        number
        for number, each in enumerate(examples)
        if len(each["prompt_ids"]) + max(len(each["completion_ids"]), len(each["KL_completion_ids"])) <= LENGTH
    ]
    assert len(fitting) >= 4
    theirs = kto.DataCollatorForUnpairedPreference(PAD)([examples[number] for number in fitting])
    compare({name: tensor[fitting] for name, tensor in ours.items()}, theirs)
