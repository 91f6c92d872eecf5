"""Language identification, with py3langid (97 languages, no download)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from millstream.errors import MissingExtra
from millstream.records.processor import DataProcessor, Outcome, Reject
from millstream.sources import Record

LONGEST = 20_000
"""Characters that are looked at: a language shows itself early."""


@dataclass(frozen=True)
class Language(DataProcessor):
    """Keep records in one of the languages (ISO 639-1), if the model is sure enough."""

    name = "language"

    keep: tuple[str, ...] = ("en",)
    min_confidence: float = 0.5

    def __post_init__(self) -> None:
        if find_spec("py3langid") is None:  # now, and not for every record
            raise MissingExtra.of("py3langid", "quality")

    def process(self, record: Record) -> Outcome:
        """Name the language, and judge."""
        language, confidence = _model().classify(record.text[:LONGEST])
        if language not in self.keep:
            return Reject(f"language is {language or 'unknown'}")
        return record if confidence >= self.min_confidence else Reject("language is not certain")

    def identity(self) -> dict[str, Any]:
        """The settings and the model's version."""
        return {"version": self.version, **self.settings(), "py3langid": version("py3langid")}


@cache
def _model() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
