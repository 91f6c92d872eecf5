"""The names of other systems that the guide lists are those that are known."""

from __future__ import annotations

import re
from pathlib import Path

from millstream.rollouts.record import ALIASES, FINISH_WORDS, SIDES

FORMATS = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"


def test_every_other_name_is_documented() -> None:
    text = FORMATS.read_text().split("## Rollouts in other files")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*`) \| `(\w+)`.* \|$", text, re.MULTILINE)
    told = {name: field for names, field in rows for name in re.findall(r"`(\w+)`", names)}
    assert told == ALIASES
    assert all(f"`{name}`" in text for name in SIDES)
    assert all(f"`{word}`" in text for word, meant in FINISH_WORDS.items() if word not in (meant, "error"))
