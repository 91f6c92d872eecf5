"""JSON schemas of tools -> the types of TypeScript that gpt-oss was trained on.

Odd spaces and line breaks are the format's: the model has seen them so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millstream.chats.builtin.sheet import as_json
from millstream.errors import TemplateError

_SIMPLE = {"number": "number", "integer": "number", "boolean": "boolean"}
_ITEMS = {"string": "string[]", "number": "number[]", "integer": "number[]", "boolean": "boolean[]"}
_LONGEST_ITEM = 50


def namespace(name: str, tools: Sequence[Mapping[str, Any]]) -> str:
    """Write the tools as functions of a namespace."""
    functions = "".join(_function(tool["function"]) for tool in tools)
    return f"## {name}\n\nnamespace {name} {{\n\n{functions}}} // namespace {name}"


def _function(tool: Mapping[str, Any]) -> str:
    if "description" not in tool:
        raise TemplateError(f"the tool {tool.get('name')!r} has no description", hint="this format needs one: add it")
    head = f"// {tool['description']}\ntype {tool['name']} = "
    parameters = tool.get("parameters") or {}
    if not parameters.get("properties"):
        return head + "() => any;\n\n"
    required = parameters.get("required") or []
    fields = (_parameter(name, spec, required) for name, spec in parameters["properties"].items())
    return head + "(_: {\n" + "".join(fields) + "}) => any;\n\n"


def _parameter(name: str, spec: Mapping[str, Any], required: Sequence[str]) -> str:
    comment = f"// {spec['description']}\n" if spec.get("description") else ""
    written = f"{comment}{name}{'' if name in required else '?'}: {_type(spec)}"
    if "default" in spec:
        if spec.get("enum"):
            written += f", // default: {spec['default']}"
        elif spec.get("oneOf"):
            written += f"// default: {spec['default']}"
        else:
            written += f", // default: {as_json(spec['default'])}"
    return written + ",\n"


def _type(spec: Mapping[str, Any]) -> str:
    kind = spec.get("type")
    if kind == "array":
        return _array(spec) + (" | null" if spec.get("nullable") else "")
    if isinstance(kind, list) and kind:
        return " | ".join(kind)
    if spec.get("oneOf"):
        return " | \n".join(map(_variant, spec["oneOf"]))
    if kind == "string":
        if spec.get("enum"):
            return '"' + '" | "'.join(map(str, spec["enum"])) + '"'
        return "string | null" if spec.get("nullable") else "string"
    if kind == "object":
        return _object(spec)
    return _SIMPLE.get(str(kind), "any")


def _array(spec: Mapping[str, Any]) -> str:
    items = spec.get("items")
    if not items:
        return "any[]"
    kind = items.get("type")
    if isinstance(kind, str) and kind in _ITEMS:
        return _ITEMS[kind]
    inner = _type(items)
    return "any[]" if inner == "object | object" or len(inner) > _LONGEST_ITEM else f"{inner}[]"


def _variant(spec: Mapping[str, Any]) -> str:
    written = _type(spec)
    if spec.get("description"):
        written += f"// {spec['description']}"
    if "default" in spec:
        written += " " * 20 + f"// default: {as_json(spec['default'])}"
    return written


def _object(spec: Mapping[str, Any]) -> str:
    if not spec.get("properties"):
        return "object"
    required = spec.get("required") or []
    fields = (
        f"{name}{'' if name in required else '?'}: \n" + " " * 16 + _type(inner)
        for name, inner in spec["properties"].items()
    )
    return "{\n" + ", ".join(fields) + "}"
