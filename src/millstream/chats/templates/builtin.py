"""The built-in chat formats by name: what each is made of, what it has a form for, and its other names.

What a format has no form for is refused, not dropped.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace

from millstream.chats.parse import Conversation
from millstream.chats.templates import (
    chatml,
    deepseek,
    gemma,
    glm,
    harmony,
    llama,
    mistral,
    other_families,
    qwen,
)
from millstream.chats.templates.sheet import END_THINK, THINK, Slots
from millstream.errors import TemplateError

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


_FIRST = frozenset({"system"})
_CHATML = (qwen.START, qwen.END)
_LLAMA3 = (llama.OPEN, llama.CLOSE, llama.EOT)
_GLM = ("[gMASK]", "<sop>", glm.USER, glm.OBSERVATION, glm.SYSTEM, glm.ASSISTANT)
_THINK = (THINK, END_THINK)
_PHI3 = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
_INST = ("[INST]", "[/INST]")
_MISTRAL_TOOLS = (
    *("[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    *_INST,
)
_BEGIN, _S = "<|begin_of_text|>", ("<s>", "</s>")
_DEEPSEEK = (
    *(deepseek.USER, deepseek.ASSISTANT, deepseek.EOS, deepseek.OUTPUTS_END, "<｜tool▁outputs▁begin｜>"),
    *(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁sep｜>",
    ),
    *("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
)
_COHERE = tuple(f"<|{name}_TOKEN|>" for name in ("START_OF_TURN", "END_OF_TURN", "SYSTEM", "USER", "CHATBOT"))
_GEMMA4 = (
    *(gemma.TURN, gemma.END_TURN, gemma.CHANNEL, gemma.END_CHANNEL, gemma.RESPONSE, gemma.END_RESPONSE),
    *("<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>", "<|think|>", gemma.QUOTE),
)
_HARMONY = (harmony.START, harmony.MESSAGE, harmony.CHANNEL, harmony.END, harmony.RETURN, harmony.CALL)
_HARMONY_STOP = (harmony.RETURN, harmony.END, harmony.CALL)
_MISTRAL_V3 = Builtin(
    mistral.mistral_v3,
    _MISTRAL_TOOLS,
    ("",),
    bos=_S[0],
    eos=_S[1],
    roles=TOOLS,
    opening=_FIRST,
    schemas=True,
    calls=True,
)
_DEEPSEEK_V3 = Builtin(
    deepseek.deepseek_v3,
    _DEEPSEEK,
    (deepseek.EOS,),
    bos="<｜begin▁of▁sentence｜>",
    eos=deepseek.EOS,
    roles=TOOLS,
    calls=True,
    reasoning=True,
    looked_for=(END_THINK,),
)

BUILTINS: dict[str, Builtin] = {
    "chatml": Builtin(chatml.chatml, _CHATML, (qwen.END,), roles=ANY),
    "qwen2.5": Builtin(qwen.qwen25, _CHATML, (qwen.END,), roles=TOOLS, schemas=True, calls=True),
    "qwen3": Builtin(
        qwen.qwen3,
        (*_CHATML, *_THINK),
        (qwen.END,),
        roles=TOOLS,
        schemas=True,
        calls=True,
        reasoning=True,
        looked_for=(END_THINK, "<tool_response>"),
    ),
    "falcon-h1": Builtin(chatml.falcon_h1, _CHATML, (qwen.END,), bos=_BEGIN, roles=TOOLS, opening=_FIRST, schemas=True),
    "lfm2": Builtin(
        chatml.lfm2,
        (*_CHATML, "<|tool_list_start|>", "<|tool_list_end|>", "<|tool_response_start|>", "<|tool_response_end|>"),
        (qwen.END,),
        bos="<|startoftext|>",
        roles=ANY,
        schemas=True,
    ),
    "llama2": Builtin(llama.llama2, (), ("",), bos=_S[0], eos=_S[1], opening=_FIRST),
    "llama3": Builtin(llama.llama3, _LLAMA3, (llama.EOT,), bos=_BEGIN, roles=ANY),
    "llama3.1": Builtin(llama.llama31, _LLAMA3, (llama.EOT,), bos=_BEGIN, roles=ANY, schemas=True, calls=True),
    "llama4": Builtin(
        llama.llama4,
        (llama.OPEN4, llama.CLOSE4, llama.EOT4, "<|python_start|>", "<|python_end|>"),
        (llama.EOT4,),
        bos=_BEGIN,
        roles=ANY,
        schemas=True,
        calls=True,
    ),
    "gemma": Builtin(gemma.gemma, (gemma.START, gemma.END), (gemma.END,), bos="<bos>", roles=TALK),
    "gemma3": Builtin(gemma.gemma3, (gemma.START, gemma.END), (gemma.END,), bos="<bos>", opening=_FIRST),
    "gemma4": Builtin(
        gemma.gemma4,
        _GEMMA4,
        (gemma.END_TURN, gemma.RESPONSE),
        bos="<bos>",
        roles=ANY,
        schemas=True,
        calls=True,
        reasoning=True,
        looked_for=(gemma.CHANNEL, gemma.END_CHANNEL),
    ),
    "mistral-v1": Builtin(mistral.mistral_v1, (), ("",), bos=_S[0], eos=_S[1], opening=_FIRST),
    "mistral-v3": _MISTRAL_V3,
    "mistral-v3-tekken": replace(_MISTRAL_V3, slots=mistral.mistral_v3_tekken),
    "mistral-v7-tekken": Builtin(
        mistral.mistral_v7, (*_INST, "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"), ("",), bos=_S[0], eos=_S[1]
    ),
    "phi3": Builtin(other_families.phi3, _PHI3, ("<|end|>",), bos="<s>"),
    "phi3.5": Builtin(other_families.phi35, _PHI3, ("<|end|>",)),
    "phi4": Builtin(chatml.phi4, (*_CHATML, "<|im_sep|>"), (qwen.END,), opening=_FIRST),
    "zephyr": Builtin(other_families.zephyr, (), ("",), eos="</s>"),
    "vicuna": Builtin(other_families.vicuna, (), ("",), eos="</s>", opening=_FIRST),
    "alpaca": Builtin(other_families.alpaca, (), ("",), bos=_S[0], eos=_S[1], opening=_FIRST),
    "deepseek-v3": _DEEPSEEK_V3,
    "deepseek-r1": replace(_DEEPSEEK_V3, slots=deepseek.deepseek_r1),
    "cohere": Builtin(other_families.cohere, _COHERE, ("<|END_OF_TURN_TOKEN|>",), bos="<BOS_TOKEN>", opening=_FIRST),
    "glm4": Builtin(glm.glm4, _GLM, (glm.USER, glm.OBSERVATION), roles=TOOLS),
    "glm4-moe": Builtin(
        glm.glm4_moe,
        (*_GLM, *_THINK, "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
        (glm.USER, glm.OBSERVATION),
        roles=TOOLS,
        schemas=True,
        calls=True,
        reasoning=True,
        looked_for=(END_THINK, "/nothink"),
    ),
    "gpt-oss": Builtin(
        harmony.gpt_oss,
        _HARMONY,
        _HARMONY_STOP,
        roles=ANY,
        opening=frozenset({"system", "developer"}),
        schemas=True,
        calls=True,
        reasoning=True,
    ),
    "granite3": Builtin(
        other_families.granite3,
        ("<|start_of_role|>", "<|end_of_role|>", other_families.GRANITE_END),
        (other_families.GRANITE_END,),
        roles=ANY,
        schemas=True,
    ),
}

ALIASES = {
    "yi": "chatml",
    "qwen2": "qwen2.5",
    "falcon": "falcon-h1",
    "llama3.2": "llama3.1",
    "llama3.3": "llama3.1",
    "gemma1": "gemma",
    "gemma2": "gemma",
    "mistral": "mistral-v3",
    "mistral-v2": "mistral-v3",
    "mistral-v2v3": "mistral-v3",
    "mistral-tekken": "mistral-v3-tekken",
    "mistral-v7": "mistral-v7-tekken",
    "deepseek": "deepseek-v3",
    "aya": "cohere",
    "command-r": "cohere",
    "glm4.5": "glm4-moe",
    "harmony": "gpt-oss",
    "granite": "granite3",
}


def find(name: str) -> tuple[str, Builtin]:
    """Look a format up by its name or another name of it; case, "_" and "-" do not matter.

    >>> find("Llama_3.2")[0]
    'llama3.1'
    """
    wanted = _plain(name)
    for known, builtin in BUILTINS.items():
        if _plain(known) == wanted:
            return known, builtin
    for alias, known in ALIASES.items():
        if _plain(alias) == wanted:
            return known, BUILTINS[known]
    close = difflib.get_close_matches(name.lower(), [*BUILTINS, *ALIASES], n=1)
    meant = f"did you mean {close[0]!r}? " if close else ""
    raise TemplateError(
        f"there is no chat template {name!r}",
        hint=f"{meant}there are {', '.join(BUILTINS)}; a jinja template, its file or a tokenizer with one works too",
    )


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
