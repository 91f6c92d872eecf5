"""The formats of DeepSeek V3 and R1."""

from __future__ import annotations

from millstream.chats import Kind
from millstream.chats.templates.sheet import END_THINK, THINK, Sheet, as_json

ASSISTANT, USER = "<｜Assistant｜>", "<｜User｜>"
EOS = "<｜end▁of▁sentence｜>"
OUTPUTS_END = "<｜tool▁outputs▁end｜>"


def deepseek_v3(sheet: Sheet) -> None:
    """V3: every tool exchange is opened and closed."""
    _deepseek(sheet, mended=True, prompt=ASSISTANT)


def deepseek_r1(sheet: Sheet) -> None:
    """R1: answers begin with reasoning, which earlier turns lose; later tool exchanges are not opened again."""
    _deepseek(sheet, mended=False, prompt=f"{ASSISTANT}{THINK}\n")


def _deepseek(sheet: Sheet, *, mended: bool, prompt: str) -> None:
    sheet.put(sheet.bos)
    systems = [at for at, message in enumerate(sheet.messages) if message.role == "system"]
    for at in systems:
        sheet.put("\n\n" if at != systems[0] else "", at)
        sheet.say(sheet.messages[at].content, at)
    after_result, first_result, called = False, True, False
    for at, message in enumerate(sheet.messages):
        if message.role == "user":
            sheet.put(USER, at)
            sheet.say(message.content, at)
            after_result = False
        elif message.role == "tool":
            if mended and not after_result:
                first_result = True
            _result(sheet, at, opens=first_result)
            after_result, first_result = True, False
        elif message.tool_calls:
            if mended and after_result:
                sheet.put(OUTPUTS_END, at)
            _calls(sheet, at, opens=mended or not called)
            after_result, called = False, True
        elif message.role == "assistant":
            _answer(sheet, at, after_result=after_result)
            after_result = False
    if after_result:
        sheet.put(OUTPUTS_END)
    elif sheet.add_prompt:
        sheet.put(prompt)


def _answer(sheet: Sheet, at: int, *, after_result: bool) -> None:
    """An answer right after tool results has no head of its own and keeps what it says."""
    message = sheet.messages[at]
    sheet.put(OUTPUTS_END if after_result else ASSISTANT, at)
    _reasoning(sheet, at)
    text = message.content
    if not (after_result or sheet.keep):
        text = text.split(END_THINK)[-1]
    sheet.say(text, at)
    sheet.put(EOS, at, Kind.stop)


def _reasoning(sheet: Sheet, at: int) -> None:
    reasoning = sheet.messages[at].reasoning
    if sheet.keep and reasoning is not None:
        sheet.think(f"{THINK}\n", reasoning, f"\n{END_THINK}\n\n", at)


def _calls(sheet: Sheet, at: int, *, opens: bool) -> None:
    message = sheet.messages[at]
    if opens:
        sheet.put(ASSISTANT, at)
        _reasoning(sheet, at)
        sheet.say(message.content, at)
        sheet.put("<｜tool▁calls▁begin｜>", at, Kind.tool_call)
    elif message.content:
        raise sheet.refuse(
            "this format has no room for text beside a later tool call", at, "take the text out, or use deepseek-v3"
        )
    for place, call in enumerate(message.tool_calls):
        line = "" if opens and place == 0 else "\n"
        opening = f"{line}<｜tool▁call▁begin｜>function<｜tool▁sep｜>"
        sheet.call(at, opening, call.name, "\n```json\n", as_json(call.arguments), "\n```<｜tool▁call▁end｜>")
    sheet.put("<｜tool▁calls▁end｜>", at, Kind.tool_call)
    sheet.put(EOS, at, Kind.stop)


def _result(sheet: Sheet, at: int, *, opens: bool) -> None:
    sheet.put(("<｜tool▁outputs▁begin｜>" if opens else "") + "<｜tool▁output▁begin｜>", at)
    sheet.say(sheet.messages[at].content, at)
    sheet.put("<｜tool▁output▁end｜>", at)
