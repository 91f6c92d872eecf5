"""Tools and calls of them: schemas, names, arguments.

Tables give every struct the union of all keys, so null-valued keys are dropped here, and here only. What was written as
a JSON string is kept as it was written: no table has padded it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millstream.chats.parse.row_fields import Row, encodable, from_json, items, mapping, needed, text, text_or_none
from millstream.chats.parse.row_types import Message, ToolCall
from millstream.errors import RecordError

NO_CALL = "tool result without call"


def tools_of(row: Row) -> tuple[Mapping[str, Any], ...]:
    """The schemas in the field `tools`: objects, objects written as JSON, or an array of them written as JSON.

    >>> tools_of({"tools": [{"name": "f", "parameters": {"x": {"type": "string"}, "y": None}}]})
    ({'name': 'f', 'parameters': {'x': {'type': 'string'}}},)
    """
    value = row.get("tools")
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        value = from_json(value, "tools")
        return tuple(encodable(mapping(each, f"tools[{at}]"), f"tools[{at}]") for at, each in _listed(value))
    return tuple(_tool(each, f"tools[{place}]") for place, each in enumerate(items(value, "tools")))


def calls_of(message: Row, where: str) -> tuple[ToolCall, ...]:
    """The calls that a message makes, in `tool_calls` or the older `function_call`."""
    value = message.get("tool_calls")
    if value is not None:
        where = f"{where}.tool_calls"
        return tuple(call_of(each, f"{where}[{place}]") for place, each in enumerate(items(value, where)))
    value = message.get("function_call")
    return () if value is None else (call_of(value, f"{where}.function_call"),)


def written_calls(value: object, where: str) -> tuple[ToolCall, ...]:
    """Calls as ShareGPT has them: one object with a name and arguments, or an array of them, usually as JSON."""
    if isinstance(value, str):
        value = from_json(text(value, where), where)
    return tuple(call_of(each, where) for _, each in _listed(value))


def call_of(value: object, where: str) -> ToolCall:
    """One call; the arguments are an object or one written as JSON.

    >>> call_of({"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"b": 1, "a": null}'}}, "")
    ToolCall(name='f', arguments={'b': 1, 'a': None}, id='1')
    """
    call = mapping(value, where)
    inner = call.get("function")
    function = call if inner is None else mapping(inner, f"{where}.function")
    name = text(needed(function, "name", where), f"{where}.name")
    arguments, place = function.get("arguments"), f"{where}.arguments"
    if isinstance(arguments, str):
        arguments = from_json(arguments, place) if arguments.strip() else {}
    else:
        arguments = {} if arguments is None else without_nulls(arguments)
    kept = encodable(dict(mapping(arguments, place)), place)
    return ToolCall(name, kept, text_or_none(call.get("id"), f"{where}.id"))


def without_nulls(value: Any) -> Any:
    """A copy without null-valued keys, at any depth; nulls inside arrays stay.

    >>> without_nulls({"a": None, "b": [{"c": None}, None]})
    {'b': [{}, None]}
    """
    if isinstance(value, Mapping):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(each) for each in value]
    return value


def check_results(messages: Sequence[Message], *, calls_in_text: bool = False) -> None:
    """Check that every tool result answers a call of the assistant message before it.

    With `calls_in_text` that message need not list its calls: they may be spelled in its content.
    """
    if "tool" not in [each.role for each in messages]:
        return
    waiting: list[str | None] = []
    may_answer = free = False
    for place, message in enumerate(messages):
        if message.role != "tool":
            may_answer = message.role == "assistant"
            waiting = [call.id for call in message.tool_calls]
            free = calls_in_text and may_answer and not waiting
            continue
        if free:
            continue
        if not may_answer or not waiting:
            raise _no_call(place, "no call of the assistant is open there")
        named = message.tool_call_id
        if named is None or None in waiting:
            waiting.remove(named) if named in waiting else waiting.pop(0)
        elif named in waiting:
            waiting.remove(named)
        else:
            raise _no_call(place, f"it answers {named!r}, and the open calls are {', '.join(map(repr, waiting))}")


def _no_call(place: int, found: str) -> RecordError:
    hint = "an assistant message with tool_calls comes before it; or pass calls_in_text=True if contents spell them"
    return RecordError(NO_CALL, f"messages[{place}] is the result of a tool, but {found}", hint=hint)


def _tool(value: object, where: str) -> Mapping[str, Any]:
    if isinstance(value, str):
        return dict(encodable(mapping(from_json(value, where), where), where))
    return dict(encodable(without_nulls(mapping(value, where)), where))


def _listed(value: Any) -> list[tuple[int, Any]]:
    return list(enumerate(value if isinstance(value, list | tuple) else [value]))
