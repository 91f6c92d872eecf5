"""Files of conversations -> what is wrong with them, in plain words, before a model learns it.

Files are read chunk by chunk, so memory does not grow with them. Each chunk is also encoded as a loader encodes it:
nothing passes that the loader would refuse.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from millstream.chats.answers import kind_of, wrong_kind
from millstream.chats.block import encode_block, exploded
from millstream.chats.encode import Encoder
from millstream.chats.lint_rules import PROBLEMS, TokenFacts, row_faults, token_faults
from millstream.chats.media import media_refused
from millstream.chats.parse import EXAMPLE_ROW, FIELDS, ChatRow, Conversation, RowFormats, RowParser, Tokens, wholes_of
from millstream.chats.pieces import Supervised
from millstream.chats.settings import ChatSettings
from millstream.chats.truncate import Limit
from millstream.errors import RecordError
from millstream.records import DuplicateFinder
from millstream.sources import (
    ChunkRead,
    Found,
    FoundFile,
    Reading,
    RecordBlock,
    check_gives_rows,
    format_named,
    object_in,
)
from millstream.stats import MOST_EXAMPLES, LintReport, OnProgress, Problem, Progress, Tally
from millstream.tokens import Tokenizer

_ADVICE = 'mend the row or leave it out; on_bad="skip" leaves out and counts such rows, "quarantine" keeps them aside'
_UNUSED = "nothing reads it: leave it out, or name what it holds with columns="
Where: TypeAlias = Callable[[int], str]


def lint_files(found: Found, settings: ChatSettings, tokenizer: Tokenizer | None, progress: OnProgress) -> LintReport:
    """Look at every row of some files. Without a tokenizer only at what rows say."""
    check_gives_rows(found.files)
    formats = settings.formats(Reading(whole_rows=True))
    settings = settings.decided(found.files, formats)
    with tempfile.TemporaryDirectory(prefix="millstream-lint-") as folder:
        linter = ChatLinter(settings, formats, tokenizer, DuplicateFinder(Path(folder, "keys"), key_words=2))
        before = 0
        for file in found.files:
            linter.begin_file(file)
            format = format_named(file.format)
            for chunk in format.chunks(file, linter.reading):
                linter.add_chunk(format.read(chunk, file, linter.reading), file)
                progress(Progress("lint", before + chunk.behind(file.bytes), found.bytes, "bytes", linter.so_far))
            before += file.bytes
        return linter.report(found.files)


class ChatLinter:
    """What is known of the rows so far."""

    def __init__(
        self, settings: ChatSettings, formats: RowFormats, tokenizer: Tokenizer | None, duplicates: DuplicateFinder
    ) -> None:
        self.reading = Reading(whole_rows=True)
        self.lines = self.rows = self.usable = self.tokens = self.trained = self.longest = 0
        self._settings, self._format_of, self._duplicates, self._tally = settings, formats.of, duplicates, Tally()
        self._problems = PROBLEMS | _severities(settings)
        self._formats: Counter[str] = Counter()
        self._lengths: Counter[int] = Counter()
        self._starts: list[int] = []  # the lines before each file
        self._encoder: Encoder | None = None
        if tokenizer is not None:
            self._loader = settings.encoder(tokenizer)
            self._encoder = replace(settings, strict=False).encoder(tokenizer) if settings.strict else self._loader
            self._facts = TokenFacts(_is_control(self._encoder), settings.limit.max_length)
        self._controls = _pattern(self._encoder, settings)

    @property
    def so_far(self) -> str:
        """What the progress says."""
        return f"{self.rows:,} rows, {len(self._tally.problems)} kinds of problems"

    def begin_file(self, file: FoundFile) -> None:
        """Start a file."""
        self._starts.append(self.lines)
        options = self._settings.options
        self._parser = RowParser(self._format_of(file), options)
        self._known = FIELDS | {name for name in options.columns.values() if name is not None}

    def add_chunk(self, read: ChunkRead, file: FoundFile) -> None:
        """Look at the rows of a chunk."""
        first = self.lines - self._starts[-1]
        self._wrong, self._reported = set[int](), set[int]()

        def where(row: int) -> str:
            return f"{file.name}:{first + row + 1}"

        for bad in read.bad:
            self._bad(RecordError(bad.reason, bad.found, hint=bad.hint), bad.row, where)
        rows: list[tuple[int, ChatRow]] = []
        for place, row in enumerate(read.block.rows.tolist()):
            try:
                raw = object_in(read.block.text_of(place), like=EXAMPLE_ROW)
                parsed = self._parser.parse(raw)
                for name in sorted(raw.keys() - self._known):
                    self._unused(name, where(row))
                self._refuse(parsed)
                rows.append((row, parsed))
            except RecordError as fault:
                self._bad(fault, row, where)
        for row, each in rows:
            self._faults(row_faults(each, self._controls), row, where)
        unusable = len(read.block) - len(rows)
        if self._encoder is not None:
            self._encode(self._encoder, rows, where)
            unusable = self._load(read.block, where)
        self.usable += len(read.block) - unusable
        self._formats[str(self._parser.format)] += len(rows)
        self._duplicates.add(_keys(rows, self.lines, read.rows), self.lines)
        self.lines += read.rows
        self.rows += read.rows - sum(read.skipped.values())

    def _refuse(self, row: ChatRow) -> None:
        """Refuse what a loader refuses whatever the tokenizer is."""
        kind = self._settings.kind or "chat"
        fault = wrong_kind(row, kind) if kind_of(row) != kind else None
        if fault is None and self._settings.media == "refuse":
            fault = media_refused(row)
        if fault is not None:
            raise fault

    def _load(self, block: RecordBlock, where: Where) -> int:
        """Encode as a loader would, and report rows that it refuses or leaves out; counts the refused."""
        how = self._settings
        made = encode_block(
            block,
            self._parser,
            self._loader,
            how.limit,
            how.kind or "chat",
            explode=how.explode,
            media=how.media,
        )
        refused = {bad.row: RecordError(bad.reason, bad.found, hint=bad.hint) for bad in made.bad}
        for row, fault in refused.items():
            if row not in self._wrong:
                self._bad(fault, row, where)
        reported = {*refused, *block.rows[made.places].tolist(), *self._reported}
        for row in block.rows.tolist():
            if row not in reported:
                self._faults([("left out", "")], row, where)
        return len(refused)

    def _encode(self, encoder: Encoder, rows: Iterable[tuple[int, ChatRow]], where: Where) -> None:
        """Look at the tokens."""
        parts = [(row, name, whole) for row, each in rows for name, whole in self._learned_of(each).items()]
        made = encoder.encode([whole for _, _, whole in parts], Limit(untrained="keep"))
        for row, fault in {parts[at][0]: fault for at, fault in made.faults.items()}.items():
            self._bad(fault, row, where)
        reported: set[tuple[int, str]] = set()  # a row counts once, however many answers it has
        for (row, name, whole), encoded in zip(parts, made.rows, strict=True):
            for each in encoded:
                self._count(each)
                new = [fault for fault in token_faults(whole, each, self._facts) if (row, fault[0]) not in reported]
                reported |= {(row, kind) for kind, _ in new}
                self._faults(new, row, where, name)

    def _learned_of(self, row: ChatRow) -> dict[str, ChatRow]:
        """The texts that a row becomes, by name."""
        if self._settings.explode and isinstance(row, Conversation):
            return {f"answer {number}": each for number, each in enumerate(exploded(row), 1)}
        return wholes_of(row)

    def _count(self, row: Supervised) -> None:
        self.tokens += len(row)
        self.trained += row.trained
        self.longest = max(self.longest, len(row))
        self._lengths[len(row).bit_length()] += 1

    def _faults(self, faults: Iterable[tuple[str, str]], row: int, where: Where, part: str = "") -> None:
        for kind, found in faults:
            self._reported.add(row)
            if self._problems[kind].severity == "error":
                self._wrong.add(row)
            self._tally.add(kind, self._problems[kind], f"{where(row)} {part}".rstrip(), found)

    def _bad(self, fault: RecordError, row: int, where: Where) -> None:
        self._wrong.add(row)
        message = f"rows that cannot be used: {fault.reason}"
        self._tally.add(fault.reason, Problem("error", message, fault.hint or _ADVICE), where(row), fault.found)

    def _unused(self, name: str, where: str) -> None:
        self._tally.add(f"unused field {name}", Problem("note", f"the field {name!r} is not used", _UNUSED), where)

    def report(self, files: Sequence[FoundFile]) -> LintReport:
        """Everything that was found."""
        if not self.rows:
            empty = Problem("error", "there is no row at all", "is this the right file?")
            self._tally.add("empty", empty, ", ".join(file.name for file in files[:3]), rows=0)
        duplicates = self._duplicates.finish()
        for copy, original in zip(duplicates.documents[:MOST_EXAMPLES], duplicates.originals, strict=False):
            found = f"the same as {self._address(int(original), files)}"
            self._tally.add("duplicate", PROBLEMS["duplicate"], self._address(int(copy), files), found)
        if len(duplicates) > MOST_EXAMPLES:
            self._tally.add("duplicate", PROBLEMS["duplicate"], "", rows=len(duplicates) - MOST_EXAMPLES)
        known: dict[str, Any] = {"tokens": self.tokens, "trained_tokens": self.trained, "longest": self.longest}
        return LintReport(
            self.rows,
            self.usable,
            dict(self._formats.most_common()),
            self._tally.findings(self.rows),
            **(known if self._encoder is not None else {}),
            lengths=dict(sorted(self._lengths.items())),
        )

    def _address(self, line: int, files: Sequence[FoundFile]) -> str:
        """The file and the line of a line that was counted through all files."""
        file = bisect_right(self._starts, line) - 1
        return f"{files[file].name}:{line - self._starts[file] + 1}"


def _severities(settings: ChatSettings) -> dict[str, Problem]:
    """Problems whose severity depends on the settings."""
    changed = {}
    if settings.limit.truncation != "error":
        advice = f"they become shorter, or are left out, by truncation={settings.limit.truncation!r}"
        changed["too long"] = PROBLEMS["too long"]._replace(severity="warning", advice=advice)
    if settings.limit.untrained != "error":
        changed["nothing learned"] = PROBLEMS["nothing learned"]._replace(severity="warning")
    if settings.strict:
        changed["straddler"] = PROBLEMS["straddler"]._replace(severity="error")
    if settings.policy.train == "all":
        changed["everything learned"] = PROBLEMS["everything learned"]._replace(severity="note")
    return changed


def _is_control(encoder: Encoder) -> NDArray[np.bool_]:
    ids = list(encoder.control_ids.values())
    is_control = np.zeros(max([encoder.tokenizer.vocab_size, *(id + 1 for id in ids)]), np.bool_)
    is_control[ids] = True
    return is_control


def _pattern(encoder: Encoder | None, settings: ChatSettings) -> re.Pattern[str] | None:
    """Finds the control strings that are known; those of one letter are texts like any other."""
    template = () if settings.template is None else settings.template.control_tokens
    known = {*template, *(() if encoder is None else encoder.control_ids)}
    texts = sorted((re.escape(text) for text in known if len(text) > 1), key=len, reverse=True)
    return re.compile("|".join(texts)) if texts else None


def _keys(rows: Iterable[tuple[int, ChatRow]], first: int, lines: int) -> NDArray[np.uint64]:
    """A key for each line: of what a row says, whatever else its fields hold; lines without a row have their own."""
    digests = [
        hashlib.blake2b(f"line {line}".encode(), digest_size=16).digest() for line in range(first, first + lines)
    ]
    for row, each in rows:
        said = (
            each.ids.tobytes() + each.weights.tobytes()
            if isinstance(each, Tokens)
            else repr(each).encode("utf-8", "surrogatepass")
        )
        digests[row] = hashlib.blake2b(said, digest_size=16).digest()
    return np.frombuffer(b"".join(digests), np.uint64).reshape(lines, 2)
