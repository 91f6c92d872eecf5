"""Conversation -> text in pieces, in the format that a model knows."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from datetime import date as Date  # noqa: N812 - `date` is the name of the argument
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from millstream.chats import Rendered
from millstream.chats.parse import Conversation
from millstream.chats.templates.builtin import Builtin, find
from millstream.chats.templates.sheet import Sheet
from millstream.errors import TemplateError

Variant: TypeAlias = Literal["prompt", "training"]
HistoryReasoning: TypeAlias = Literal["keep", "drop"]
_VERSION = 2  # of the built-in formats: a rendering that changes must change the fingerprint


class Renderer(Protocol):
    """What turns a conversation into pieces: a built-in format or a jinja template."""

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """Strings that must be single tokens."""

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings that end an assistant's turn."""

    def render(self, conversation: Conversation, *, add_generation_prompt: bool) -> Rendered:
        """Turn a conversation into pieces."""


@dataclass(frozen=True, slots=True)
class BuiltinRenderer:
    """A built-in format with its settings."""

    builtin: Builtin
    bos: str
    eos: str
    date: Date | None
    variant: Variant
    history_reasoning: HistoryReasoning | None

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """Strings that must be single tokens."""
        edges = (self.bos, self.eos if "" in self.builtin.stop else "")
        return tuple(dict.fromkeys(filter(None, (*edges, *self.builtin.control))))

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings that end an assistant's turn."""
        return tuple(filter(None, (stop or self.eos for stop in self.builtin.stop)))

    def render(self, conversation: Conversation, *, add_generation_prompt: bool) -> Rendered:
        """Turn a conversation into pieces."""
        history = self.history_reasoning
        self.builtin.check(conversation, drop_reasoning=history == "drop")
        training = self.variant == "training"
        sheet = Sheet(
            conversation.messages,
            conversation.tools,
            conversation.template_kwargs,
            self.bos,
            self.eos,
            self.date,
            training,
            history == "keep" or (training and history is None),
            add_generation_prompt,
        )
        try:
            self.builtin.slots(sheet)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise TemplateError(
                f"the tools, their calls or the template's arguments are not what this format can write: {error!r}",
                hint='a tool is {"type": "function", "function": {"name": …, "description": …, "parameters": schema}}',
            ) from error
        return sheet.pieces


