"""Harmony, the format of gpt-oss; it writes JSON schemas of tools as types of TypeScript.

Odd spaces and line breaks are the format's: the model has seen them so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from millstream.chats import Kind
from millstream.chats.parse import Message
from millstream.chats.templates.sheet import Sheet, as_json
from millstream.errors import TemplateError

START, MESSAGE, CHANNEL, END = "<|start|>", "<|message|>", "<|channel|>", "<|end|>"
RETURN, CALL = "<|return|>", "<|call|>"
_DATE = date(2025, 8, 5)  # of the model's release: a date must stand there, and today would change every day
_IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
_CHANNELS = "# Valid channels: analysis, commentary, final. Channel must be included for every message."
_TOOL_CHANNEL = "\nCalls to these tools must go to the commentary channel: 'functions'."
_SIMPLE = {"number": "number", "integer": "number", "boolean": "boolean"}
_ITEMS = {"string": "string[]", "number": "number[]", "integer": "number[]", "boolean": "boolean[]"}
_LONGEST_ITEM = 50


def gpt_oss(sheet: Sheet) -> None:
    """Only the last answer keeps its reasoning, and it ends with another token than the answers before it; in the
    training variant every answer is as it was generated."""
    _system(sheet)
    first = int(bool(sheet.messages) and sheet.messages[0].role in ("system", "developer"))
    _developer(sheet, first)
    tool = None
    for at, message in enumerate(sheet.messages[first:], first):
        if message.role == "user":
            sheet.turn(f"{START}user{MESSAGE}", message.content, END, "", at)
        elif message.role == "tool":
            if tool is None:
                raise sheet.refuse("a tool result without a tool call before it", at, "put the tool call before it")
            sheet.put(f"{START}functions.", at)
            sheet.put(tool, at, given=True)
            sheet.put(f" to=assistant{CHANNEL}commentary{MESSAGE}", at)
            sheet.say(as_json(message.content), at)
            sheet.put(END, at)
        elif message.tool_calls:
            tool = message.tool_calls[0].name
            _call(sheet, at)
        else:
            tool = None
            generated = sheet.training and sheet.keep
            _answer(sheet, at, ends=generated or (at == len(sheet.messages) - 1 and not sheet.add_prompt))
    if sheet.add_prompt:
        sheet.put(f"{START}assistant")


def _system(sheet: Sheet) -> None:
    sheet.put(f"{START}system{MESSAGE}")
    sheet.option("model_identity", _IDENTITY)
    sheet.put(f"\nKnowledge cutoff: 2024-06\nCurrent date: {(sheet.date or _DATE).isoformat()}\n\nReasoning: ")
    sheet.option("reasoning_effort", "medium")
    sheet.put(f"\n\n{_CHANNELS}{_TOOL_CHANNEL if sheet.tools else ''}{END}")


def _developer(sheet: Sheet, first: int) -> None:
    text = sheet.messages[0].content if first else ""
    if not (text or sheet.tools):
        return
    sheet.put(f"{START}developer{MESSAGE}", first - 1)
    if text:
        sheet.put("# Instructions\n\n", 0)
        sheet.say(text, 0)
        sheet.put("\n\n", 0)
    if sheet.tools:
        sheet.put("# Tools\n\n" + _namespace("functions", sheet.tools), first - 1, given=True)
    sheet.put(END, first - 1)


def _call(sheet: Sheet, at: int) -> None:
    """What is said before a call is reasoning; it goes when a final answer follows."""
    message = sheet.messages[at]
    if len(message.tool_calls) > 1:
        raise sheet.refuse("this format has room for one tool call in a turn", at, "split the turn into several")
    if message.content and message.reasoning:
        raise sheet.refuse(
            "text and reasoning beside a tool call", at, "put both into the reasoning, or leave out one of them"
        )
    answered = any(_is_answer(later) for later in sheet.messages[at + 1 :])
    before = message.content or message.reasoning
    if before and (sheet.keep or not answered):
        _say(sheet, "analysis", before, Kind.reasoning, at)
        sheet.put(END, at, Kind.reasoning)
        sheet.put(f"{START}assistant", at, Kind.tool_call)
    else:
        sheet.put(f"{START}assistant", at)
    call = message.tool_calls[0]
    sheet.call(at, " to=functions.", call.name, f"{CHANNEL}commentary json{MESSAGE}", as_json(call.arguments))
    sheet.put(CALL, at, Kind.stop)


def _answer(sheet: Sheet, at: int, *, ends: bool) -> None:
    message = sheet.messages[at]
    if message.reasoning is not None and (ends or sheet.keep):
        _say(sheet, "analysis", message.reasoning, Kind.reasoning, at)
        sheet.put(f"{END}{START}assistant", at, Kind.reasoning)
        sheet.put(f"{CHANNEL}final{MESSAGE}", at, Kind.content)
        sheet.say(message.content, at)
    else:
        _say(sheet, "final", message.content, Kind.content, at)
    sheet.put(RETURN if ends else END, at, Kind.stop)


def _say(sheet: Sheet, channel: str, text: str, kind: Kind, at: int) -> None:
    """The prompt ends before the channel: which one to use is the model's to say."""
    for tag in (f"{CHANNEL}analysis{MESSAGE}", f"{CHANNEL}final{MESSAGE}"):
        if tag in text:
            raise TemplateError(
                f"message {at}: the text holds {tag!r}",
                hint="give the reasoning and the answer of a message apart, without the tags of channels",
            )
    sheet.put(f"{START}assistant", at)
    sheet.put(f"{CHANNEL}{channel}{MESSAGE}", at, kind)
    sheet.put(text, at, kind, given=True)


