"""What was found: kinds of problems, how often, where, and what to do about each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from millstream.stats.styled import Shown, Styled, bit_span, count, counted, share, visible

Severity: TypeAlias = Literal["error", "warning", "note"]
MOST_EXAMPLES = 3
MOST_KINDS = 100
EXAMPLE_LETTERS = 160
_RANK = {"error": 0, "warning": 1, "note": 2}


class Problem(NamedTuple):
    """A kind of problem: how bad it is, what it is, and what to do."""

    severity: Severity
    message: str
    advice: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, in how many rows it is, their share of all rows, some of them, and what to do.

    >>> Finding("duplicate", "warning", "rows that were there before", 2, 0.5, ("a.jsonl:3",), "leave them out").rows
    2
    """

    kind: str
    severity: Severity
    message: str
    rows: int
    share: float
    examples: tuple[str, ...]
    advice: str


class Tally:
    """Counts problems; memory does not grow with the rows."""

    def __init__(self) -> None:
        self.problems: dict[str, Problem] = {}
        self.rows: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def add(self, kind: str, problem: Problem, where: str, detail: str = "", rows: int = 1) -> None:
        """Count one more row, or several."""
        if kind not in self.problems:
            if len(self.problems) >= MOST_KINDS:  # names of fields can be anything
                return
            self.problems[kind], self.examples[kind] = problem, []
        self.rows[kind] += rows
        told = visible(f"{where}: {detail}" if detail else where)
        if told and len(self.examples[kind]) < MOST_EXAMPLES:
            self.examples[kind].append(told if len(told) <= EXAMPLE_LETTERS else told[: EXAMPLE_LETTERS - 1] + "…")

    def findings(self, rows: int) -> list[Finding]:
        """All problems, the worst first."""
        found = [
            Finding(kind, *problem[:2], self.rows[kind], self.rows[kind] / max(1, rows), examples, problem.advice)
            for kind, problem in self.problems.items()
            for examples in [tuple(self.examples[kind])]
        ]
        return sorted(found, key=lambda each: (_RANK[each.severity], -each.rows, each.kind))


@dataclass(frozen=True, slots=True)
class LintReport:
    """What is in some files and what is wrong with it.

    `lengths[b]` counts rows of [2^(b-1), 2^b) tokens. Without a tokenizer nothing is known of tokens: they are None.
    """

    rows: int
    usable: int
    formats: dict[str, int]
    findings: list[Finding]
    tokens: int | None = None
    trained_tokens: int | None = None
    longest: int | None = None
    lengths: dict[int, int] = field(default_factory=dict)
    largest_id: int | None = None
    """Of rollouts: a model needs a larger vocabulary."""
    noun: str = "row"
    """What a row is called."""

    @property
    def ok(self) -> bool:
        """Whether there is no error: warnings may be meant."""
        return all(finding.severity != "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {"ok": self.ok, **asdict(self)}

    def shown(self) -> Shown:
        """The report as text with styles."""
        return Shown(self._parts())

    def __str__(self) -> str:
        return str(self.shown())

    def _parts(self) -> Iterator[Styled]:
        formats = ", ".join(f"{name} {number:,}" for name, number in self.formats.items())
        yield Styled(
            f"{counted(self.rows, self.noun)}, {self.usable:,} usable{f' ({formats})' if formats else ''}\n", "heading"
        )
        if self.noun != "row":
            pass  # it has no tokens
        elif self.tokens is None or self.trained_tokens is None:
            yield Styled("no tokenizer was given: tokens, masks and lengths were not looked at\n", "note")
        else:
            learned = f"{count(self.trained_tokens)} learned ({share(self.trained_tokens, self.tokens)})"
            largest = "" if self.largest_id is None else f", largest id {self.largest_id:,}"
            longest = f"longest row {self.longest or 0:,}"
            yield Styled(f"{count(self.tokens)} tokens, {learned}, {longest}{largest}\n", "plain")
            spans = ", ".join(f"{bit_span(bits)}: {self.lengths[bits]:,}" for bits in sorted(self.lengths))
            yield Styled(f"rows by tokens  {spans}\n" if spans else "", "plain")
        for finding in self.findings:
            yield Styled(f"\n{finding.severity}", finding.severity)
            of_all = f"{counted(finding.rows, self.noun)}, {share(finding.rows, self.rows)}"
            yield Styled(f"  {finding.message}  ({of_all})\n", "heading")
            for example in finding.examples:
                yield Styled(f"    {example}\n", "plain")
            yield Styled(f"    → {finding.advice}\n", "note")
        severities = Counter(finding.severity for finding in self.findings)
        told = [counted(severities[each], each) for each in _RANK if severities[each]]  # type: ignore[index]
        yield Styled(f"\n{', '.join(told) or 'nothing is wrong'}\n", "heading")