class ChatTemplate:
    """The format in which a model knows conversations.

    >>> from millstream.chats.parse import Conversation, Message
    >>> template = ChatTemplate.of("chatml")
    >>> for piece in template.render(Conversation((Message("user", "Hi"), Message("assistant", "Hello!")))):
    ...     print(piece.message, piece.kind.name, repr(piece.text))
    0 scaffold '<|im_start|>user\\n'
    0 content 'Hi'
    0 scaffold '<|im_end|>\\n'
    1 scaffold '<|im_start|>assistant\\n'
    1 content 'Hello!'
    1 stop '<|im_end|>'
    1 scaffold '\\n'

    The texts joined are what `apply_chat_template(tokenize=False)` gives. Whatever a format has no form for (a role, a
    tool call, reasoning) is an error: nothing is dropped in silence.
    """

    def __init__(self, name: str, renderer: Renderer, fingerprint: str) -> None:
        self.name = name
        self.fingerprint = fingerprint
        self._renderer = renderer

    @classmethod
    def of(
        cls,
        template: object,
        *,
        bos_token: str | None = None,
        eos_token: str | None = None,
        date: Date | None = None,
        variant: Variant = "prompt",
        history_reasoning: HistoryReasoning | None = None,
    ) -> ChatTemplate:
        """Make a template of a name, a jinja template, its file or folder, or a tokenizer that has one.

        * `bos_token`, `eos_token`: what begins and ends a text. None: the model family's, or the tokenizer's
        * `date`: what templates print as today. None: the day that the family's own template falls back to; a jinja
          template that asks for the date needs one, since a rendering must not change from day to day
        * `variant="training"`: every turn is rendered as it was generated, whatever comes after it
        * `history_reasoning`: "drop" or "keep" the reasoning of earlier turns. None: as the variant does

        >>> ChatTemplate.of("qwen3", variant="training").stop
        ('<|im_end|>',)
        """
        if variant not in ("prompt", "training") or history_reasoning not in (None, "keep", "drop"):
            raise TemplateError(
                f"variant={variant!r}, history_reasoning={history_reasoning!r}",
                hint='variant is "prompt" or "training", history_reasoning is None, "keep" or "drop"',
            )
        settings: list[Any] = [_VERSION, bos_token, eos_token, date and date.isoformat(), variant, history_reasoning]
        source = _source(template)
        if source is None:
            name, builtin = find(str(template))
            native = BuiltinRenderer(
                builtin,
                builtin.bos if bos_token is None else bos_token,
                builtin.eos if eos_token is None else eos_token,
                date,
                variant,
                history_reasoning,
            )
            return cls(name, native, _fingerprint([name, *settings]))
        if history_reasoning is not None:
            raise TemplateError(
                f"history_reasoning={history_reasoning!r} with a jinja template",
                hint="such a template decides itself what it keeps: leave the setting out, or use a built-in format",
            )
        from millstream.chats.templates.jinja import JinjaTemplate

        bos = source.bos if bos_token is None else bos_token
        eos = source.eos if eos_token is None else eos_token
        jinja = JinjaTemplate(source.text, bos=bos, eos=eos, date=date, training=variant == "training")
        return cls(source.name, jinja, _fingerprint([source.text, bos, eos, *settings]))

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """The strings of the format that must be single tokens of the tokenizer.

        >>> ChatTemplate.of("gemma").control_tokens
        ('<bos>', '<start_of_turn>', '<end_of_turn>')
        """
        return self._renderer.control_tokens

    @property
    def stop(self) -> tuple[str, ...]:
        """The strings that can end an assistant's turn: generation stops at them."""
        return self._renderer.stop

    @property
    def looked_for(self) -> tuple[str, ...] | None:
        """What the format looks for in contents, beside white space around them; None: unknown."""
        return self._renderer.builtin.looked_for if isinstance(self._renderer, BuiltinRenderer) else None

    def render(self, conversation: Conversation, *, add_generation_prompt: bool = False) -> Rendered:
        """Turn a conversation into pieces, whose texts joined are the rendered conversation.

        >>> from millstream.chats.parse import Conversation, Message
        >>> pieces = ChatTemplate.of("llama3").render(Conversation((Message("user", " Hi "),)))
        >>> "".join(piece.text for piece in pieces)
        '<|begin_of_text|><|start_header_id|>user<|end_header_id|>\\n\\nHi<|eot_id|>'
        """
        try:
            return self._renderer.render(conversation, add_generation_prompt=add_generation_prompt)
        except TemplateError as error:
            raise type(error)(f"{self.name}: {error.message}", hint=error.hint) from error

    def __repr__(self) -> str:
        return f"ChatTemplate({self.name!r})"


@dataclass(frozen=True, slots=True)
class _JinjaSource:
    """The text of a jinja template, and the tokens that came with it."""

    name: str
    text: str
    bos: str = ""
    eos: str = ""


def _source(template: object) -> _JinjaSource | None:
    """The jinja template that is meant; None: the name of a built-in format."""
    if isinstance(template, str) and ("{{" in template or "{%" in template):
        return _JinjaSource("jinja", template)
    if isinstance(template, str | os.PathLike):
        path = Path(template)
        if path.is_dir():
            return _of_folder(path)
        if path.is_file():
            return _JinjaSource(path.name, path.read_text("utf-8"))
        if isinstance(template, str):
            return None
        raise TemplateError(f"{path}: there is no such file", hint="give the path of a jinja template")
    return _JinjaSource(
        str(getattr(template, "name_or_path", "") or type(template).__name__),
        _default(getattr(template, "chat_template", None), type(template).__name__),
        str(getattr(template, "bos_token", None) or ""),
        str(getattr(template, "eos_token", None) or ""),
    )


def _of_folder(folder: Path) -> _JinjaSource:
    """A model's folder: `chat_template.jinja`, or the field of `tokenizer_config.json`."""
    config, beside = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    try:
        fields = json.loads(config.read_text("utf-8")) if config.is_file() else {}
    except ValueError as error:
        raise TemplateError(f"{config}: {error}", hint="write the file again, or give the template itself") from error
    text = beside.read_text("utf-8") if beside.is_file() else _default(fields.get("chat_template"), str(folder))
    return _JinjaSource(folder.name, text, _token(fields.get("bos_token")), _token(fields.get("eos_token")))


def _default(template: object, where: str) -> str:
    """A tokenizer has one template, or several by name."""
    if isinstance(template, list):
        template = {each.get("name"): each.get("template") for each in template}
    if isinstance(template, dict):
        template = template.get("default")
    if isinstance(template, str):
        return template
    raise TemplateError(
        f"{where}: it has no chat template", hint='give the name of a format, such as "chatml", or a jinja template'
    )


def _token(token: object) -> str:
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")


def _fingerprint(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
