"""What a built-in format is: slots, tokens, and what it has a form for. The rest is refused, not dropped."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.chats.builtin.sheet import Slots
from millstream.errors import TemplateError
from millstream.records.chat import Conversation

TALK = frozenset({"user", "assistant"})
SYSTEM = TALK | {"system"}
TOOLS = SYSTEM | {"tool"}
ANY = TOOLS | {"developer"}
_FOREIGN = ("builtin_tools", "custom_tools", "documents", "controls")


@dataclass(frozen=True, slots=True)
class Builtin:
    """A format: its slots, the tokens that it is made of, and what it has a form for."""

    slots: Slots
    control: tuple[str, ...]
    stop: tuple[str, ...]  # "" stands for the end-of-text token
    bos: str = ""
    eos: str = ""
    roles: frozenset[str] = SYSTEM
    opening: frozenset[str] = frozenset()  # roles that may only come first
    schemas: bool = False
    calls: bool = False
    reasoning: bool = False
    looked_for: tuple[str, ...] = ()  # texts in contents that change how a message is written

    def check(self, conversation: Conversation, *, drop_reasoning: bool) -> None:
        """Refuse what this format would drop in silence."""
        if conversation.tools and not self.schemas:
            raise TemplateError("this format has no form for tools", hint="choose qwen2.5 or another that has one")
        for key in _FOREIGN:
            if key in conversation.template_kwargs:
                raise TemplateError(
                    f"built-in formats have no form for {key!r}", hint="give the model's own jinja template instead"
                )
        roles, opening = self.roles, self.opening
        for at, message in enumerate(conversation.messages):
            role = message.role
            if role not in roles or (at and role in opening):
                self._refuse_role(role, at)
            if message.tool_calls and not (self.calls and role == "assistant"):
                raise TemplateError(
                    f"message {at}: this format has no form for tool calls of the role {role!r}",
                    hint="choose qwen2.5 or another that has one",
                )
            if message.reasoning and not (drop_reasoning or (self.reasoning and role == "assistant")):
                raise TemplateError(
                    f"message {at}: this format has no form for reasoning of the role {role!r}",
                    hint='leave it out with history_reasoning="drop", or choose qwen3 or another that has one',
                )

    def _refuse_role(self, role: str, at: int) -> None:
        place = "only as the first message" if role in self.roles else "not at all"
        raise TemplateError(
            f"message {at}: this format has the role {role!r} {place}",
            hint="change the row, or choose another format: chatml takes every role",
        )
