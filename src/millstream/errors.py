"""Every error Millstream raises on purpose.

MillstreamError
├── SourceError        raw input that cannot be read or parsed
├── RecipeError        a step, a setting or a recipe that cannot work
├── TokenizerError     a tokenizer that is missing, unknown or unfit
├── StoreError         a token file or store that is damaged, foreign or unfinished
│   └── FingerprintError   the data is not the data that a state was saved for
├── OrderError         an impossible order: ranks, weights, positions
├── BatchError         arrays that do not fit together
├── LoaderError        settings or calls that cannot work
│   ├── BudgetError        memory_budget is too small, or the user holds every buffer
│   ├── StateError         a state that cannot be loaded here
│   ├── UnknownLength      what cannot be known before the data was read
│   └── ClosedError        the loader was closed
└── MissingExtra       an optional library is not installed (also an ImportError)

Each says where, what was found and, in its hint, what to try.
"""

from __future__ import annotations


class MillstreamError(Exception):
    """An error with a place, a finding and, where there is one, a hint.

    >>> print(StoreError("corpus/00000.bin: 12 bytes are missing", hint="copy the file again"))
    corpus/00000.bin: 12 bytes are missing
      hint: copy the file again
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\n  hint: {hint}")
        self.message = message
        self.hint = hint


class SourceError(MillstreamError):
    """Raw input that cannot be read or parsed."""


class RecipeError(MillstreamError):
    """A step, a setting or a recipe that cannot work."""


class TokenizerError(MillstreamError):
    """A tokenizer that is missing, unknown or unfit."""


class StoreError(MillstreamError):
    """A token file or store that is damaged, foreign or unfinished."""


class FingerprintError(StoreError):
    """The data is not the data that a state was saved for."""


class OrderError(MillstreamError):
    """An impossible order: ranks, weights, positions."""


class BatchError(MillstreamError):
    """Arrays that do not fit together."""


class LoaderError(MillstreamError):
    """Settings or calls that cannot work."""


class BudgetError(LoaderError):
    """The memory budget is too small, or the user holds every buffer."""


class StateError(LoaderError):
    """A state that cannot be loaded here."""


class UnknownLength(LoaderError):  # noqa: N818 - a promised name
    """Something that cannot be known before the data was read."""


class ClosedError(LoaderError):
    """The loader was closed."""


class MissingExtra(MillstreamError, ImportError):  # noqa: N818 - reads as a claim
    """An optional library is not installed.

    >>> print(MissingExtra.of("tokenizers", "tokenizers"))
    this needs the package 'tokenizers'
      hint: pip install 'millstream[tokenizers]'
    """

    @classmethod
    def of(cls, package: str, extra: str) -> MissingExtra:
        """Say which package is missing and which extra brings it."""
        return cls(f"this needs the package '{package}'", hint=f"pip install 'millstream[{extra}]'")
