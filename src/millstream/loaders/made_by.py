"""How a store was made, as its manifest says, which comes from a disk and may say anything."""

from __future__ import annotations

from typing import Any

from millstream.store import TokenStore


def recipe_of(store: TokenStore) -> dict[str, Any]:
    """What a store says of how it was made; nothing, if nobody prepared it.

    >>> from millstream.loaders.pretrain import example_loader
    >>> recipe_of(example_loader().store), chat_recipe(example_loader().store)
    ({}, {})
    """
    return _dict(store.manifest.get("recipe"))


def chat_recipe(store: TokenStore) -> dict[str, Any]:
    """What a store says of how its conversations became tokens.

    >>> from types import SimpleNamespace
    >>> [chat_recipe(SimpleNamespace(manifest={"recipe": recipe})) for recipe in (3, {"chat": "x"}, {"chat": {"a": 1}})]
    [{}, {}, {'a': 1}]
    """
    return _dict(recipe_of(store).get("chat"))


def longest_chat(store: TokenStore) -> int | None:
    """The most tokens of a conversation that a store was made for; None: it does not say, or there is no limit."""
    most = chat_recipe(store).get("max_length")
    return most if isinstance(most, int) else None


def _dict(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
