"""Folders have doors: what is outside of a folder names the folder, never a module in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from door_stubs import doors, homes_of, package_of, stub_of

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
DOORS = {package_of(path): homes_of(path) for path in doors()}
CORE = "millstream._core"
ROOMS_OF_BINDINGS = {
    "chat": {"chats"},
    "chess": {"games", "selfplay"},
    "fill": {"batches"},
    "filter": {"records"},
    "kernels": {"rollouts", "storage"},
    "memory": {"batches", "stages"},
    "order": {"order"},
    "parse": {"games", "sources"},
    "rl": {"advantages"},
    "store": {"preparation", "storage", "store"},
    "text": {"records"},
}


def _modules() -> dict[str, Path]:
    """Every module by its dotted name; a folder is one too."""
    found = {}
    for path in sorted((SOURCE / "millstream").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = _modules()


def _is_folder(module: str) -> bool:
    return MODULES[module].name == "__init__.py"


def _is_room(module: str) -> bool:
    """Whether a module lies in a folder below the first: those beside the root's door are doors themselves."""
    return module.count(".") > 1 and not _is_folder(module)


def _folder(module: str) -> str:
    return module if _is_folder(module) else module.rpartition(".")[0]


def _named(node: ast.AST, module: str | None) -> Iterator[str]:
    """The dotted names that a statement or an expression imports, `pkg.name` for `from pkg import name`."""
    if isinstance(node, ast.Import):
        yield from (each.name for each in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = node.module or ""
        if node.level and module is not None:
            above = _folder(module).split(".")
            above = above[: len(above) - node.level + 1]
            package = ".".join([*above, *([package] if package else [])])
        yield from (f"{package}.{each.name}" for each in node.names)
    elif (
        isinstance(node, ast.Call) and node.args and re.search(r"\b(import_module|__import__)$", ast.unparse(node.func))
    ):
        said = node.args[0]
        if isinstance(said, ast.JoinedStr):  # f"millstream.cli.{verb}" names any module there
            said = said.values[0]
            begin = ast.literal_eval(said) if isinstance(said, ast.Constant) else ""
            if begin.endswith("."):
                yield begin + "*"
        elif isinstance(said, ast.Constant):
            yield str(said.value)


def _attributes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Dotted names that begin at something imported: `sources.jsonl.read` after `from millstream import sources`."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "millstream":
            for each in node.names:
                bound[each.asname or each.name] = f"{node.module}.{each.name}"
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name.partition(".")[0] == "millstream":
                    bound[each.asname or "millstream"] = each.name if each.asname else "millstream"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"[\w.]+", said := ast.unparse(node)):
            first, _, rest = said.partition(".")
            if bound.get(first) in MODULES:
                yield node.lineno, f"{bound[first]}.{rest}"


def _room_of(name: str) -> str | None:
    """The module in a folder that a dotted name goes into, if it does."""
    if name.endswith(".*"):
        return name
    while name:
        if name in MODULES:
            return name if _is_room(name) else None
        name = name.rpartition(".")[0]
    return None


def _back_doors(text: str, module: str | None = None) -> list[str]:
    """Everything in a program that goes into a folder other than by its door."""
    tree = ast.parse(text)
    found = [(node.lineno, name) for node in ast.walk(tree) for name in _named(node, module) if hasattr(node, "lineno")]
    here = None if module is None else _folder(module)
    return [
        f"{line}: {name}"
        for line, name in sorted({*found, *_attributes(tree)})
        if (room := _room_of(name)) is not None and room.rpartition(".")[0] != here
    ]


def _examples(text: str, prompt: str = r"(?:(?:>>>|\.\.\.)\s+)?") -> str:
    """The imports in examples: those after a prompt, and in Markdown plain ones too."""
    plain = re.findall(rf"^\s*{prompt}(import millstream[\w.]*)", text, re.MULTILINE)
    named = re.findall(rf"^\s*{prompt}from (millstream[\w.]*) import([\w, ]*)", text, re.MULTILINE)
    return "\n".join([*plain, *(f"from {package} import {names.strip() or 'some'}" for package, names in named)])


@pytest.mark.parametrize("module", MODULES)
def test_folders_are_entered_by_their_doors(module: str) -> None:
    text = MODULES[module].read_text()

    assert _back_doors(text, module) == []
    assert _back_doors(_examples(text, r"(?:>>>|\.\.\.)\s+"), module) == []


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.py")), ids=lambda path: path.name)
def test_examples_use_doors(path: Path) -> None:
    assert _back_doors(path.read_text()) == []


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda path: path.stem
)
def test_pages_use_doors(path: Path) -> None:
    assert _back_doors(_examples(path.read_text())) == []


