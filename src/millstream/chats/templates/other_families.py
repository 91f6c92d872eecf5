"""Formats whose turns are a head, a text and an end, and little else."""

from __future__ import annotations

from millstream.chats import Kind
from millstream.chats.templates.sheet import Sheet, as_json

_VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
_COHERE = {"system": "SYSTEM", "user": "USER", "assistant": "CHATBOT"}
_GRANITE_ROLE, _GRANITE_TEXT, GRANITE_END = "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"


def phi3(sheet: Sheet) -> None:
    """Phi-3: after a beginning-of-text token."""
    sheet.put(sheet.bos)
    for at, message in enumerate(sheet.messages):
        sheet.turn(f"<|{message.role}|>\n", message.content, "<|end|>", "\n", at)
    if sheet.add_prompt:
        sheet.put("<|assistant|>\n")


def phi35(sheet: Sheet) -> None:
    """Phi-3.5: as Phi-3, but an empty system message has no turn."""
    for at, message in enumerate(sheet.messages):
        if message.role != "system" or message.content:
            sheet.turn(f"<|{message.role}|>\n", message.content, "<|end|>", "\n", at)
    if sheet.add_prompt:
        sheet.put("<|assistant|>\n")


def zephyr(sheet: Sheet) -> None:
    """Zephyr: every turn ends with the end-of-text token."""
    for at, message in enumerate(sheet.messages):
        sheet.put(f"<|{message.role}|>\n", at)
        sheet.say(message.content, at)
        sheet.end(sheet.eos, at)
        sheet.put("\n", at)
    if sheet.add_prompt:
        sheet.put("<|assistant|>\n")


def vicuna(sheet: Sheet) -> None:
    """Vicuna 1.1: names and colons. The space after the assistant's colon is the assistant's to write."""
    first = int(sheet.system_first())
    sheet.alternate(first)
    if first:
        sheet.say(sheet.messages[0].content, 0)
    else:
        sheet.put(_VICUNA)
    sheet.put(" ", first - 1)
    for at, message in enumerate(sheet.messages[first:], first):
        if message.role == "user":
            sheet.turn("USER: ", message.content, " ", "", at)
        else:
            sheet.put("ASSISTANT:", at)
            sheet.put(" ", at, Kind.content)
            sheet.say(message.content, at)
            sheet.put(sheet.eos, at, Kind.stop)
    if sheet.add_prompt:
        sheet.put("ASSISTANT:")


def alpaca(sheet: Sheet) -> None:
    """Alpaca for many turns: headings, with an empty line between turns."""
    sheet.put(sheet.bos)
    for at, message in enumerate(sheet.messages):
        if at:
            sheet.put("\n\n", at)
        if message.role == "system":
            sheet.say(message.content, at)
        elif message.role == "user":
            sheet.put("### Instruction:\n", at)
            sheet.say(message.content, at)
        else:
            sheet.put("### Response:\n", at)
            sheet.say(message.content, at)
            sheet.put(sheet.eos, at, Kind.stop)
    if sheet.add_prompt:
        sheet.put("\n\n### Response:\n")


def cohere(sheet: Sheet) -> None:
    """Command R and Aya: a token for every role; questions and answers are trimmed."""
    sheet.put(sheet.bos)
    sheet.alternate(int(sheet.system_first()))
    for at, message in enumerate(sheet.messages):
        text = message.content if message.role == "system" else message.content.strip()
        head = f"<|START_OF_TURN_TOKEN|><|{_COHERE[message.role]}_TOKEN|>"
        sheet.turn(head, text, "<|END_OF_TURN_TOKEN|>", "", at)
    if sheet.add_prompt:
        sheet.put("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>")


def granite3(sheet: Sheet) -> None:
    """Granite 3: tools in a turn of their own after the system message. No default system message is made up."""
    for at, message in enumerate(sheet.messages):
        if at == int(sheet.system_first()):
            _granite_tools(sheet)
        sheet.turn(f"{_GRANITE_ROLE}{message.role}{_GRANITE_TEXT}", message.content, GRANITE_END, "\n", at)
    if sheet.add_prompt:
        sheet.put(f"{_GRANITE_ROLE}assistant{_GRANITE_TEXT}")


def _granite_tools(sheet: Sheet) -> None:
    if sheet.tools:
        sheet.put(f"{_GRANITE_ROLE}tools{_GRANITE_TEXT}")
        sheet.put(as_json(list(sheet.tools), indent=4), given=True)
        sheet.put(f"{GRANITE_END}\n")
