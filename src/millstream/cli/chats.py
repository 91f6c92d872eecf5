"""The options that say how conversations become tokens: the same for `prepare --kind chat`, `show` and `lint`."""

from __future__ import annotations

import argparse
import datetime
from typing import Any, get_args

from millstream.chats import Boundary, Choice, Media, Truncation, Untrained
from millstream.chats.templates import HistoryReasoning, Variant
from millstream.loaders import ChatKeywords

TEMPLATES = """\
A template is the name of a format (chatml, llama3.1, qwen3, gemma3, mistral-v3, …), a jinja file, or a model's folder.
Left out, it is the one that the tokenizer's folder brings."""


def add_chat_arguments(parser: argparse._ActionsContainer) -> None:
    """Declare them; what is not given is not passed on."""
    switch: dict[str, Any] = {"action": argparse.BooleanOptionalAction, "default": None}
    pair: dict[str, Any] = {"type": _pair, "action": "append", "metavar": "OURS=THEIRS", "default": None}
    add = parser.add_argument
    add("--chat-template", "--template", metavar="T", help="how a conversation is written, see below")
    add("--max-length", type=int, metavar="N", help="the most tokens of a conversation (default: any number)")
    add("--truncation", choices=get_args(Truncation), help="what becomes of longer ones (default: error)")
    add("--train", choices=get_args(Choice), help="whose words are learned (default: assistant)")
    add("--train-reasoning", help="learn the reasoning too (default: yes)", **switch)
    add("--train-tool-calls", help="learn calls of tools too (default: yes)", **switch)
    add("--mask-empty-think", help="do not learn empty think blocks (default: yes)", **switch)
    add("--untrained", choices=get_args(Untrained), help="conversations with nothing to learn (default: error)")
    add(
        "--boundary", choices=get_args(Boundary), help="encode as a whole, or split what the model writes from the rest"
    )
    add("--columns", help="fields with other names, e.g. messages=dialog; text= hides one; repeatable", **pair)
    add("--roles", help="other names of roles, e.g. bot=assistant; repeatable", **pair | {"metavar": "THEIRS=OURS"})
    add("--inline-think", help="<think>…</think> in a content is reasoning", **switch)
    add("--calls-in-text", help="calls of tools may be spelled in the content", **switch)
    add("--trust-content", help="control strings in the data are control tokens", **switch)
    add("--strict", help="refuse tokens that lie half in what is learned", **switch)
    add("--add-control-tokens", help="add the template's control tokens to the tokenizer", **switch)
    add("--check-template", help="refuse a template that would train wrong (default: yes)", **switch)
    add("--variant", choices=get_args(Variant), help="of the template: for generating, or for training")
    add("--media", choices=get_args(Media), help="rows with pictures, films or sounds (default: refuse)")
    add(
        "--media-tokens",
        help="with keep: what stands for one, e.g. image=<|image_pad|>; repeatable",
        **pair | {"metavar": "KIND=TOKEN"},
    )
    add(
        "--history-reasoning",
        choices=(*get_args(HistoryReasoning), "explode"),
        help="the reasoning of earlier turns; explode: a row for each answer",
    )
    add("--date", type=_date, metavar="YYYY-MM-DD", help="what the template prints as today")
    add("--bos-token", help="what begins a text (default: the template's)")
    add("--eos-token", help="what ends a text (default: the template's)")


def given_chat_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    """Those that were given, as keywords."""
    named = {name: getattr(arguments, name, None) for name in ChatKeywords.__annotations__}
    given = {name: value for name, value in named.items() if value is not None}
    for name in given.keys() & {"columns", "roles", "media_tokens"}:
        given[name] = {one: other or None for one, other in given[name]}
    return given


def _pair(text: str) -> tuple[str, str]:
    """Two names.

    >>> _pair("messages=dialog"), _pair("text=")
    (('messages', 'dialog'), ('text', ''))
    """
    one, equals, other = text.partition("=")
    if not equals or not one:
        raise argparse.ArgumentTypeError(f"{text!r}: write two names, such as messages=dialog")
    return one, other


def _date(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: write a day as 2026-01-31") from None
