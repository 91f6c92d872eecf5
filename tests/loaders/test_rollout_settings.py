"""Keywords of loaders of rollouts mean what they say, and nothing that means nothing is taken."""

from __future__ import annotations

from typing import Any

import pytest

from millstream import RolloutDataLoader
from millstream.advantages import Overlong
from millstream.errors import LoaderError
from millstream.loaders.rollouts import StepSettings

RECORD = {"group_id": "g", "token_ids": [7, 8, 9], "loss_mask": [0, 1, 1], "finish": "stop"}
RECORDS = [{**RECORD, "rollout_id": number, "reward": float(number)} for number in range(2)]


@pytest.mark.parametrize(("loss", "wanted"), [("constant", 8.0), ("sequence_sum", 16.0)])
def test_a_loss_is_divided_by_the_constant_that_it_was_given(loss: Any, wanted: float) -> None:
    with RolloutDataLoader(RECORDS, batch_size=2, loss=loss, loss_constant=8, framework="numpy") as loader:
        assert loader.get_batch().metadata["loss_denominator"] == wanted


@pytest.mark.parametrize(
    ("loss", "constant"), [("constant", None), ("constant", 0), ("sequence_sum", float("nan")), ("token", 8)]
)
def test_a_constant_is_a_number_above_0_where_one_is_meant(loss: Any, constant: float | None) -> None:
    with pytest.raises(LoaderError, match="constant"):
        StepSettings(loss=loss, loss_constant=constant)


WRONG: list[dict[str, Any]] = [
    {"advantages": {"epsilon": "a"}},
    {"advantages": {"gamma": None}},
    {"advantages": {"kl_beta": [1]}},
    {"advantages": {"filter_truncated": "no"}},
    {"advantages": {"reward_weights": 5}},
    {"advantages": {"reward_weights": {"style": "much"}}},
    {"advantages": {"overlong": 5}},
    {"advantages": {"overlong": {"max_length": 8}}},
    {"advantages": {"overlong": {"max_length": 8, "bufer": 2}}},
    {"advantages": {"overlong": {"max_length": "8", "buffer": 2}}},
    {"advantages": {"estimator": None}},
    {"advantages": {5: 1}},
    {"estimator": None},
    {"estimator": ["grpo"]},
    {"loss": "constant", "loss_constant": "4"},
    {"cost": "x"},
    {"cost": None},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_settings_that_cannot_be_are_answered_with_a_hint(wrong: dict[str, Any]) -> None:
    with pytest.raises(LoaderError) as refused:
        RolloutDataLoader(RECORDS, framework="numpy", **wrong)
    assert refused.value.hint


def test_overlong_answers_are_punished_as_a_dict_says() -> None:
    for said in ({"max_length": 4, "buffer": 4}, Overlong(4, 4)):
        with RolloutDataLoader(RECORDS, advantages={"overlong": said}, framework="numpy") as loader:
            assert loader.rollouts.block["shaped_reward"].tolist() == [-0.5, 0.5]
