"""Texts to judge: pages made from a seed, that come near every rule, and real ones from the standard library."""

from __future__ import annotations

import ast
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

FREQUENT = "the be to of and that have with a in is it for on as was at by an this"
NOUNS = """river mill water wheel grain flour stone market village morning evening bread carry turning slowly people
machine engine memory number simple answer question history learning system quality language"""
ODDITIES = """# ## ... … • - -- * naïve café Ünïcode 数据 данные data_set 3.14 1,000 don't [1] [12] [edit]
[citation needed] [٣] javaScript JavaScript lorem ipsum { } coo\u212aies cookies http://example.com/a?b=c 😀 ½
e.g. \u00a0x a\u0301 １ ► \u200b \x07 privacy policy terms of use uses cookies"""
COMMON, PLAIN, ODD = FREQUENT.split(), NOUNS.split(), ODDITIES.split(" ")
ENDS = [".", ".", ".", "!", "?", '."', "...", "…", "", ":", "。", " .", ".[3]", ". [4]", "'", "؟"]
BREAKS = ["\n", "\n", "\n", "\n\n", "\r\n", "\n\n\n", "\u2028", "\x0c", "\x85", "\r", " \n", "\n "]
STARTS = ["", "", "", "", "- ", "• ", "  ", "* ", "\t", "\u3000"]

CORNERS = (
    "",
    " \n",
    "\n\n".join([*(f"Paragraph {n} of the page." for n in range(9)), *["the long one of them, " * 9 + "and."] * 2]),
    "of the water " * 33_334,
)
"""Pages that chance does not make."""


def made_page(seed: int) -> str:
    """A page whose habits (vocabulary, repetition, line ends) are drawn from `seed`."""
    draw = random.Random(seed)
    shares = draw.choice([0, 1, 3]), draw.choice([0, 1, 1]), draw.choice([0, 0, 1])
    vocabulary = COMMON * shares[0] + PLAIN * shares[1] + ODD * shares[2] or PLAIN
    if draw.random() < 0.3:
        vocabulary = draw.sample(vocabulary, min(len(vocabulary), draw.randint(1, 12)))
    starts = STARTS if draw.random() < 0.5 else [draw.choice(STARTS)]
    ends = ENDS if draw.random() < 0.5 else [draw.choice(ENDS)]
    breaks = BREAKS if draw.random() < 0.4 else ["\n", draw.choice(BREAKS)]
    repeat = draw.choice([0.0, 0.0, 0.05, 0.3])
    longest = draw.choice([3, 8, 20, 60])
    lines: list[str] = []
    page = ""
    for _ in range(draw.choice([0, 1, 3, 8, 30])):
        if lines and draw.random() < repeat:
            line = draw.choice(lines)
        else:
            words = draw.choices(vocabulary, k=draw.randint(0, longest))
            if draw.random() < 0.01:
                words.append("x" * draw.choice([999, 1000, 1001]))
            line = draw.choice(starts) + " ".join(words).capitalize() + draw.choice(ends)
        lines.append(line)
        page += line + draw.choice(breaks)
    return page if draw.random() < 0.5 else page.strip()


def real_texts() -> Iterator[str]:
    """Sources of the standard library, and the docstrings in them."""
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")) + sorted(
        Path(sysconfig.get_paths()["stdlib"]).glob("*/*.py")
    ):
        if "site-packages" in path.parts or "lib2to3" in path.parts:
            continue
        try:
            source = path.read_text(encoding="utf-8")
            tree = ast.parse(source)
        except (UnicodeDecodeError, SyntaxError):
            continue
        yield source
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node)
                if text and len(text) > 200:
                    yield text
