"""ChatML, and the formats that write turns in the same way."""

from __future__ import annotations

from millstream.chats.templates.qwen import END, START
from millstream.chats.templates.sheet import Sheet, as_json

_FALCON_TOOLS = (
    "You are a function calling AI model. You are provided with function signature within <tools> </tools> XML tags. "
    "You may call one or more functions to assist with the user query. "
    "Don't make assumptions about what values to plug into functions.\n<tools>\n"
)
_FALCON_CALLS = (
    "\n</tools>\nFor each function call, return a json object with function name and arguments within "
    "<tool_call> </tool_call> tags with the following schema:\n<tool_call>\n"
    "{'arguments': <args-dict>, 'name': <function-name>}\n</tool_call>\n"
)


def chatml(sheet: Sheet) -> None:
    """Every role in a turn of its own."""
    for at, message in enumerate(sheet.messages):
        sheet.turn(f"{START}{message.role}\n", message.content, END, "\n", at)
    if sheet.add_prompt:
        sheet.put(f"{START}assistant\n")


def falcon_h1(sheet: Sheet) -> None:
    """ChatML after a beginning-of-text token. With tools the system turn has no end: so the model knows it."""
    sheet.put(sheet.bos)
    first = int(sheet.system_first())
    if sheet.tools:
        sheet.put(f"{START}system\n", first - 1)
        if first:
            sheet.say(sheet.messages[0].content, 0)
            sheet.put("\n\n", 0)
        sheet.put(_FALCON_TOOLS, first - 1)
        for tool in sheet.tools:
            sheet.put(f"[{as_json(tool)}]", first - 1, given=True)
        sheet.put(_FALCON_CALLS, first - 1)
    elif first:
        sheet.turn(f"{START}system\n", sheet.messages[0].content, END, "\n", 0)
    _later(sheet, first, "", "")


def lfm2(sheet: Sheet) -> None:
    """ChatML after a beginning-of-text token, with tools listed in the system turn."""
    sheet.put(sheet.bos)
    first = int(sheet.system_first())
    system = sheet.messages[0].content if first else ""
    if system or sheet.tools:
        sheet.put(f"{START}system\n", first - 1)
        if first:
            sheet.say(system, 0)
        if sheet.tools:
            sheet.put(("\n" if system else "") + "List of tools: <|tool_list_start|>[", first - 1)
            sheet.put(", ".join(as_json(tool) for tool in sheet.tools), first - 1, given=True)
            sheet.put("]<|tool_list_end|>", first - 1)
        sheet.put(f"{END}\n", first - 1)
    _later(sheet, first, "<|tool_response_start|>", "<|tool_response_end|>")


def phi4(sheet: Sheet) -> None:
    """Turns without line breaks, the role set apart by a token."""
    for at, message in enumerate(sheet.messages):
        sheet.turn(f"{START}{message.role}<|im_sep|>", message.content, END, "", at)
    if sheet.add_prompt:
        sheet.put(f"{START}assistant<|im_sep|>")


def _later(sheet: Sheet, first: int, result: str, end_result: str) -> None:
    for at, message in enumerate(sheet.messages[first:], first):
        head, end = f"{START}{message.role}\n", END
        if message.role == "tool":
            head, end = head + result, end_result + end
        sheet.turn(head, message.content, end, "\n", at)
    if sheet.add_prompt:
        sheet.put(f"{START}assistant\n")
