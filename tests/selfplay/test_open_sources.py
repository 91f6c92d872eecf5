"""Whoever only looks at games is told of everything that is not read."""

from __future__ import annotations

from pathlib import Path

from millstream import lint
from selfplay.growing_games import add


def test_lint_names_a_link_in_a_circle(tmp_path: Path) -> None:
    add(tmp_path, 0)
    link = tmp_path / "self.gz"
    link.symlink_to(link)
    found = {finding.message: finding.examples for finding in lint(tmp_path).findings}
    assert found["files that cannot be read: link in a circle"] == (f"{link}: it cannot be looked at",)
