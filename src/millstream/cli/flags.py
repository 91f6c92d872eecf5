"""Words of Python -> flags of the command line."""

from __future__ import annotations

import re
from collections.abc import Container


def spoken_as_flags(hint: str, options: Container[str]) -> str:
    """Say a hint that names Python's arguments with the flags of this verb, as far as it has them.

    >>> spoken_as_flags('pass on_bad="skip", overwrite=True or dtype=; or tail="pad"', {"on_bad", "overwrite", "dtype"})
    'pass --on-bad skip, --overwrite or --dtype; or tail="pad"'
    >>> spoken_as_flags('columns={"messages": "dialog"}, or columns={"text": None}', {"columns"})
    '--columns messages=dialog, or --columns text='
    >>> spoken_as_flags("check_template=False, or pass roles={…} to add names", {"check_template", "roles"})
    '--no-check-template, or pass --roles to add names'
    >>> spoken_as_flags("number_of(rollout_id) finds one; ask loader.explain(step) in Python", {"rollout_id", "step"})
    '--rollout-id finds one; ask loader.explain(step) in Python'
    """

    def plain(value: str) -> str:
        """A value as a flag takes it: `{"messages": "dialog"}` is messages=dialog, and nothing is nothing."""
        if value.startswith("{"):
            return value.strip("{}").replace(": ", "=").replace('"', "").replace("=None", "=")
        return "none" if value == "None" else value.strip("\"'")

    def flag(match: re.Match[str]) -> str:
        name, value = match["name"], plain(match["value"] or "")
        if name not in options:
            return match[0]
        if value == "False":
            return f"--no-{name.replace('_', '-')}"
        return f"--{name.replace('_', '-')}" + (f" {value}" if value not in ("", "True", "…") else "")

    value = r"""\{…\}|\{"\w+": (?:"\w+"|None)\}|"[^"]*"|'[^']*'|[\w.]+"""
    asked = r"(?<![.\w])[a-z_]+\((?P<name>[a-z_]+)\)(?P<value>)"  # a call whose one argument is a flag
    hint = re.sub(asked, flag, hint)
    return re.sub(rf"\b(?P<name>[a-z_]+)=(?P<value>{value})?", flag, hint)
