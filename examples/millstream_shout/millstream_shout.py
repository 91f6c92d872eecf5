"""A processor from another package: what it takes is a class with a name, and an entry point (see pyproject.toml)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.records import DataProcessor, Reject
from millstream.sources import Record


@dataclass(frozen=True)
class Shout(DataProcessor):
    """Write texts in capitals; a whispered text is left out."""

    name = "shout"

    mark: str = "!"

    def process(self, record: Record) -> Record | Reject:
        """Raise the voice."""
        if record.text.startswith("psst"):
            return Reject("whispered")
        return replace(record, text=record.text.upper() + self.mark)
