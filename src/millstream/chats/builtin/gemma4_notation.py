"""JSON values and schemas in the notation of Gemma 4, whose quotes are a token.

Everything is a list of (text, given): what the notation supplies, and what comes from the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

Parts: TypeAlias = list[tuple[str, bool]]

QUOTE = '<|"|>'
_KNOWN = ("description", "type", "properties", "required", "nullable")


def value(argument: Any, *, quote_keys: bool = False) -> Parts:
    """Write a value: texts between quotes, the rest nearly as JSON.

    >>> "".join(text for text, _ in value(["a", True, {"n": 1}]))
    '[<|"|>a<|"|>,true,{n:1}]'
    """
    if isinstance(argument, str):
        return _quoted(argument)
    if isinstance(argument, bool):
        return [("true" if argument else "false", True)]
    if isinstance(argument, Mapping):
        return [("{", False), *fields(argument, quote_keys=quote_keys), ("}", False)]
    if isinstance(argument, list | tuple):
        return [("[", False), *_listed(value(each, quote_keys=quote_keys) for each in argument), ("]", False)]
    return [(str(argument), True)]


def fields(argument: Mapping[str, Any], *, quote_keys: bool = False) -> Parts:
    """Write the fields of an object, sorted by name."""
    return _listed(
        [*(_quoted(key) if quote_keys else [(key, True)]), (":", False), *value(each, quote_keys=quote_keys)]
        for key, each in _sorted(argument)
    )


def declaration(tool: Mapping[str, Any]) -> Parts:
    """Write what a tool is and takes. A schema without a type leaves its brace open: so the model knows it."""
    written: Parts = [("declaration:", False), (str(tool["name"]), True), ("{description:", False)]
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


def _properties(schemas: Mapping[str, Any], *, leave_known: bool = False) -> Parts:
    return _listed(
        [(key, True), (":{", False), *_schema(schema), ("}", False)]
        for key, schema in _sorted(schemas)
        if not leave_known or key not in _KNOWN
    )


def _schema(schema: Any) -> Parts:
    kind = _upper(_of(schema, "type", ""))
    written: list[Parts] = []
    if _of(schema, "description"):
        written.append([("description:", False), *_quoted(str(schema["description"]))])
    if kind == "STRING" and _of(schema, "enum"):
        written.append([("enum:", False), *value(schema["enum"], quote_keys=True)])
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


def _items(items: Mapping[str, Any]) -> Iterable[Parts]:
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
            yield [("type:", False), *value(kinds, quote_keys=True)]
        else:
            yield [(key, True), (":", False), *value(each, quote_keys=True)]


def _required(names: Iterable[str]) -> Parts:
    return [("required:[", False), *_listed(_quoted(str(name)) for name in names), ("]", False)]


def _quoted(text: str) -> Parts:
    return [(QUOTE, False), (text, True), (QUOTE, False)]


def _listed(each: Iterable[Parts]) -> Parts:
    written: Parts = []
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
