"""Qwen's formats: ChatML with tools as JSON between tags and, from Qwen3 on, reasoning between think tags."""

from __future__ import annotations

from millstream.chats import Kind
from millstream.chats.templates.sheet import END_THINK, THINK, Sheet, as_json, inline_reasoning

START, END = "<|im_start|>", "<|im_end|>"
_DEFAULT = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
_EMPTY_THOUGHT = f"{THINK}\n\n{END_THINK}\n\n"
_TOOLS = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_CALLS = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)


def qwen25(sheet: Sheet) -> None:
    """Qwen2 and Qwen2.5: always a system message, the default one if need be."""
    _system(sheet, _DEFAULT)
    for at, message in enumerate(sheet.messages):
        if message.role == "tool":
            _tool_result(sheet, at)
        elif not message.tool_calls:
            if at or message.role != "system":
                sheet.turn(f"{START}{message.role}\n", message.content, END, "\n", at)
        else:
            sheet.put(f"{START}assistant\n", at)
            sheet.say(message.content, at)
            _tool_calls(sheet, at, apart=bool(message.content))
            _close(sheet, at)
    if sheet.add_prompt:
        sheet.put(f"{START}assistant\n")


def qwen3(sheet: Sheet) -> None:
    """Qwen3: reasoning before the last question is dropped; the training variant keeps a think block in every turn."""
    _system(sheet, None)
    query, last = _last_query(sheet), len(sheet.messages) - 1
    for at, message in enumerate(sheet.messages):
        if message.role == "tool":
            _tool_result(sheet, at)
        elif message.role != "assistant":
            if at or message.role != "system":
                sheet.turn(f"{START}{message.role}\n", message.content, END, "\n", at)
        else:
            reasoning, content = inline_reasoning(message)
            sheet.put(f"{START}assistant\n", at)
            if (sheet.keep or at > query) and (sheet.training or at == last or reasoning):
                sheet.think(f"{THINK}\n", reasoning.strip("\n"), f"\n{END_THINK}\n\n", at)
                sheet.say(content.lstrip("\n"), at)
            else:
                sheet.say(content, at)
            _tool_calls(sheet, at, apart=bool(content))
            _close(sheet, at)
    if sheet.add_prompt:
        sheet.put(f"{START}assistant\n")
        if sheet.kwargs.get("enable_thinking") is False:
            sheet.put(_EMPTY_THOUGHT)


def _system(sheet: Sheet, default: str | None) -> None:
    own = sheet.system_first()
    at = 0 if own else -1
    if not (own or default or sheet.tools):
        return
    sheet.put(f"{START}system\n", at)
    if own:
        sheet.say(sheet.messages[0].content, 0)
    else:
        sheet.put(default or "")
    if sheet.tools:
        sheet.put(("\n\n" if own or default else "") + _TOOLS, at)
        for tool in sheet.tools:
            sheet.put("\n", at)
            sheet.put(as_json(tool), at, given=True)
        sheet.put(_CALLS, at)
    sheet.put(f"{END}\n", at)


def _last_query(sheet: Sheet) -> int:
    """The last user message that is not a tool result in disguise; the last message if there is none."""
    for at in range(len(sheet.messages) - 1, -1, -1):
        message = sheet.messages[at]
        if message.role == "user" and not (
            message.content.startswith("<tool_response>") and message.content.endswith("</tool_response>")
        ):
            return at
    return len(sheet.messages) - 1


def _tool_calls(sheet: Sheet, at: int, *, apart: bool) -> None:
    for call in sheet.messages[at].tool_calls:
        opening = ("\n" if apart else "") + '<tool_call>\n{"name": "'
        sheet.call(at, opening, call.name, '", "arguments": ', as_json(call.arguments), "}\n</tool_call>")
        apart = True


def _tool_result(sheet: Sheet, at: int) -> None:
    """Results that follow each other share one user turn."""
    messages = sheet.messages
    opens = at == 0 or messages[at - 1].role != "tool"
    closes = at == len(messages) - 1 or messages[at + 1].role != "tool"
    sheet.put((f"{START}user" if opens else "") + "\n<tool_response>\n", at)
    sheet.say(messages[at].content, at)
    sheet.put("\n</tool_response>" + (f"{END}\n" if closes else ""), at)


def _close(sheet: Sheet, at: int) -> None:
    sheet.put(END, at, Kind.stop)
    sheet.put("\n", at)
