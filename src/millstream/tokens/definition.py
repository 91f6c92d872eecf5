"""A `tokenizer.json` as its library writes it: a head of small parts, and the model, which is nearly all of it.

The model comes last and is left as text: most questions are about the head, and parsing a model takes a while.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from millstream.tokens.tokenizer import canonical, digest_of

_decode = json.JSONDecoder().raw_decode
_NO_MODEL = '{"type":"BPE","vocab":{},"merges":[]}'


def split_definition(definition: str) -> tuple[dict[str, Any], str]:
    """The head of a definition, parsed, and the text of its model.

    >>> split_definition('{"version":"1.0","added_tokens":[],"model":{"type":"BPE","vocab":{}}}')
    ({'version': '1.0', 'added_tokens': []}, '{"type":"BPE","vocab":{}}')
    """
    head: dict[str, Any] = {}
    key, at = _decode(definition, 1)
    while key != "model":
        head[key], at = _decode(definition, at + 1)
        key, at = _decode(definition, at + 1)
    return head, definition[at + 1 : -1]


def join_definition(head: Mapping[str, Any], model: str = _NO_MODEL) -> str:
    """A definition of a head and the text of a model, by default of one without any token.

    >>> split_definition(join_definition({"version": "1.0"}, "{}"))
    ({'version': '1.0'}, '{}')
    """
    members = [f"{json.dumps(key)}:{json.dumps(value)}" for key, value in head.items()]
    return "{" + ",".join([*members, f'"model":{model}']) + "}"


def fingerprint_of_definition(definition: str) -> str:
    """A hash of what decides the ids: not of truncation, padding, templates or the decoder.

    >>> small = '{"added_tokens":[],"normalizer":null,"pre_tokenizer":null,%s"model":{"type":"BPE","vocab":{}}}'
    >>> fingerprint_of_definition(small % "") == fingerprint_of_definition(small % '"decoder":{},')
    True
    """
    head, text = split_definition(definition)
    model, merges = split_merges(text)
    rest = {key: value for key, value in model.items() if key != "type"}
    added = [(token["id"], token["content"], token["special"]) for token in head["added_tokens"]]
    others = (added, head["normalizer"], head["pre_tokenizer"])
    return digest_of(f"[{','.join([canonical(rest), merges, *map(canonical, others)])}]")


def split_merges(model: str) -> tuple[dict[str, Any], str]:
    """The text of a model -> what it says but for its merges, parsed, and those, pairs all, as compact ASCII.

    >>> split_merges('{"type":"BPE","vocab":{"é":0},"merges":[["é","a"]]}')
    ({'type': 'BPE', 'vocab': {'é': 0}}, '[["\\\\u00e9","a"]]')
    """
    front, found, back = model.partition('},"merges":[[')  # in no string: a quote in one is escaped
    if found and back.endswith("]]}"):
        return json.loads(front + "}}"), _ascii("[[" + back[:-1])
    parsed = json.loads(model)
    merges = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in parsed.pop("merges", None) or []]
    return parsed, canonical(merges)


def _ascii(text: str) -> str:
    """Compact JSON with escapes for all but ASCII, and without those that `dumps` adds for quotes and escapes."""
    return json.dumps(text)[1:-1].replace('\\"', '"').replace("\\\\", "\\")
