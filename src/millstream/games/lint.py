"""Games -> what is wrong with them, in plain words, before a network learns it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from millstream.errors import RecordError
from millstream.games.chunk_source import ChunkSource
from millstream.games.validity import Rules, check_rules, checked
from millstream.stats import LintReport, Problem, Severity, Tally

NOTHING: Mapping[str, int] = {}
_HARMLESS = ("not data", "member: not data")
_DROPPED = "loaders and ChunkFilter drop such games with rules={!r}; without rules they are learned"
_NO_GAMES = "games are .gz files and .tar archives of them; look at the path, or wait for the first ones"
_LEFT_OUT = "loaders leave it out, too, and count it; look at permissions and links, or wait until it is written"
_UNREADABLE = "loaders leave it out and count it; copy the file again, or remove it"


def lint_games(
    sources: Iterable[ChunkSource],
    bad: Iterable[tuple[str, str, str]] = (),
    left_out: Mapping[str, int] = NOTHING,
    *,
    rules: Rules = "moves",
    progress: Callable[[int, str], None] = lambda games, file: None,
) -> LintReport:
    """Read all games, and say which cannot be read and which break a rule; `bad` are files, why, and what was found;
    `left_out` counts by reason what else was not looked at.

    >>> lint_games([], bad=[("cut.gz", "truncated", "the file has 3 bytes")]).findings[0].examples
    ('cut.gz: the file has 3 bytes',)
    """
    check_rules(rules)
    tally, formats, games, usable = Tally(), Counter[str](), 0, 0
    for path, reason, found in bad:
        tally.add(reason, Problem("error", f"files that cannot be read: {reason}", _UNREADABLE), path, found)
    for source in sources:
        for index in range(len(source)):
            games += 1
            where = f"{source.path}, game {index}"
            try:
                frames = source.read(index)
            except RecordError as error:
                advice = error.hint or _UNREADABLE
                tally.add(
                    error.reason,
                    Problem("error", f"games that cannot be read: {error.reason}", advice),
                    where,
                    error.found,
                )
                continue
            formats[f"version {frames.fields['version'][0]}"] += 1
            try:
                checked(frames, rules)
                usable += 1
            except RecordError as error:
                tally.add(error.reason, Problem("error", error.reason, _DROPPED.format(rules)), where, error.found)
        progress(games, source.path)
    for reason, number in left_out.items():
        if reason not in tally.problems:
            severity: Severity = "note" if reason in _HARMLESS else "warning"
            advice = "loaders leave it out, too" if severity == "note" else _LEFT_OUT
            tally.add(reason, Problem(severity, f"what was left out: {reason}", advice), "", rows=number)
    if not games:
        tally.add("no games", Problem("error", "there are no games", _NO_GAMES), "", rows=0)
    return LintReport(games, usable, dict(formats.most_common()), tally.findings(games), noun="game")
