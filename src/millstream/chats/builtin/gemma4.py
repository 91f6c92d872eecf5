"""The format of Gemma 4: tools in a notation of its own, results inside the model's turn, reasoning on a channel."""

from __future__ import annotations

from millstream.chats import Kind
from millstream.chats.builtin.gemma4_notation import Parts, declaration, fields, value
from millstream.chats.builtin.sheet import Sheet
from millstream.records.chat import Message

TURN, END_TURN = "<|turn>", "<turn|>"
CHANNEL, END_CHANNEL = "<|channel>", "<channel|>"
RESPONSE, END_RESPONSE = "<|tool_response>", "<tool_response|>"


def gemma4(sheet: Sheet) -> None:
    """Reasoning is kept only beside tool calls after the last question; a turn goes on through its tool results."""
    sheet.put(sheet.bos)
    messages = sheet.messages
    first = int(bool(messages) and messages[0].role in ("system", "developer"))
    thinking = bool(sheet.kwargs.get("enable_thinking"))
    if thinking or sheet.tools or first:
        _system(sheet, first, thinking=thinking)
    query = max((at for at, message in enumerate(messages) if message.role == "user"), default=-1)
    before, open_turn = "", False
    for at, message in enumerate(messages[first:], first):
        if message.role == "tool":
            continue
        assistant = message.role == "assistant"
        if not (assistant and before == "assistant"):
            sheet.put(f"{TURN}{'model' if assistant else message.role}\n", at)
        if message.reasoning and (sheet.keep or (at > query and message.tool_calls)):
            sheet.think(f"{CHANNEL}thought\n", message.reasoning, f"\n{END_CHANNEL}", at)
        answered = _calls_and_results(sheet, at)
        text = _visible(message.content) if assistant else message.content.strip()
        sheet.say(text, at)
        if message.tool_calls and not answered:
            sheet.put(RESPONSE, at, Kind.stop)
        elif text or not answered:
            sheet.end(END_TURN, at)
            sheet.put("\n", at)
        before, open_turn = message.role, bool(message.tool_calls)
    if sheet.asked and not open_turn:
        sheet.put(f"{TURN}model\n" + ("" if thinking else f"{CHANNEL}thought\n{END_CHANNEL}"))


def _system(sheet: Sheet, first: int, *, thinking: bool) -> None:
    sheet.put(f"{TURN}system\n" + ("<|think|>\n" if thinking else ""), first - 1)
    if first:
        sheet.say(sheet.messages[0].content.strip(), 0)
    for tool in sheet.tools:
        sheet.put("<|tool>", first - 1)
        for text, given in declaration(tool["function"]):
            sheet.put(text, first - 1, given=given)
        sheet.put("<tool|>", first - 1)
    sheet.put(f"{END_TURN}\n", first - 1)


def _calls_and_results(sheet: Sheet, at: int) -> bool:
    """Write the calls of a message and the results that follow it; returns whether there were results."""
    message = sheet.messages[at]
    for call in message.tool_calls:
        sheet.call(at, "<|tool_call>call:", call.name, "{")
        for text, given in fields(call.arguments):
            sheet.put(text, at, Kind.tool_call, given=given)
        sheet.call(at, "}<tool_call|>")
    if not message.tool_calls:
        return False
    results = at + 1
    while results < len(sheet.messages) and sheet.messages[results].role == "tool":
        if results == at + 1:
            sheet.put(RESPONSE, at, Kind.stop)
        else:
            sheet.put(RESPONSE, results)
        sheet.put("response:", results)
        sheet.put(_name(sheet, message, results), results, given=True)
        sheet.put("{value:", results)
        parts: Parts = value(sheet.messages[results].content)
        for text, given in parts:
            sheet.put(text, results, Kind.content if given else Kind.scaffold, given=given)
        sheet.put("}" + END_RESPONSE, results)
        results += 1
    return results > at + 1


def _name(sheet: Sheet, message: Message, result: int) -> str:
    """The name of the tool that gave a result: of the call with its id, else its own."""
    found = sheet.messages[result]
    name = found.name
    for call in message.tool_calls:
        if call.id == found.tool_call_id:
            name = call.name
    if name is None:
        raise sheet.refuse(
            "a tool result that names neither its tool nor a call",
            result,
            "give it a tool_call_id of a call, or a name",
        )
    return name


def _visible(text: str) -> str:
    """Take out what stands on channels."""
    return "".join(part.split(CHANNEL)[0] for part in text.split(END_CHANNEL)).strip()