@pytest.mark.parametrize(
    "program",
    [
        "from millstream.store.reader import TokenStore",
        "from millstream.store import reader",
        "import millstream.store.reader",
        "import millstream.store.reader as stores",
        "from ..store import reader",
        "from ..store.reader import TokenStore",
        "def late():\n    from millstream.store.reader import TokenStore",
        "from importlib import import_module\nimport_module('millstream.store.reader')",
        "import importlib\nimportlib.import_module(f'millstream.store.{kind}')",
        "from millstream import store\nstore.reader.TokenStore",
        "import millstream\nmillstream.store.reader.TokenStore",
        "from millstream.loaders.runs.store import StoreRun",
    ],
)
def test_back_doors_are_seen(program: str) -> None:
    assert _back_doors(program, "millstream.loaders.loader") != []


@pytest.mark.parametrize(
    "program",
    [
        "from millstream.store import TokenStore",
        "from millstream.errors import StoreError",
        "from millstream import TokenStore, tensors\ntensors.backend('numpy')",
        "from millstream.loaders.rows import USUAL_ROW",
        "from .rows import USUAL_ROW",
        "from millstream.loaders.runs import StoreRun",
    ],
)
def test_doors_are_free(program: str) -> None:
    assert _back_doors(program, "millstream.loaders.loader") == []


@pytest.mark.parametrize("package", DOORS)
def test_the_stub_of_a_door_is_fresh(package: str) -> None:
    door = MODULES[package]

    assert door.with_suffix(".pyi").read_text() == stub_of(door), "run `make stub`"


def test_a_stub_stands_beside_each_table_and_nowhere_else() -> None:
    beside = {path.with_suffix(".py") for path in (SOURCE / "millstream").rglob("__init__.pyi")}

    assert beside == set(doors())
    assert [path for path in MODULES.values() if path.name == "__init__.py" and path not in beside] == [
        SOURCE / "millstream/cli/__init__.py"
    ]


@pytest.mark.parametrize("package", DOORS)
def test_a_door_holds_a_table_and_no_code(package: str) -> None:
    _, *body = ast.parse(MODULES[package].read_text()).body
    lines = [ast.unparse(node).partition("\n")[0] for node in body]
    allowed = r"from millstream\.lazy import lazy|__getattr__, .* = lazy\(|import logging|__version__ = |logging\."

    assert [line for line in lines if not re.match(allowed, line.removeprefix("("))] == []


def test_a_door_has_what_others_use_and_nothing_else() -> None:
    """What a page or an example names counts as used."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    said = set(re.findall(r"\w+", "\n".join(path.read_text() for path in pages)))
    used: set[str] = set()
    for module, path in MODULES.items():
        text = path.read_text()
        for program in (text, _examples(text)):
            for node in ast.walk(ast.parse(program)):
                used |= {name for name in _named(node, module) if name.rpartition(".")[0] != _folder(module)}
        used |= {name for _, name in _attributes(ast.parse(text))}
    used |= {f"{home}.{name}" for name, home in DOORS["millstream"].items()}
    used |= {"millstream.selfplay.stages_of_recipes"}  # which the stages ask for, upstream of it
    unused = [
        f"{package}.{name}"
        for package, homes in DOORS.items()
        for name in homes
        if package != "millstream" and f"{package}.{name}" not in used and name not in said
    ]

    assert unused == []


def _native_names() -> dict[str, set[str]]:
    """The names of the native module, and the folders that import each."""
    found: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module == CORE:
                names = [each.name for each in node.names]
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("_core", CORE):
                names = [node.attr]
            for name in names:
                found.setdefault(name, set()).add(_folder(module).removeprefix("millstream."))
    return found


def test_a_native_name_is_imported_in_one_folder_which_fronts_it() -> None:
    bound: dict[str, str] = {}
    for path in sorted((ROOT / "csrc/bind").glob("*.cpp")):
        for name in re.findall(r'(?:\bm,\s*"|m\.def\(\s*"|attr\(")(\w+)"', path.read_text()):
            bound.setdefault(name, path.stem)
    found = _native_names()

    assert len(found) > 50
    assert {name: folders for name, folders in found.items() if len(folders) > 1} == {}
    assert [
        f"{name} of {bound[name]}.cpp is imported in {folder}"
        for name, folders in found.items()
        for folder in folders
        if folder not in ROOMS_OF_BINDINGS[bound[name]]
    ] == []


def test_every_file_of_bindings_has_its_rooms() -> None:
    bindings = {path.stem for path in (ROOT / "csrc/bind").glob("*.cpp")} - {"module"}

    assert bindings == ROOMS_OF_BINDINGS.keys()
    assert {room for rooms in ROOMS_OF_BINDINGS.values() for room in rooms} <= {
        name[len("millstream.") :] for name in DOORS
    }
