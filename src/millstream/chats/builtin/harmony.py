"""The format of gpt-oss: channels for reasoning, tool calls and answers; tools as types of TypeScript."""

from __future__ import annotations

from datetime import date

from millstream.chats import Kind
from millstream.chats.builtin.sheet import Sheet, as_json
from millstream.chats.builtin.typescript import namespace
from millstream.errors import TemplateError
from millstream.records.chat import Message

START, MESSAGE, CHANNEL, END = "<|start|>", "<|message|>", "<|channel|>", "<|end|>"
RETURN, CALL = "<|return|>", "<|call|>"
_DATE = date(2025, 8, 5)  # of the model's release: a date must stand there, and today would change every day
_IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
_CHANNELS = "# Valid channels: analysis, commentary, final. Channel must be included for every message."
_TOOL_CHANNEL = "\nCalls to these tools must go to the commentary channel: 'functions'."


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
            _answer(sheet, at, ends=generated or (at == len(sheet.messages) - 1 and not sheet.asked))
    if sheet.asked:
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
        sheet.put("# Tools\n\n" + namespace("functions", sheet.tools), first - 1, given=True)
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
