"""The native text functions once more, in plain Python: what they are compared with."""

from __future__ import annotations

import re
import runpy
import unicodedata
from pathlib import Path

TABLES = runpy.run_path(str(Path(__file__).parents[2] / "csrc" / "unicode_ranges.py"))
JOINERS = "'.’"
TERMINALS = re.escape("…" + "".join(map(chr, sorted(TABLES["parse"](TABLES["TERMINAL"])))))
CLOSERS = re.escape("\"')]’”»")
ENDS_SENTENCE = re.compile(rf"[{TERMINALS}][{TERMINALS}{CLOSERS}]*\Z")


def in_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN" or character == "_"


def words(text: str) -> list[str]:
    """Runs of word characters, joined by one apostrophe or full stop; runs of the same other character."""
    out: list[str] = []
    at = 0
    while at < len(text):
        begin = at
        if text[at].isspace():
            at += 1
            continue
        if in_word(text[at]):
            while at < len(text) and (
                in_word(text[at]) or (text[at] in JOINERS and at + 1 < len(text) and in_word(text[at + 1]))
            ):
                at += 1
        else:
            while at < len(text) and text[at] == text[begin]:
                at += 1
        out.append(text[begin:at])
    return out


def sentences(text: str) -> list[str]:
    """Pieces that end with sentence punctuation and what closes there, before a space; at least one."""
    out = [""]
    for piece in re.findall(r"\s*\S+", text):
        out[-1] += piece
        if ENDS_SENTENCE.search(piece):
            out.append("")
    return out[:-1] if len(out) > 1 and not out[-1] else out


def fold(text: str) -> str:
    """Lower case, no diacritics, numbers as 0, words only."""
    out: list[str] = []
    for character in text:
        if not in_word(character) or character == "_":
            out.append(" ")
        elif unicodedata.category(character) == "Nd":
            out.append("0")
        else:
            plain = [c for c in unicodedata.normalize("NFD", character.lower()) if unicodedata.category(c) != "Mn"]
            out.append(plain[0] if len(plain) == 1 else character if plain else "")
    return " ".join(re.sub("0+", "0", "".join(out)).split())
