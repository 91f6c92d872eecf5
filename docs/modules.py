"""Docstrings of modules and opening lines of headers -> the map of the code: `python docs/modules.py` writes it anew.

It writes `reference/modules.md`, every module and header with what it says of itself, and the table of rooms between
the markers of `explanation/flow.md`. Nothing is imported: files are read. `tests/test_docs.py` compares both.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SOURCE, CORE = ROOT / "src/millstream", ROOT / "csrc/core"
MAP, FLOW = DOCS / "reference/modules.md", DOCS / "explanation/flow.md"
BEGIN, END = "<!-- rooms: written by docs/modules.py -->", "<!-- end of rooms -->"
_PAGES = re.compile(r" \([^()]*docs/[\w/]+\.md\)")  # where a docstring sends its readers
HEAD = """# Modules

Every module of `src/millstream` and every header of `csrc/core`, with the first sentence of what it says of itself.
`python docs/modules.py` writes this page anew. Rooms stand in the order of the layers, from furthest upstream to
furthest downstream: imports point upstream only. [The flow](../explanation/flow.md) draws them.
"""


def pages() -> dict[Path, str]:
    """What each of the two files holds when it is fresh."""
    before, _, rest = FLOW.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    return {MAP: "\n".join(_map()), FLOW: "\n".join([f"{before}{BEGIN}", "", *_rooms(), "", f"{END}{after}"])}


def rooms() -> list[Path]:
    """The folders of the package, from furthest upstream to furthest downstream."""
    facts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (contract,) = [each for each in facts["tool"]["importlinter"]["contracts"] if each["type"] == "layers"]
    names = [name.split(".")[-1] for layer in contract["layers"] for name in re.split(r"\s*[|:]\s*", layer)]
    found = [path.parent for path in SOURCE.glob("*/__init__.py")]
    return sorted(found, key=lambda path: (-names.index(path.name) if path.name in names else -len(names), path.name))


def _rooms() -> Iterator[str]:
    yield from ("| room | what comes out of it |", "|---|---|")
    yield from (f"| [`{path.name}/`](../reference/modules.md#{path.name}) | {_said(path)} |" for path in rooms())


def _map() -> Iterator[str]:
    yield HEAD
    for room in rooms():
        yield f"## {room.name}\n\n{_said(room)}\n"
        yield from _table("module", SOURCE, (path for path in room.rglob("*.py") if path.name != "__init__.py"))
    yield "## Beside the rooms\n"
    yield from _table("module", SOURCE, SOURCE.glob("*.py"))
    yield "## The native core\n\nC++20 without Python: `csrc/bind/` makes functions of it, `csrc/tests/` tests it.\n"
    for folder in sorted({path.parent for path in CORE.rglob("*.h")}):
        yield f"### csrc/core/{folder.relative_to(CORE)}\n"
        yield from _table("header", CORE, folder.glob("*.h"))


def _table(what: str, root: Path, paths: Iterable[Path]) -> Iterator[str]:
    yield from (f"| {what} | what it is |", "|---|---|")
    yield from (f"| `{path.relative_to(root)}` | {_said(path)} |" for path in sorted(paths))
    yield ""


def _said(path: Path) -> str:
    """The first sentence of a package, a module or a header, fit for a cell of a table.

    >>> _said(SOURCE / "order").endswith(".")
    True
    """
    if path.suffix == ".h":
        comment = re.match(r"(?://.*\n)+", path.read_text("utf-8"))
        text = re.sub(r"^// ?", "", comment[0] if comment else "", flags=re.MULTILINE).partition(": ")[2]
    else:
        module = path / "__init__.py" if path.is_dir() else path
        text = ast.get_docstring(ast.parse(module.read_text("utf-8"))) or ""
    sentence = re.split(r"(?<=[.;])\s", _PAGES.sub("", " ".join(text.partition("\n\n")[0].split())), maxsplit=1)[0]
    return _escaped(sentence.rstrip(";"))


def _escaped(text: str) -> str:
    """Text in which only code between backticks has a meaning.

    >>> _escaped("a | b <c> `d <e>`")
    'a \\\\| b &lt;c> `d <e>`'
    """
    pieces = text.replace("|", "\\|").split("`")
    return "`".join(piece if place % 2 else piece.replace("<", "&lt;") for place, piece in enumerate(pieces))


if __name__ == "__main__":
    for page, fresh in pages().items():
        page.write_text(fresh, "utf-8")
