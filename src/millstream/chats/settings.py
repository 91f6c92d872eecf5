"""Settings of conversations: everything that decides how rows are encoded, except the tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from millstream.chats.answers import RowKind, check_kind, kind_of_format
from millstream.chats.encode import Boundary, Encoder
from millstream.chats.masks import Policy
from millstream.chats.media import Media, MediaTokens, check_media
from millstream.chats.parse import Options, RowFormats
from millstream.chats.templates import ChatTemplate
from millstream.chats.truncate import Limit
from millstream.errors import RecipeError
from millstream.sources import FoundFile, Reading
from millstream.tokens import Tokenizer

_VERSION = 3
"""Raise it when the same rows no longer give the same tokens: caches are keyed by it."""


@dataclass(frozen=True)
class ChatSettings:
    """How rows are read, rendered, encoded, weighed and shortened.

    >>> ChatSettings(ChatTemplate.of("chatml")).identity == ChatSettings(ChatTemplate.of("llama3")).identity
    False
    """

    template: ChatTemplate | None = None
    format: str | None = None
    options: Options = field(default_factory=Options)
    policy: Policy = field(default_factory=Policy)
    limit: Limit = field(default_factory=Limit)
    boundary: Boundary = "whole"
    trust_content: bool = False
    strict: bool = False
    add_control_tokens: bool = False
    check_template: bool = True
    media: Media = "refuse"
    media_tokens: MediaTokens = field(default_factory=dict)
    explode: bool = False
    """Whether each answer of the assistant becomes a row of its own, as inference saw it."""
    kind: RowKind | None = None
    """What rows are about; None: `format`, or the first row, says so."""

    @property
    def identity(self) -> list[Any]:
        """What tokens depend on, as JSON."""
        template = None if self.template is None else self.template.fingerprint
        flags: list[Any] = [
            self.boundary,
            self.trust_content,
            self.strict,
            self.add_control_tokens,
            self.explode,
            self.media,
        ]
        if self.media_tokens:
            flags.append(dict(self.media_tokens))
        options = [dict(self.options.columns), dict(self.options.roles)]
        ways = [self.options.inline_think, self.options.calls_in_text]
        kind = self.kind or (self.format and kind_of_format(self.format))
        return [_VERSION, template, self.format, kind, options, ways, asdict(self.policy), asdict(self.limit), flags]

    @property
    def description(self) -> dict[str, Any]:
        """What the manifest of a store says: which template, which policy."""
        return {
            "template": None if self.template is None else self.template.name,
            "format": self.format,
            "kind": self.kind,
            "train": asdict(self.policy),
            "max_length": self.limit.max_length,
            "truncation": self.limit.truncation,
            "boundary": self.boundary,
            "explode": self.explode,
            "media": self.media,
            "media_tokens": dict(self.media_tokens),
            "columns": dict(self.options.columns),
            "roles": dict(self.options.roles),
        }

    def formats(self, reading: Reading) -> RowFormats:
        """What tells the format of each file."""
        return RowFormats(reading, self.options, self.format)

    def decided(self, files: Sequence[FoundFile], formats: RowFormats) -> ChatSettings:
        """The settings with the kind of rows: that of `format`, or of the first row that can be used."""
        kind = self.kind
        if kind is None:
            found = iter([self.format]) if self.format else map(formats.of, files)
            kind = kind_of_format(next((name for name in found if name), None))
        check_media(self.media, self.media_tokens)
        if self.explode and (kind, self.policy.train) != ("chat", "assistant"):
            raise RecipeError(
                'history_reasoning="explode" makes a row of each answer, which does not go with '
                f"train={self.policy.train!r} and rows of the kind {kind!r}",
                hint="leave one of them out",
            )
        check_kind(kind, self.policy.train, self.limit.truncation, self.limit.max_length)
        return replace(self, kind=kind)

    def encoder(self, tokenizer: Tokenizer) -> Encoder:
        """Make what encodes rows; refuses a template that would train the tokenizer's model wrong."""
        # Where only the last turn of a row is trained, a template may render earlier ones as it likes.
        answers = self.kind not in (None, "chat")
        return Encoder(
            tokenizer,
            self.template,
            policy=replace(self.policy, train="last") if answers or self.explode else self.policy,
            boundary="split" if answers else self.boundary,
            trust_content=self.trust_content,
            strict=self.strict,
            add_control_tokens=self.add_control_tokens,
            media_tokens=self.media_tokens,
            check=self.check_template,
        )


@dataclass(frozen=True)
class DecidedChat:
    """How the rows of some files are encoded, decided once: their kind, the format of each file, and what encodes them.

    A loader decides before anything is made, and hands it to the run that makes its store; threads share it. Making an
    encoder takes up to a second: each process that receives this makes one of its own.
    """

    settings: ChatSettings
    formats: RowFormats
    encoder: Encoder

    @classmethod
    def of(
        cls, settings: ChatSettings, files: Sequence[FoundFile], reading: Reading, tokenizer: Tokenizer
    ) -> DecidedChat:
        """Decide; refuses settings that do not go with the rows, and a template that would train wrong."""
        formats = settings.formats(reading)
        return cls.with_encoder(settings.decided(files, formats), formats, tokenizer)

    @classmethod
    def with_encoder(cls, settings: ChatSettings, formats: RowFormats, tokenizer: Tokenizer) -> DecidedChat:
        """Settings that are decided already, with an encoder of this process."""
        return cls(settings, formats, settings.encoder(tokenizer))

    def __reduce__(self) -> tuple[Any, ...]:
        return DecidedChat.with_encoder, (self.settings, self.formats, self.encoder.tokenizer)