def _is_answer(message: Message) -> bool:
    return message.role == "assistant" and not message.tool_calls


def _namespace(name: str, tools: Sequence[Mapping[str, Any]]) -> str:
    """Write the tools as functions of a namespace."""
    functions = "".join(_function(tool["function"]) for tool in tools)
    return f"## {name}\n\nnamespace {name} {{\n\n{functions}}} // namespace {name}"


def _function(tool: Mapping[str, Any]) -> str:
    if "description" not in tool:
        raise TemplateError(f"the tool {tool.get('name')!r} has no description", hint="this format needs one: add it")
    head = f"// {tool['description']}\ntype {tool['name']} = "
    parameters = tool.get("parameters") or {}
    if not parameters.get("properties"):
        return head + "() => any;\n\n"
    required = parameters.get("required") or []
    fields = (_parameter(name, spec, required) for name, spec in parameters["properties"].items())
    return head + "(_: {\n" + "".join(fields) + "}) => any;\n\n"


def _parameter(name: str, spec: Mapping[str, Any], required: Sequence[str]) -> str:
    comment = f"// {spec['description']}\n" if spec.get("description") else ""
    written = f"{comment}{name}{'' if name in required else '?'}: {_type(spec)}"
    if "default" in spec:
        if spec.get("enum"):
            written += f", // default: {spec['default']}"
        elif spec.get("oneOf"):
            written += f"// default: {spec['default']}"
        else:
            written += f", // default: {as_json(spec['default'])}"
    return written + ",\n"


def _type(spec: Mapping[str, Any]) -> str:
    kind = spec.get("type")
    if kind == "array":
        return _array(spec) + (" | null" if spec.get("nullable") else "")
    if isinstance(kind, list) and kind:
        return " | ".join(kind)
    if spec.get("oneOf"):
        return " | \n".join(map(_variant, spec["oneOf"]))
    if kind == "string":
        if spec.get("enum"):
            return '"' + '" | "'.join(map(str, spec["enum"])) + '"'
        return "string | null" if spec.get("nullable") else "string"
    if kind == "object":
        return _object(spec)
    return _SIMPLE.get(str(kind), "any")


def _array(spec: Mapping[str, Any]) -> str:
    items = spec.get("items")
    if not items:
        return "any[]"
    kind = items.get("type")
    if isinstance(kind, str) and kind in _ITEMS:
        return _ITEMS[kind]
    inner = _type(items)
    return "any[]" if inner == "object | object" or len(inner) > _LONGEST_ITEM else f"{inner}[]"


def _variant(spec: Mapping[str, Any]) -> str:
    written = _type(spec)
    if spec.get("description"):
        written += f"// {spec['description']}"
    if "default" in spec:
        written += " " * 20 + f"// default: {as_json(spec['default'])}"
    return written


def _object(spec: Mapping[str, Any]) -> str:
    if not spec.get("properties"):
        return "object"
    required = spec.get("required") or []
    fields = (
        f"{name}{'' if name in required else '?'}: \n" + " " * 16 + _type(inner)
        for name, inner in spec["properties"].items()
    )
    return "{\n" + ", ".join(fields) + "}"
