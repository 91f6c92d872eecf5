"""Every format that has a name, and its other names."""

from __future__ import annotations

import difflib
from dataclasses import replace

from millstream.chats.builtin import chatml, deepseek, gemma, gemma4, glm, harmony, llama, mistral, plain, qwen
from millstream.chats.builtin.format import ANY, TALK, TOOLS, Builtin
from millstream.chats.builtin.gemma4_notation import QUOTE
from millstream.chats.builtin.sheet import END_THINK, THINK
from millstream.errors import TemplateError

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
    *(gemma4.TURN, gemma4.END_TURN, gemma4.CHANNEL, gemma4.END_CHANNEL, gemma4.RESPONSE, gemma4.END_RESPONSE),
    *("<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>", "<|think|>", QUOTE),
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
        gemma4.gemma4,
        _GEMMA4,
        (gemma4.END_TURN, gemma4.RESPONSE),
        bos="<bos>",
        roles=ANY,
        schemas=True,
        calls=True,
        reasoning=True,
        looked_for=(gemma4.CHANNEL, gemma4.END_CHANNEL),
    ),
    "mistral-v1": Builtin(mistral.mistral_v1, (), ("",), bos=_S[0], eos=_S[1], opening=_FIRST),
    "mistral-v3": _MISTRAL_V3,
    "mistral-v3-tekken": replace(_MISTRAL_V3, slots=mistral.mistral_v3_tekken),
    "mistral-v7-tekken": Builtin(
        mistral.mistral_v7, (*_INST, "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"), ("",), bos=_S[0], eos=_S[1]
    ),
    "phi3": Builtin(plain.phi3, _PHI3, ("<|end|>",), bos="<s>"),
    "phi3.5": Builtin(plain.phi35, _PHI3, ("<|end|>",)),
    "phi4": Builtin(chatml.phi4, (*_CHATML, "<|im_sep|>"), (qwen.END,), opening=_FIRST),
    "zephyr": Builtin(plain.zephyr, (), ("",), eos="</s>"),
    "vicuna": Builtin(plain.vicuna, (), ("",), eos="</s>", opening=_FIRST),
    "alpaca": Builtin(plain.alpaca, (), ("",), bos=_S[0], eos=_S[1], opening=_FIRST),
    "deepseek-v3": _DEEPSEEK_V3,
    "deepseek-r1": replace(_DEEPSEEK_V3, slots=deepseek.deepseek_r1),
    "cohere": Builtin(plain.cohere, _COHERE, ("<|END_OF_TURN_TOKEN|>",), bos="<BOS_TOKEN>", opening=_FIRST),
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
        plain.granite3,
        ("<|start_of_role|>", "<|end_of_role|>", plain.GRANITE_END),
        (plain.GRANITE_END,),
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
