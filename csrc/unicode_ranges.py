"""Writes core/text/unicode_ranges.h: what every character is, and what it is compared as.

    python csrc/unicode_ranges.py > csrc/core/text/unicode_ranges.h

The table is pinned, so that a recipe gives the same result under every version of Python; run this again to follow a
newer Unicode, and raise the version of every processor that looks at words.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable

TERMINAL = """
21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E 1735-1736
17D4-17D6 17D9-17DA 1803 1809 1944-1945 1AA8-1AAB 1B5A-1B5B 1B5E-1B5F 1B7D-1B7E 1C3B-1C3C 1C7E-1C7F
203C-203D 2047-2049 2E2E 2E3C 2E53-2E54 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9
AA5D-AA5F AAF0-AAF1 ABEB FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 10F86-10F89 11047-11048
110BE-110C1 11141-11143 111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 1144B-1144C 115C2-115C3
115C9-115D7 11641-11642 1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44
16A6E-16A6F 16AF5 16B37-16B38 16B44 16E98 1BC9F 1DA88
"""
"""The end of a sentence in any script: the set that FineWeb's line rule uses."""

PUNCTUATION = """
0-8 B-1F 21-2F 3A-40 5B-60 7B-9F AB B4 BB 2013-2014 2019 201C-201E 2026 2236 2501 25BA 3001-3002 3008-300D
3010-3011 FF01 FF05 FF08-FF09 FF0C FF0E FF11 FF1A-FF1B FF1F FF5E
"""
"""CCNet's punctuation, as Gopher's rules are usually run with."""

LINE_BREAKS = "A-D 1C-1E 85 2028-2029"
INVISIBLE = "0-8 E-1B 7F-84 86-9F AD 200B 202A-202E 2060 2066-2069 FEFF"


def parse(ranges: str) -> set[int]:
    """The code points of "A-D 1C"."""
    pairs = [(low, high or low) for low, _, high in (each.partition("-") for each in ranges.split())]
    return {code for low, high in pairs for code in range(int(low, 16), int(high, 16) + 1)}


def classes() -> Callable[[int], int]:
    """The bits of core/text/unicode.h for a code point."""
    terminal, breaks, invisible = parse(TERMINAL), parse(LINE_BREAKS), parse(INVISIBLE)
    punctuation = parse(PUNCTUATION) | terminal

    def of(code: int) -> int:
        kind = unicodedata.category(chr(code))
        claims = (
            chr(code).isspace(),
            kind[0] == "L",
            kind[0] in "LMN" or chr(code) == "_",
            kind == "Nd",
            code in punctuation,
            code in terminal,
            code in breaks,
            code in invisible,
        )
        return sum(claim << bit for bit, claim in enumerate(claims))

    return of


DROPPED = -0x110000


def shift(code: int) -> int:
    """From a character to its lower case without diacritics, where that is one character; DROPPED for a mark."""
    plain = [c for c in unicodedata.normalize("NFD", chr(code).lower()) if unicodedata.category(c) != "Mn"]
    return ord(plain[0]) - code if len(plain) == 1 else 0 if plain else DROPPED


def runs(values: Iterable[tuple[int, int]]) -> list[list[int]]:
    """[first, last, value] for each stretch of equal values that are not 0."""
    out: list[list[int]] = []
    for code, value in values:
        if value and out and out[-1][1] == code - 1 and out[-1][2] == value:
            out[-1][1] = code
        elif value:
            out.append([code, code, value])
    return out


def main() -> None:
    """Print the header."""
    of = classes()
    everything = range(sys.maxunicode + 1)
    print("// core/text/unicode_ranges.h: written by csrc/unicode_ranges.py; do not edit.")
    print(f"// Unicode {unicodedata.unidata_version}.\n#pragma once\n\n#include <cstdint>\n\nnamespace millstream {{\n")
    print("struct CodeRange {\n  char32_t first, last;\n  std::int32_t value;\n};\n")
    print(f'inline constexpr char unicode_version[] = "{unicodedata.unidata_version}";\n')
    listing("class_ranges", "Bits of core/text/unicode.h.", runs((code, of(code)) for code in everything))
    shifts = runs((code, shift(code)) for code in everything)
    listing("fold_ranges", "What is added to a character to get the one it is compared as; below 0: left out.", shifts)
    print("}  // namespace millstream")


def listing(name: str, meaning: str, ranges: list[list[int]]) -> None:
    """Print one array, several ranges to a line."""
    print(f"// {meaning}\ninline constexpr CodeRange {name}[] = {{")
    cells = [f"{{0x{first:X}, 0x{last:X}, {value}}}," for first, last, value in ranges]
    for place in range(0, len(cells), 5):
        print("    " + " ".join(cells[place : place + 5]))
    print("};\n")


if __name__ == "__main__":
    main()
