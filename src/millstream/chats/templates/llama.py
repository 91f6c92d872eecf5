"""The formats of Llama 2, 3, 3.1 and 4."""

from __future__ import annotations

from datetime import date

from millstream.chats import Kind
from millstream.chats.templates.sheet import Sheet, as_json, day_month_year

OPEN, CLOSE, EOT = "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"
OPEN4, CLOSE4, EOT4 = "<|header_start|>", "<|header_end|>", "<|eot|>"
_DATE = date(2024, 7, 26)
_TOOLS_IN_SYSTEM = (
    "You have access to the following functions. To call a function, please respond with JSON for a function call."
)
_TOOLS_IN_USER = (
    "Given the following functions, please respond with a JSON for a function call "
    "with its proper arguments that best answers the given prompt.\n\n"
)
_HOW_TO_CALL = (
    'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.'
    "Do not use variables.\n\n"
)


def llama2(sheet: Sheet) -> None:
    """Llama 2: a beginning-of-text token before every question, the system message inside the first one."""
    first = int(sheet.system_first())
    sheet.alternate(first)
    for at, message in enumerate(sheet.messages[first:], first):
        if message.role == "user":
            sheet.put(f"{sheet.bos}[INST] ", at)
            if at == 1 == first:
                sheet.put("<<SYS>>\n", 0)
                sheet.say(sheet.messages[0].content, 0)
                sheet.put("\n<</SYS>>\n\n", 0)
            sheet.say(message.content, at)
            sheet.put(" [/INST]", at)
        else:
            sheet.put(" ", at, Kind.content)
            sheet.say(message.content, at)
            sheet.put(" ", at, Kind.content)
            sheet.put(sheet.eos, at, Kind.stop)


def llama3(sheet: Sheet) -> None:
    """Llama 3: every role in a turn of its own, its text trimmed."""
    if sheet.messages:
        sheet.put(sheet.bos)
    for at, message in enumerate(sheet.messages):
        sheet.turn(f"{OPEN}{message.role}{CLOSE}\n\n", message.content.strip(), EOT, "", at)
    if sheet.add_prompt:
        sheet.put(f"{OPEN}assistant{CLOSE}\n\n")


def llama31(sheet: Sheet) -> None:
    """Llama 3.1 to 3.3: a system turn with the date in it, tools in the first question, results from `ipython`."""
    sheet.put(sheet.bos)
    first = int(sheet.system_first())
    in_user = bool(sheet.kwargs.get("tools_in_user_message", True))
    environment = "Environment: ipython\n" if sheet.tools else ""
    sheet.put(f"{OPEN}system{CLOSE}\n\n{environment}Cutting Knowledge Date: December 2023\nToday Date: ", first - 1)
    sheet.option("date_string", day_month_year(sheet.date or _DATE))
    sheet.put("\n\n", first - 1)
    if sheet.tools and not in_user:
        _tools(sheet, _TOOLS_IN_SYSTEM, first - 1)
    if first:
        sheet.say(sheet.messages[0].content.strip(), 0)
    sheet.put(EOT, first - 1)
    if sheet.tools and in_user:
        first = _tools_in_question(sheet, first, f"{OPEN}user{CLOSE}\n\n", EOT)
    for at, message in enumerate(sheet.messages[first:], first):
        if message.tool_calls:
            _one_call(sheet, at)
        elif message.role == "tool":
            sheet.turn(f"{OPEN}ipython{CLOSE}\n\n", as_json(message.content), EOT, "", at)
        else:
            sheet.turn(f"{OPEN}{message.role}{CLOSE}\n\n", message.content.strip(), EOT, "", at)
    if sheet.add_prompt:
        sheet.put(f"{OPEN}assistant{CLOSE}\n\n")


def llama4(sheet: Sheet) -> None:
    """Llama 4: as Llama 3.1 with other tokens, without a date, and several calls in one turn."""
    sheet.put(sheet.bos)
    first = int(sheet.system_first())
    in_user = bool(sheet.kwargs.get("tools_in_user_message", True))
    if first:
        sheet.put(f"{OPEN4}system{CLOSE4}\n\n" + ("Environment: ipython\n" if sheet.tools else ""), 0)
        if sheet.tools and not in_user:
            _tools(sheet, _TOOLS_IN_SYSTEM, 0)
        sheet.say(sheet.messages[0].content.strip(), 0)
        sheet.put(EOT4, 0)
    if sheet.tools and in_user:
        first = _tools_in_question(sheet, first, f"{OPEN4}user{CLOSE4}\n\n", EOT4)
    for at, message in enumerate(sheet.messages[first:], first):
        if message.tool_calls:
            sheet.put(f"{OPEN4}assistant{CLOSE4}\n\n", at)
            sheet.put("<|python_start|>", at, Kind.tool_call)
            sheet.say(message.content, at)
            sheet.put("<|python_end|>", at, Kind.tool_call)
            for call in message.tool_calls:
                sheet.call(at, '{"name": "', call.name, '", "parameters": ', as_json(call.arguments), "}")
            sheet.put(EOT4, at, Kind.stop)
        elif message.role == "tool":
            sheet.turn(f"{OPEN4}ipython{CLOSE4}\n\n", as_json(message.content), EOT4, "", at)
        else:
            sheet.turn(f"{OPEN4}{message.role}{CLOSE4}\n\n", message.content, EOT4, "", at)
    if sheet.add_prompt:
        sheet.put(f"{OPEN4}assistant{CLOSE4}\n\n")


def _tools(sheet: Sheet, introduction: str, at: int) -> None:
    sheet.put(introduction + _HOW_TO_CALL, at)
    for tool in sheet.tools:
        sheet.put(as_json(tool, indent=4), at, given=True)
        sheet.put("\n\n", at)


def _tools_in_question(sheet: Sheet, first: int, head: str, end: str) -> int:
    """Write the first question with the tools before it; returns where the rest begins."""
    if len(sheet.messages) == first or sheet.messages[first].role != "user":
        raise sheet.refuse(
            "tools are written into the first user message, and there is none",
            first,
            "let a user message come first, or give template_kwargs tools_in_user_message=False",
        )
    sheet.put(head, first)
    _tools(sheet, _TOOLS_IN_USER, first)
    sheet.say(sheet.messages[first].content.strip(), first)
    sheet.put(end, first)
    return first + 1


def _one_call(sheet: Sheet, at: int) -> None:
    message = sheet.messages[at]
    if len(message.tool_calls) > 1:
        raise sheet.refuse("this format has room for one tool call in a turn", at, "split the turn, or choose llama4")
    if message.content:
        raise sheet.refuse(
            "this format has no room for text beside a tool call", at, "take the text out, or choose another format"
        )
    call = message.tool_calls[0]
    sheet.put(f"{OPEN}assistant{CLOSE}\n\n", at)
    sheet.call(at, '{"name": "', call.name, '", "parameters": ', as_json(call.arguments), "}")
    sheet.put(EOT, at, Kind.stop)
