"""The formats of GLM-4 and GLM-4.5. A turn has no end of its own: the token of the next role ends it."""

from __future__ import annotations

from millstream.chats import Kind
from millstream.chats.templates.sheet import END_THINK, THINK, Sheet, as_json, inline_reasoning

PREFIX = "[gMASK]<sop>"
USER, OBSERVATION, SYSTEM, ASSISTANT = "<|user|>", "<|observation|>", "<|system|>", "<|assistant|>"
_HEADS = {"user": USER, "tool": OBSERVATION, "system": SYSTEM, "assistant": ASSISTANT}
_TOOLS = (
    "\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
)
_CALLS = (
    "</tools>\n\nFor each function call, output the function name and arguments within the following XML format:\n"
    "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</arg_value>\n"
    "<arg_key>{arg-key-2}</arg_key>\n<arg_value>{arg-value-2}</arg_value>\n...\n</tool_call>"
)


def glm4(sheet: Sheet) -> None:
    """GLM-4: every role in a turn of its own."""
    sheet.put(PREFIX)
    for at, message in enumerate(sheet.messages):
        _head(sheet, at)
        sheet.put("\n", at)
        sheet.say(message.content, at)
    _finish(sheet)


def glm4_moe(sheet: Sheet) -> None:
    """GLM-4.5: a think block in every answer, tools as XML. The training variant closes the last turn too."""
    sheet.put(PREFIX)
    if sheet.tools:
        sheet.put(SYSTEM + _TOOLS)
        for tool in sheet.tools:
            sheet.put(as_json(tool), given=True)
            sheet.put("\n")
        sheet.put(_CALLS)
    query = max((at for at, message in enumerate(sheet.messages) if message.role == "user"), default=-1)
    thinks = bool(sheet.kwargs.get("enable_thinking", True))
    for at, message in enumerate(sheet.messages):
        if message.role == "tool":
            _result(sheet, at)
            continue
        _head(sheet, at)
        if message.role == "assistant":
            _answer(sheet, at, keep=sheet.keep or at > query)
        else:
            sheet.put("\n", at)
            sheet.say(message.content, at)
            if message.role == "user" and not thinks and not message.content.endswith("/nothink"):
                sheet.put("/nothink", at)
    _finish(sheet)
    if sheet.add_prompt and not thinks:
        sheet.put(f"\n{THINK}{END_THINK}")


def _head(sheet: Sheet, at: int) -> None:
    """The token of a role, which also ends the assistant's turn before it: the assistant learns that one."""
    role = sheet.messages[at].role
    head = _HEADS[role]
    if at and sheet.messages[at - 1].role == "assistant" != role:
        sheet.put(head, at - 1, Kind.stop)
    else:
        sheet.put(head, at)


def _finish(sheet: Sheet) -> None:
    last = len(sheet.messages) - 1
    if sheet.training and last >= 0 and sheet.messages[last].role == "assistant":
        sheet.put(OBSERVATION if sheet.messages[last].tool_calls else USER, last, Kind.stop)
    if sheet.add_prompt:
        sheet.put(ASSISTANT)


def _answer(sheet: Sheet, at: int, *, keep: bool) -> None:
    reasoning, content = inline_reasoning(sheet.messages[at])
    sheet.think(f"\n{THINK}", reasoning.strip() if keep else "", END_THINK, at)
    if text := content.strip():
        sheet.put("\n", at, Kind.content)
        sheet.say(text, at)
    for call in sheet.messages[at].tool_calls:
        sheet.call(at, "\n<tool_call>", call.name, "\n")
        for key, value in call.arguments.items():
            written = value if isinstance(value, str) else as_json(value)
            sheet.call(at, "<arg_key>", key, "</arg_key>\n<arg_value>", written, "</arg_value>\n")
        sheet.call(at, "</tool_call>")


def _result(sheet: Sheet, at: int) -> None:
    if at == 0 or sheet.messages[at - 1].role != "tool":
        _head(sheet, at)
    sheet.put("\n<tool_response>\n", at)
    sheet.say(sheet.messages[at].content, at)
    sheet.put("\n</tool_response>", at)
