"""Mistral's formats. The versions differ in spaces, in what is trimmed and in where the system message goes."""

from __future__ import annotations

from millstream.chats import Kind
from millstream.chats.parse import Message
from millstream.chats.templates.sheet import Sheet, as_json


def mistral_v1(sheet: Sheet) -> None:
    """v1: the system message opens the first question."""
    first = int(sheet.system_first())
    sheet.alternate(first)
    sheet.put(sheet.bos)
    for at, message in enumerate(sheet.messages[first:], first):
        if message.role == "user":
            sheet.put(" [INST] ", at)
            if at == 1 == first:
                _fold(sheet)
            sheet.say(message.content, at)
            sheet.put(" [/INST]", at)
        else:
            _answer(sheet, " ", message.content, at)


def mistral_v3(sheet: Sheet) -> None:
    """v2 and v3: the system message opens the last question, a space follows every token."""
    _with_tools(sheet, " ")


def mistral_v3_tekken(sheet: Sheet) -> None:
    """v3 with the tekken vocabulary: no spaces, nothing trimmed."""
    _with_tools(sheet, "")


def mistral_v7(sheet: Sheet) -> None:
    """v7: the system message stands for itself. No default one is made up."""
    sheet.put(sheet.bos)
    for at, message in enumerate(sheet.messages):
        if message.role == "assistant":
            _answer(sheet, "", message.content, at)
        else:
            name = "INST" if message.role == "user" else "SYSTEM_PROMPT"
            sheet.turn(f"[{name}]", message.content, f"[/{name}]", "", at)


def _with_tools(sheet: Sheet, space: str) -> None:
    messages = sheet.messages
    first = int(sheet.system_first())
    sheet.alternate(first)
    sheet.put(sheet.bos)
    last = max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)
    if first and last < 0:
        raise sheet.refuse("the system message opens the last question, and there is none", 0, "add a user message")
    for at, message in enumerate(messages[first:], first):
        if message.role == "user":
            if sheet.tools and _same(message, messages[last]):
                _tools(sheet, space, at)
            sheet.put(f"[INST]{space}", at)
            if first and at == last:
                _fold(sheet)
            sheet.say(message.content, at)
            sheet.put("[/INST]", at)
        elif message.tool_calls:
            _calls(sheet, space, at)
        elif message.role == "tool":
            sheet.put(f'[TOOL_RESULTS]{space}{{"content": ', at)
            sheet.say(message.content, at)
            sheet.put(', "call_id": "', at)
            sheet.put(_nine(sheet, message.tool_call_id, at), at, given=True)
            sheet.put('"}[/TOOL_RESULTS]', at)
        else:
            _answer(sheet, space, message.content.strip() if space else message.content, at)


def _fold(sheet: Sheet) -> None:
    sheet.say(sheet.messages[0].content, 0)
    sheet.put("\n\n", 0)


def _answer(sheet: Sheet, space: str, text: str, at: int) -> None:
    """The space before an answer is the model's to write: it is part of its first token."""
    sheet.put(space, at, Kind.content)
    sheet.say(text, at)
    sheet.put(sheet.eos, at, Kind.stop)


def _same(message: Message, last: Message) -> bool:
    """A question that repeats the last one word by word gets the tools too: so the models were trained."""
    return message.content == last.content and message.name == last.name


def _tools(sheet: Sheet, space: str, at: int) -> None:
    """Texts stand between quotes as they are, without escapes: so the models were trained."""
    written = []
    for tool in sheet.tools:
        fields = (
            f'"{key}": "{value}"' if isinstance(value, str) else f'"{key}": {as_json(value)}'
            for key, value in tool["function"].items()
            if key != "return"
        )
        written.append('{"type": "function", "function": {' + ", ".join(fields) + "}}")
    sheet.put(f"[AVAILABLE_TOOLS]{space}[", at)
    sheet.put(", ".join(written) + "]", at, given=True)
    sheet.put("[/AVAILABLE_TOOLS]", at)


def _calls(sheet: Sheet, space: str, at: int) -> None:
    message = sheet.messages[at]
    if message.content:
        raise sheet.refuse(
            "this format has no room for text beside a tool call", at, "take the text out, or choose another format"
        )
    written = (
        as_json({"name": call.name, "arguments": call.arguments})[:-1] + f', "id": "{_nine(sheet, call.id, at)}"}}'
        for call in message.tool_calls
    )
    sheet.call(at, f"[TOOL_CALLS]{space}[", ", ".join(written), "]")
    sheet.put(sheet.eos, at, Kind.stop)


def _nine(sheet: Sheet, name: str | None, at: int) -> str:
    if name is None or len(name) != 9:
        raise sheet.refuse(
            f"the id of a tool call is {name!r}, where this format needs 9 letters or digits",
            at,
            "give calls and their results ids of 9 letters or digits",
        )
    return name
