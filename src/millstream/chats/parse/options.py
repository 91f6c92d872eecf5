"""What the user says about the rows, beside their format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.errors import SourceError

ROLES = ("system", "user", "assistant", "tool", "developer")
FIELDS = frozenset(
    {
        *("messages", "conversations", "system", "tools", "chat_template_kwargs", "images", "videos", "audios"),
        *("instruction", "input", "output", "history"),
        *("text", "prompt", "completion", "chosen", "rejected", "label", "kto_tag", "completions", "labels"),
        *("input_ids", "attention_mask", "loss_mask", "completion_mask", "assistant_masks"),
    }
)
"""The fields of a row that some format reads."""

_OTHER_NAMES = {"function": "tool"}


@dataclass(frozen=True, slots=True)
class Options:
    """How rows are read.

    `columns` names the fields of the row that hold ours: `{"messages": "dialog"}`; None hides one: `{"text": None}`.
    `roles` adds names of roles: `{"bot": "assistant"}`. `inline_think=True` takes `<think>…</think>` at the beginning
    of an assistant's content as its reasoning. `calls_in_text=True` allows tool results after an assistant message
    that spells its calls in its content.

    >>> Options(roles={"bot": "robot"})
    Traceback (most recent call last):
    millstream.errors.SourceError: roles: 'bot' stands for 'robot', which is no role
      hint: choose one of system, user, assistant, tool, developer
    """

    columns: Mapping[str, str | None] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    inline_think: bool = False
    calls_in_text: bool = False
    role_of: Mapping[str, str] = field(init=False, repr=False)
    """Every name of a role -> the role."""

    def __post_init__(self) -> None:
        for name, role in self.roles.items():
            if role not in ROLES:
                raise SourceError(
                    f"roles: {name!r} stands for {role!r}, which is no role", hint=f"choose one of {', '.join(ROLES)}"
                )
        for name in self.columns:
            if name not in FIELDS:
                raise SourceError(
                    f"columns: no format has a field {name!r}",
                    hint=f'columns={{"messages": "dialog"}} reads the field dialog as messages; known: '
                    f"{', '.join(sorted(FIELDS))}",
                )
        object.__setattr__(self, "role_of", {role: role for role in ROLES} | _OTHER_NAMES | dict(self.roles))
