"""The report as one self-contained page."""

from __future__ import annotations

from typing import Any


def render(report: dict[str, Any], name: str) -> str:
    """Draw the page."""
    return f"<!doctype html><title>{name}</title><pre>{report}</pre>"
