"""The page about advantages keeps up with the code."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import get_args

from millstream.advantages import AdvantageSettings
from millstream.advantages.estimators import _known, known_estimators
from millstream.batches import MeanOf

PAGE = (Path(__file__).parent.parent.parent / "docs/reference/advantages.md").read_text("utf-8")


def test_every_estimator_setting_and_way_of_aggregating_is_explained() -> None:
    ours = [name for name in known_estimators() if _known[name].reads is not None]
    settings = [field.name for field in fields(AdvantageSettings) if field.name != "estimator"]
    names = [*ours, *settings, *get_args(MeanOf)]
    assert len(ours) == 10
    assert [name for name in names if f"`{name}" not in PAGE] == []
