"""The formats of Gemma: 1 to 3, and 4, which writes values and schemas in a notation whose quotes are a token.

Notation is a list of (text, given): what the notation supplies, and what comes from the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from millstream.chats import Kind
from millstream.chats.parse import Message
from millstream.chats.templates.sheet import Sheet

START, END = "<start_of_turn>", "<end_of_turn>"
TURN, END_TURN = "<|turn>", "<turn|>"
CHANNEL, END_CHANNEL = "<|channel>", "<channel|>"
RESPONSE, END_RESPONSE = "<|tool_response>", "<tool_response|>"
_Parts: TypeAlias = list[tuple[str, bool]]
QUOTE = '<|"|>'
_KNOWN = ("description", "type", "properties", "required", "nullable")


def gemma(sheet: Sheet) -> None:
    """Gemma 1 and 2: user and model, nothing else."""
    sheet.put(sheet.bos)
    sheet.alternate(0)
    _turns(sheet, 0)


def gemma3(sheet: Sheet) -> None:
    """Gemma 3: the system message opens the first question."""
    sheet.put(sheet.bos)
    first = int(sheet.system_first())
    sheet.alternate(first)
    _turns(sheet, first)


def _turns(sheet: Sheet, first: int) -> None:
    for at, message in enumerate(sheet.messages[first:], first):
        sheet.put(f"{START}{'model' if message.role == 'assistant' else message.role}\n", at)
        if at == 1 == first:
            sheet.say(sheet.messages[0].content, 0)
            sheet.put("\n\n", 0)
        sheet.say(message.content.strip(), at)
        sheet.end(END, at)
        sheet.put("\n", at)
    if sheet.add_prompt:
        sheet.put(f"{START}model\n")


def gemma4(sheet: Sheet) -> None:
    """Reasoning is kept only beside tool calls after the last question; a turn continues through its tool results."""
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
    if sheet.add_prompt and not open_turn:
        sheet.put(f"{TURN}model\n" + ("" if thinking else f"{CHANNEL}thought\n{END_CHANNEL}"))


def _system(sheet: Sheet, first: int, *, thinking: bool) -> None:
    sheet.put(f"{TURN}system\n" + ("<|think|>\n" if thinking else ""), first - 1)
    if first:
        sheet.say(sheet.messages[0].content.strip(), 0)
    for tool in sheet.tools:
        sheet.put("<|tool>", first - 1)
        for text, given in _declaration(tool["function"]):
            sheet.put(text, first - 1, given=given)
        sheet.put("<tool|>", first - 1)
    sheet.put(f"{END_TURN}\n", first - 1)


def _calls_and_results(sheet: Sheet, at: int) -> bool:
    """Write the calls of a message and the results that follow it; returns whether there were results."""
    message = sheet.messages[at]
    for call in message.tool_calls:
        sheet.call(at, "<|tool_call>call:", call.name, "{")
        for text, given in _fields(call.arguments):
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
        parts: _Parts = _value(sheet.messages[results].content)
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


def _value(argument: Any, *, quote_keys: bool = False) -> _Parts:
    """Write a value: texts between quotes, the rest nearly as JSON.

    >>> "".join(text for text, _ in _value(["a", True, {"n": 1}]))
    '[<|"|>a<|"|>,true,{n:1}]'
    """
    if isinstance(argument, str):
        return _quoted(argument)
    if isinstance(argument, bool):
        return [("true" if argument else "false", True)]
    if isinstance(argument, Mapping):
        return [("{", False), *_fields(argument, quote_keys=quote_keys), ("}", False)]
    if isinstance(argument, list | tuple):
        return [("[", False), *_listed(_value(each, quote_keys=quote_keys) for each in argument), ("]", False)]
    return [(str(argument), True)]


def _fields(argument: Mapping[str, Any], *, quote_keys: bool = False) -> _Parts:
    """Write the fields of an object, sorted by name."""
    return _listed(
        [*(_quoted(key) if quote_keys else [(key, True)]), (":", False), *_value(each, quote_keys=quote_keys)]
        for key, each in _sorted(argument)
    )


def _declaration(tool: Mapping[str, Any]) -> _Parts:
    """Write what a tool is and takes. A schema without a type leaves its brace open: so the model knows it."""
    written: _Parts = [("declaration:", False), (str(tool["name"]), True), ("{description:", False)]
    written += _quoted(str(tool.get("description", "")))
    if parameters := tool.get("parameters"):
        written.append((",parameters:{", False))
        if parameters.get("properties"):
            written += [("properties:{", False), *_properties(parameters["properties"]), ("},", False)]
        if parameters.get("required"):
            written += [*_required(parameters["required"]), (",", False)]
        if parameters.get("type"):
            written += [("type:", False), *_quoted(_upper(parameters["type"])), ("}", False)]
    if "response" in tool:
        response = tool["response"]
        written.append((",response:{", False))
        if _of(response, "description"):
            written += [("description:", False), *_quoted(str(response["description"])), (",", False)]
        if _upper(_of(response, "type", "")) == "OBJECT":
            written += [("type:", False), *_quoted("OBJECT"), ("}", False)]
    return [*written, ("}", False)]


def _properties(schemas: Mapping[str, Any], *, leave_known: bool = False) -> _Parts:
    return _listed(
        [(key, True), (":{", False), *_schema(schema), ("}", False)]
        for key, schema in _sorted(schemas)
        if not leave_known or key not in _KNOWN
    )


def _schema(schema: Any) -> _Parts:
    kind = _upper(_of(schema, "type", ""))
    written: list[_Parts] = []
    if _of(schema, "description"):
        written.append([("description:", False), *_quoted(str(schema["description"]))])
    if kind == "STRING" and _of(schema, "enum"):
        written.append([("enum:", False), *_value(schema["enum"], quote_keys=True)])
    if kind == "ARRAY" and isinstance(_of(schema, "items"), Mapping) and schema["items"]:
        written.append([("items:{", False), *_listed(_items(schema["items"])), ("}", False)])
    if _of(schema, "nullable"):
        written.append([("nullable:true", False)])
    if kind == "OBJECT":
        inner = _of(schema, "properties")
        named = _properties(inner) if isinstance(inner, Mapping) else _properties(schema, leave_known=True)
        written.append([("properties:{", False), *named, ("}", False)])
        if _of(schema, "required"):
            written.append(_required(schema["required"]))
    written.append([("type:", False), *_quoted(kind)])
    return _listed(written)


def _items(items: Mapping[str, Any]) -> Iterable[_Parts]:
    for key, each in _sorted(items):
        if each is None:
            continue
        if key == "properties":
            inner = _properties(each) if isinstance(each, Mapping) else []
            yield [("properties:{", False), *inner, ("}", False)]
        elif key == "required":
            yield _required(each)
        elif key == "type":
            kinds = _upper(each) if isinstance(each, str) else [_upper(one) for one in each]
            yield [("type:", False), *_value(kinds, quote_keys=True)]
        else:
            yield [(key, True), (":", False), *_value(each, quote_keys=True)]


def _required(names: Iterable[str]) -> _Parts:
    return [("required:[", False), *_listed(_quoted(str(name)) for name in names), ("]", False)]


def _quoted(text: str) -> _Parts:
    return [(QUOTE, False), (text, True), (QUOTE, False)]


def _listed(each: Iterable[_Parts]) -> _Parts:
    written: _Parts = []
    for parts in each:
        if written:
            written.append((",", False))
        written += parts
    return written


def _sorted(mapping: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(mapping.items(), key=lambda item: item[0].lower())


def _of(schema: Any, key: str, otherwise: Any = None) -> Any:
    return schema.get(key, otherwise) if isinstance(schema, Mapping) else otherwise


def _upper(kind: Any) -> str:
    return str(kind).upper()
