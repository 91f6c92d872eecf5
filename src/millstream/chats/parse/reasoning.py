"""The reasoning of a message: a field of one of three names, or what stands in <think> tags before the answer."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.chats.parse.conversation import Stretch
from millstream.chats.parse.fields import Row, text
from millstream.errors import RecordError

NAMES = ("reasoning_content", "reasoning", "thinking")
_OPEN, _CLOSE = "<think>", "</think>"


def reasoning_of(message: Row, where: str) -> str | None:
    """The reasoning in a field of its own.

    >>> reasoning_of({"role": "assistant", "thinking": "hm"}, "")
    'hm'
    """
    found = {name: text(message[name], f"{where}.{name}") for name in NAMES if message.get(name) is not None}
    if len(set(found.values())) > 1:
        raise RecordError(
            "reasoning twice", f"{where} has {' and '.join(found)}, which differ", hint="keep one of these fields"
        )
    return next(iter(found.values()), None)


def split_think(content: str, stretches: Sequence[Stretch], where: str) -> tuple[str | None, str, tuple[Stretch, ...]]:
    """Reasoning, answer, and the stretches of the answer. Newlines around both belong to the tags.

    >>> split_think("<think>\\nhm\\n</think>\\n\\nYes.", [], "")
    ('hm', 'Yes.', ())
    >>> split_think("Yes.", [], "")
    (None, 'Yes.', ())
    """
    if not content.lstrip().startswith(_OPEN):
        return None, content, tuple(stretches)
    begin, end = content.find(_OPEN) + len(_OPEN), content.find(_CLOSE)
    if end < 0:
        raise RecordError(
            "open <think>",
            f"{where} begins with <think>, which is never closed",
            hint="the answer was cut: leave it out",
        )
    answer = content[end + len(_CLOSE) :].lstrip("\n")
    cut = len(content) - len(answer)
    if any(each.start < cut for each in stretches):
        raise RecordError(
            "flags in <think>",
            f"{where}: a stretch with a weight of its own begins in the reasoning",
            hint="put the reasoning into reasoning_content, or pass inline_think=False",
        )
    kept = tuple(Stretch(each.start - cut, each.stop - cut, each.weight) for each in stretches)
    return content[begin:end].strip("\n"), answer, kept
