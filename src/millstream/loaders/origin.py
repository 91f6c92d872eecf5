"""Where a row came from."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Span:
    """Input tokens [start, stop) of a document, counted inside that document.

    >>> from millstream.loaders.pretrain import example_loader
    >>> with example_loader(shuffle=False) as loader:
    ...     loader.explain(0)[0].spans
    (Span(source='data', document=0, start=0, stop=4, file='...'),)
    """

    source: str
    document: int
    start: int
    stop: int
    file: str
    """Empty where there is none: rollouts of a feed are in the journal by their ids."""
    id: int | str | None = field(default=None, kw_only=True, repr=False)
    """That of the rollout; None for what has none."""


@dataclass(frozen=True)
class RowOrigin:
    """One row of a batch: its source and sample, the documents it was cut from and, with a tokenizer, its text.

    >>> from millstream.loaders.pretrain import example_loader
    >>> with example_loader(shuffle=False) as loader:
    ...     origin = loader.explain(0)[1]
    >>> origin.row, origin.source, origin.sample, [span.document for span in origin.spans]
    (1, 'data', 1, [0, 1])
    """

    row: int
    source: str
    sample: int
    spans: tuple[Span, ...]
    text: str | None = None
    use: int | None = None
    """Of a self-play game: how often it was used before."""
