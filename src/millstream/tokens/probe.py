"""Texts on which two engines are compared before one may stand in for the other.

They are deterministic: every kind of character, every seam between kinds that a pre-tokenizer may treat specially,
and every token that a tokenizer finds in raw text.
"""

from __future__ import annotations

import itertools
import random
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache

_SPACES = " \t\n\r\v\f\x85\xa0\u1680\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000\u200b\ufeff"
_ATOMS = (
    *(
        "a",
        "Z",
        "é",
        "е\u0301",
        "ß",
        "ǅ",
        "ʼ",
        "ª",
        "世",
        "界",
        "ひ",
        "ア",
        "한",
        "א",
        "ع",
        "ก\u0e31",
        "क\u093f",
        "\u0301",
    ),
    *("0", "٣", "²", "Ⅷ", "½", "123", "4567"),
    *("'", "’", '"', "_", "-", "--", "...", "/", "\\", "@", "#", "$", "<", "|", "€", "+", "´", "`", "。", "«"),
    *(" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\xa0", "\u2028", "\u3000"),
    *(
        "😀",
        "👩‍👩‍👧‍👦",
        "🏳️‍🌈",
        "🇩🇪",
        "\u200d",
        "\ufe0f",
        "\x00",
        "\x1f",
        "\x7f",
        "\xad",
        "\ue000",
        "\ud7ff",
        "\U0010fffd",
    ),
)
_CONTRACTIONS = ("s", "t", "re", "ve", "m", "ll", "d", "x", "sd", "lle", "ſ")
_PROSE = (
    "The mill by the stream grinds 1,234.56 kg of grain -- don't ask how.  It's OK; we'll SEE!\n\n\tIndented. (Done.)",
    "Привет, мир! Καλημέρα κόσμε. 你好，世界！今日は世界。안녕하세요 세계. שלום עולם! مرحبا ١٢٣. สวัสดีชาวโลก नमस्ते दुनिया",
    "Zürich\u00a0— naïve cafe\u0301, A\u030angström, ﬁ ligature, Ⅷ, x², ½ cup; “curly” ‘quotes’… İstanbul ıssız ſtraße",
    "def f(x: int) -> dict[str, int]:\n    '''doc'''\n    return {\n        \"a\": x ** 2,  # why\n\t}\n\n\nclass A:\n",
    'int main(void) { for (int i=0;i<10;++i) printf("%d\\n", i); return 0; } // end\r\n#define X_Y(z) ((z)<<3)\r\n',
    "const f = async (a, b) => { await x?.y ?? `t${a}`; };\n<div class=\"x\" id='y'>&nbsp;</div>\n<!-- c -->\n",
    'SELECT * FROM t WHERE a<>\'b\' AND c >= 1e-9;\n{"k": [1, 2.5, null, true], "s": "\\u00e9\\n"}\nkey: "v"  # yaml\n',
    "https://user:pw@example.org:8080/a/b-c_d.html?q=1&r=%20x#frag mail@example.org C:\\Users\\x /usr/bin/env $HOME ~/",
    "QmFzZTY0IGlzIGxvbmcgYW5kIGhhcyBubyBzcGFjZXMgYXQgYWxsLCBzbyBpdCBpcyBhIGdvb2QgcHJvYmU=/+AAECAwQFBgcICQoLDA0ODw==",
    "camelCaseWord HTTPServerError snake_case_word SCREAMING_CASE kebab-case-word iPhone15 v2.0.1 1st 0x1F 1_000 1e-9",
    "  leading\n trailing  \n\n  \n \t mixed \t\n",
    *("", " ", "   ", "\n", "\t\t", "\r\n\r\n", " \n \n a", "a \n ", "a  b   c    d"),
)


def probe_texts(tokens: Sequence[str] = ()) -> list[str]:
    """The texts to compare two engines on; `tokens` are those with a meaning of their own, special or added.

    >>> texts = probe_texts(["<|endoftext|>"])
    >>> 1_000 < len(texts) < 10_000, sum(map(len, texts)) < 100_000
    (True, True)
    """
    return [*_fixed(), *_around(tokens)]


@cache
def _fixed() -> tuple[str, ...]:
    return (*_PROSE, *_characters(), *_seams(), *_runs(), *_mixtures())


def _characters() -> Iterator[str]:
    """Every character of the first blocks, and some of every category in every part of Unicode."""
    yield from ("".join(filter(_assigned, map(chr, range(start, start + 64)))) for start in range(0, 0x600, 64))
    kept: dict[tuple[str, int], list[str]] = {}
    for code in itertools.chain(range(0x600, 0xD800, 7), range(0xE000, 0x20000, 13), range(0x20000, 0x110000, 4099)):
        character = chr(code)
        category = unicodedata.category(character)
        some = kept.setdefault((category, code >> 9), [])
        if _assigned(character) and len(some) < 3:
            some.append(character)
    for some in kept.values():
        yield "".join(some)
        yield "x" + " ".join(some) + "1"


def _assigned(character: str) -> bool:
    """Not what a newer Unicode may call a letter: no fast engine gets to see that."""
    return unicodedata.category(character) != "Cn"


def _seams() -> Iterator[str]:
    """Every pair of kinds beside each other, with and without a letter around, and contractions."""
    for left, right in itertools.product(_ATOMS, _ATOMS):
        yield f"{left}{right}b"
    for quote, ending in itertools.product("'’", _CONTRACTIONS):
        yield f"we{quote}{ending} I{quote}{ending.upper()} {quote}{ending}x 1{quote}{ending}. {quote}{quote}{ending}"


def _runs() -> Iterator[str]:
    """Long words and long runs: where caches, limits and special cases of engines lie."""
    for space in _SPACES:
        for length in (1, 2, 3, 8, 17):
            yield f"x{space * length}y{space * length}"
    for unit, length in itertools.product(("a", "ab", " ", "\n", "7", "!", "世", "😀", "\u0301", "'"), (31, 64, 257)):
        yield unit * length
    rng = random.Random(0)
    for length in (15, 16, 33, 65, 129, 1000):
        yield "".join(rng.choices("etaoinshrdlucmfwypvbgkjqxz", k=length))
        yield " " + "".join(rng.choices("abcdefABCDEF0123456789+/=", k=length))


def _mixtures() -> Iterator[str]:
    rng = random.Random(1)
    for _ in range(150):
        yield "".join(rng.choices(_ATOMS, k=rng.randint(5, 40)))


def _around(tokens: Sequence[str]) -> Iterator[str]:
    """Each token that is found in raw text, in the places where its flags for spaces and words show."""
    for token in tokens[:64]:
        yield from (
            token,
            f"a{token}b",
            f"a {token} b",
            f"a \n {token}  \n b",
            f"{token}{token} {token}",
            token[:-1],
            token[1:],
        )
    yield from (f"x {token}y" for token in tokens[64:])
