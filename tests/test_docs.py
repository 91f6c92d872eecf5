"""The guide keeps up with the code: every public name, keyword, error and verb is on its page."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

import millstream
from millstream import ConversationDataLoader, Rollout, RolloutDataLoader, errors
from millstream.cli.main import VERBS, main, verb_module
from millstream.feeds.admission import AdmissionRules
from millstream.feeds.admission.admission import LATE
from millstream.feeds.admission.arrivals import COMPLAINTS, REPEATED
from millstream.loaders import ChatKeywords
from millstream.loaders.feed_settings import LiveSettings
from millstream.loaders.raw import ReadingKeywords
from millstream.loaders.rollout_settings import StepKeywords
from millstream.loaders.settings import SharedKeywords
from millstream.records.registry import _find, _known
from millstream.sources.formats import _our_own
from millstream.sources.text import _CODE

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
OUR_STEPS = sorted(name for name, made in _known().items() if made.__module__.startswith("millstream."))


PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
BANNED = ("nobody", "whoever", "somebody", "goes on", "for ever", "gone on with")


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def section(name: str, heading: str) -> str:
    """A page from a heading to the next one that is not below it."""
    level = len(heading.split()[0])
    found = re.search(rf"^{re.escape(heading)}$(.*?)(?=^#{{1,{level}}} |\Z)", page(name), re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def explained(text: str, *heads: str) -> set[str]:
    """The names in the first cells of tables; only of those whose first column is called so, if `heads` are given."""
    tables = re.findall(r"^\| ([^|\n]*) \|(.*?)(?:^\n|\Z)", f"{text}\n\n", re.MULTILINE | re.DOTALL)
    lines = [line for head, table in tables if not heads or head in heads for line in table.splitlines()]
    cells = [line.split(" | ")[0] for line in lines if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_every_public_name_has_its_place_in_the_reference_and_nothing_else_has() -> None:
    api = "".join(page(name) for name in PAGES if name.startswith("reference/api/"))
    documented = re.findall(r"^::: millstream\.(\w+)$", api, re.MULTILINE)

    assert sorted(documented) == sorted(millstream.__all__)


def test_every_shared_keyword_is_explained() -> None:
    assert explained(section("reference/keywords.md", "## Every loader")) == set(SharedKeywords.__annotations__)


KEYWORDS = {
    "PretrainDataLoader": set[str](),
    "MixedDataLoader": set[str](),
    "ConversationDataLoader": set(ChatKeywords.__annotations__),
    "RolloutDataLoader": set(StepKeywords.__annotations__),
    "SelfPlayDataLoader": set[str](),
}


@pytest.mark.parametrize("loader", KEYWORDS)
def test_every_keyword_of_a_loader_is_in_its_table_and_nothing_else_is(loader: str) -> None:
    signature = inspect.signature(getattr(millstream, loader)).parameters
    own = {name for name, each in signature.items() if each.kind is not each.VAR_KEYWORD} | KEYWORDS[loader]
    live = {field.name for each in (LiveSettings, AdmissionRules) for field in fields(each)}
    text = section("reference/keywords.md", f"## {loader}")

    assert explained(text, "keyword") == own
    assert explained(text, "setting") == (live if loader == "RolloutDataLoader" else set())


@pytest.mark.parametrize("loader", KEYWORDS)
def test_defaults_that_are_plain_values_are_those_of_the_code(loader: str) -> None:
    signature = inspect.signature(getattr(millstream, loader)).parameters
    text = section("reference/keywords.md", f"## {loader}")
    rows = re.findall(r"^\| `(\w+)` \| `?(True|False|[\d,]+|\"\w+\")`? \|", text, re.MULTILINE)
    said = {name: ast.literal_eval(value.replace(",", "")) for name, value in rows if name in signature}

    assert said == {name: signature[name].default for name in said}


def test_every_error_has_its_cause_and_cure() -> None:
    names = {name for name, each in vars(errors).items() if inspect.isclass(each)} - {"MillstreamError"}
    headings = set(re.findall(r"^## (\w+)$", page("reference/errors.md"), re.MULTILINE))

    assert names <= headings
    assert [name for name in names if len(section("reference/errors.md", f"## {name}").split()) < 10] == []


def test_every_verb_has_a_session() -> None:
    assert set(VERBS) <= set(re.findall(r"^## (\w+)$", page("reference/cli.md"), re.MULTILINE))


@pytest.mark.parametrize("step", OUR_STEPS)
def test_every_step_of_a_recipe_is_explained_with_all_its_settings(step: str) -> None:
    lines = page("reference/preparing.md").splitlines()
    rows = [line for line in lines if line.startswith(f"| `{step}` |")]
    details = [line for line in lines if line.startswith(f"- **`{step}`**")]
    settings = inspect.signature(_find(step)).parameters

    assert (len(rows), len(details)) == (1, 1)
    assert [name for name in settings if f"`{name}`" not in details[0]] == []


def test_the_recipes_of_the_guide_are_the_same_in_toml_and_yaml(tmp_path: Path) -> None:
    recipes, text = [], page("reference/preparing.md")
    for kind in ("toml", "yaml"):
        fence = re.search(rf"^```{kind}\n(# clean\.{kind}\n.*?)^```$", text, re.MULTILINE | re.DOTALL)
        assert fence is not None
        path = tmp_path / f"clean.{kind}"
        path.write_text(fence[1], "utf-8")
        recipes.append(millstream.Recipe.load(path).canonical())

    assert len(recipes[0]) > 2
    assert recipes[0] == recipes[1]


def test_every_format_is_explained_with_all_its_endings() -> None:
    table = [line for line in page("reference/preparing.md").splitlines() if line.startswith("| `")]
    named = {name for line in table for name in re.findall(r"`([^`]+)`", " | ".join(line.split(" | ")[:2]))}
    code = set(_CODE.split())

    assert {name for each in _our_own().values() for name in (each.name, *each.suffixes)} - code <= named


def test_every_argument_of_prepare_is_explained() -> None:
    arguments = inspect.signature(millstream.prepare).parameters.keys() - {"source", "output", "progress", "keywords"}
    arguments |= ReadingKeywords.__annotations__.keys()

    assert [
        name for name in ReadingKeywords.__annotations__ if f"`{name}`" not in str(millstream.prepare.__doc__)
    ] == []
    assert sorted(name for name in arguments if not re.search(rf"`{name}[`=(]", page("reference/preparing.md"))) == []


def test_the_two_lines_of_the_readme_make_a_store_and_load_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    command = re.search(r"^millstream (prepare raw\.txt dataset\.bin)$", readme, re.MULTILINE)
    call = re.search(r'^loader = (PretrainDataLoader\("dataset\.bin".*?\))$', readme, re.MULTILINE)
    assert command is not None
    assert call is not None
    monkeypatch.chdir(tmp_path)
    Path("raw.txt").write_text("The stream turns the wheel, and the wheel turns the stone.\n" * 2000, "utf-8")

    assert main([*command[1].split(), "--quiet"]) == 0
    with eval(call[1], {"PretrainDataLoader": millstream.PretrainDataLoader}) as loader:
        assert loader.next().input_ids.shape == (64, 128)


@pytest.mark.parametrize("verb", VERBS)
def test_every_flag_is_named(verb: str) -> None:
    parser = argparse.ArgumentParser(add_help=False)
    verb_module(verb).add_arguments(parser)
    flags = [action.option_strings[-1] for action in parser._actions if action.option_strings]

    assert [flag for flag in flags if not re.search(rf"`(?:[^`]* )?{flag}\b", page("reference/cli.md"))] == []


def test_every_law_names_tests_that_exist() -> None:
    files = [ROOT / "tests" / name for name in ("laws/test_laws.py", "loaders/test_changes.py")]
    tests = "".join(file.read_text("utf-8") for file in files)
    named = re.findall(r"`(test_\w+)`", page("explanation/laws.md"))

    assert len(named) >= 6
    assert [name for name in named if f"def {name}(" not in tests] == []


@pytest.mark.parametrize("name", ["howto/new_source.md", "howto/new_framework.md"])
def test_files_that_the_guide_names_are_there(name: str) -> None:
    roots = (ROOT, ROOT / "src/millstream", ROOT / "csrc/core", DOCS)
    named = re.findall(r"`([\w/]+/[\w.]+\.(?:py|h|cpp|md)|\w+\.(?:h|toml))`", page(name))

    assert [path for path in named if not any((root / path).exists() for root in roots)] == []


def test_every_field_of_a_rollout_is_explained() -> None:
    names = {field.name for field in fields(Rollout)}

    assert names <= explained(section("reference/rollouts.md", "## The record"))


def test_every_fate_of_a_rollout_is_explained() -> None:
    assert {REPEATED, LATE, *COMPLAINTS} <= explained(section("reference/losses.md", "## Feeds of rollouts"))


def calls(*names: str) -> Iterator[ast.Call]:
    """Every call of functions or classes of these names in the sources."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if called in names:
                    yield node


def test_every_reason_for_which_a_record_is_left_out_is_a_key_of_losses_that_is_explained() -> None:
    reasons = {
        each.value
        for call in calls("RecordError", "BadRecord", "FileFailure")
        for each in ast.walk(call.args[0])
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and " in " not in each.value
    }
    no_reasons = {"called", "not "}  # the name of a column, and the beginning of `not UTF-8`
    named = " ".join(re.findall(r"`([^`]+)`", page("reference/losses.md")))

    assert len(reasons) > 60
    assert sorted(reason for reason in reasons - no_reasons if reason.strip() not in named) == []


def test_every_key_that_a_loader_counts_is_explained() -> None:
    text = page("reference/losses.md")
    counted = {
        each.value
        for call in calls("Ledger", "count", "drop", "count_fate")
        for each in call.args
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value.strip()
    }
    paths = sorted((ROOT / "src/millstream/loaders").rglob("*.py"))
    keys = {key for path in paths for key in re.findall(r"f\"(\w+):\{(?:\w+\.)*name\}\"", path.read_text("utf-8"))}

    assert keys >= {"tail_tokens", "uncounted_units"}
    assert [key for key in keys if f"`{key}:SOURCE" not in text] == []
    assert sorted(key for key in counted if not re.search(rf"`(feed_)?{re.escape(key)}[`:]", text)) == []


def test_the_losses_that_loaders_have_are_explained(tmp_path: Path) -> None:
    with millstream.TokenStoreWriter(tmp_path / "numbers") as writer:
        writer.append(range(100))
    how: Any = {"framework": "numpy", "batch_size": 4}
    sampled = {"group_id": 1, "token_ids": [1, 2], "loss_mask": [0, 1], "finish": "stop"}
    rollouts = [{**sampled, "reward": 0.0}, {**sampled, "reward": 1.0}]
    judged = [{"prompt": "a", "completion": "b", "label": True}, {"prompt": "b", "completion": "a", "label": False}]
    tokenizer = millstream.CharTokenizer.train(["ab"])
    found = set[str]()
    for loader in (
        millstream.PretrainDataLoader(tmp_path / "numbers", chunk_size=8, drop_last=True, **how),
        RolloutDataLoader(rollouts, **how),
        ConversationDataLoader(judged, tokenizer=tokenizer, max_length=8, cache_dir=tmp_path / "cache", **how),
    ):
        with loader:
            loader.next()
            found |= loader.losses.keys()
    keys = {re.sub(r":(data|rollouts)\b.*", ":SOURCE", key) for key in found}

    assert {"cut_tokens", "kl_cut_tokens", "dropped_rows", "tail_tokens:SOURCE"} <= keys
    assert [key for key in keys if f"`{key}" not in page("reference/losses.md")] == []


def test_the_recipe_of_the_guide_to_self_play_is_the_one_of_the_examples() -> None:
    fence = re.search(r"^```yaml\n(.*?)^```$", page("howto/game_pipelines.md"), re.MULTILINE | re.DOTALL)

    assert fence is not None
    assert fence[1] == (ROOT / "examples/lc0.yaml").read_text("utf-8")


def test_the_map_of_modules_is_fresh() -> None:
    fresh = run_path(str(DOCS / "modules.py"))["pages"]()
    stale = [path.name for path, text in fresh.items() if path.read_text("utf-8") != text]

    assert stale == [], "run `python docs/modules.py`"


def test_every_header_of_the_core_is_on_the_map() -> None:
    core = ROOT / "csrc/core"
    headers = {path.relative_to(core).as_posix() for path in core.rglob("*.h")}

    assert headers <= set(re.findall(r"`(\w+/\w+\.h)`", page("reference/modules.md")))


def test_every_room_is_in_the_drawing_of_the_flow_and_no_other_is() -> None:
    drawing = re.search(r"^```\n(.*?)^```$", page("explanation/flow.md"), re.MULTILINE | re.DOTALL)
    rooms = {path.parent.name for path in (ROOT / "src/millstream").glob("*/__init__.py")}

    assert drawing is not None
    assert sorted(name for name in rooms if not re.search(rf"\b{name}\b", drawing[1])) == []
    boxed = re.findall(r"[│┤] +(\w+)(?= +[│├])", drawing[1])
    assert len(boxed) > 10
    assert set(boxed) <= rooms


def messages() -> str:
    """Every piece of text in the sources, with … where a value is put in."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append(
                    "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    found += [path.read_text("utf-8") for path in sorted((ROOT / "csrc/core").rglob("*.h"))]
    return "\n".join(found)


def test_every_message_that_the_guide_quotes_is_one_that_is_given() -> None:
    given = messages()
    cells = [line.split(" — ")[0] for line in page("reference/errors.md").splitlines() if line.startswith("- `")]
    quoted = [quote for cell in cells for quote in re.findall(r"`([^`]+)`", cell)]
    pieces = {quote: [piece.strip(" ':,()") for piece in quote.split("…")] for quote in quoted}

    assert len(quoted) > 60
    assert [quote for quote in quoted if not all(piece in given for piece in pieces[quote])] == []


def test_every_extra_that_users_need_is_in_the_quick_start_with_what_it_brings() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for ours in ("demo", "oracles", "docs", "dev"):  # for those who work on Millstream itself
        del extras[ours]
    table = page("howto/install.md").partition("| extra |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    named = [name for names, _ in cells for name in re.findall(r"`(\w+)`", names)]

    assert sorted(named) == sorted(extras)
    for names, brings in cells:
        for name in re.findall(r"`(\w+)`", names):
            packages = [re.split(r"[\[>=]", each)[0] for each in extras[name] if not each.startswith("millstream[")]
            missing = [each for each in packages if each.lower() not in brings.lower()]
            assert not missing or packages[0] == name in ("torch", "jax", "mlx"), name


def test_the_front_page_leads_to_every_page_of_the_guide() -> None:
    menu = (ROOT / "mkdocs.yml").read_text("utf-8")
    pages = [name for name in PAGES if not name.startswith(("index", "explanation/design/", "reference/api/"))]

    assert [name for name in PAGES if not re.search(rf"[:-] {name}$", menu, re.MULTILINE)] == []
    assert [name for name in pages if f"]({name})" not in page("index.md")] == []


def test_the_guide_is_of_four_kinds() -> None:
    assert {name.partition("/")[0] for name in PAGES} == {"index.md", "tutorials", "howto", "reference", "explanation"}


def anchors(text: str) -> set[str]:
    """What a page may be linked to at, as the builder of the pages names its headings."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


@pytest.mark.parametrize("name", [*PAGES, "../README.md", "../CONTRIBUTING.md"])
def test_every_link_leads_to_a_page_and_a_heading(name: str) -> None:
    wrong = []
    for link in re.findall(r"\]\(((?!https?:)[^)\s]+)\)", page(name)):
        path, _, anchor = link.partition("#")
        target = (DOCS / name).parent / path if path else DOCS / name
        of_the_api = anchor.startswith("millstream.")
        if not target.exists() or (anchor and not of_the_api and anchor not in anchors(target.read_text("utf-8"))):
            wrong.append(link)

    assert wrong == []


TERMS = """multimodal, loss mask, sample packing, sequence packing, assistant-only loss, gradient accumulation, resume,
resumable data loader, deterministic shuffle, elastic, back-pressure, snapshot, idempotent, leader, follower"""


def test_words_that_people_search_for_are_in_the_glossary_each_with_a_sentence_and_a_link() -> None:
    rows = [line.split(" | ") for line in page("reference/glossary.md").splitlines() if line.startswith("| ")][1:]
    terms = [row[0].strip("| ▸") for row in rows]

    assert [term for term in re.split(r",\s+", TERMS) if term not in ", ".join(terms)] == []
    assert [row for row in rows if len(row) != 3 or not row[1].endswith(".") or "](" not in row[2]] == []
    assert terms == sorted(terms, key=sorted_as)


def sorted_as(term: str) -> str:
    return re.sub(r"[^a-z0-9 ]", "", term.lower())


def written(name: str) -> str:
    """A page without what is generated of the sources."""
    return re.sub(r"<!-- rooms.*?end of rooms -->", "", page(name), flags=re.DOTALL)


WRITTEN = [name for name in PAGES if name != "reference/modules.md"]  # that one is generated of docstrings
LONG_TABLES = ("explanation/design/", "reference/formats.md")  # bytes of files, and notes that weigh reasons


@pytest.mark.parametrize("name", [*WRITTEN, "../README.md"])
def test_pages_use_the_words_of_the_field(name: str) -> None:
    assert [word for word in BANNED if re.search(rf"\b{word}\b", written(name), re.IGNORECASE)] == []


@pytest.mark.parametrize("name", [name for name in WRITTEN if not name.startswith(LONG_TABLES)])
def test_cells_of_tables_are_short(name: str) -> None:
    cells = [cell.strip() for line in written(name).splitlines() if line.startswith("|") for cell in line.split(" | ")]
    plain = [re.sub(r"\]\([^)]*\)", "]", cell) for cell in cells]

    assert [cell for cell in plain if len(cell) > 130] == []


def test_pages_that_the_code_names_are_there() -> None:
    """In docstrings, comments, errors and hints."""
    files = [path for folder in ("src", "csrc", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.*")]
    read = [path for path in files if path.suffix in (".py", ".h", ".cpp", ".pyi", ".yaml", ".toml")]
    named = {name for path in read for name in re.findall(r"\bdocs/[\w/]+\.md", path.read_text("utf-8"))}

    assert len(named) > 2
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "mlx"])
def test_the_checklist_for_a_framework_names_what_every_one_of_them_has(framework: str) -> None:
    table = page("howto/new_framework.md").partition("| name | meaning |")[2].partition("\n\n")[0]
    names = re.findall(r"^\| `(\w+)", table, re.MULTILINE)
    source = (ROOT / f"src/millstream/tensors/{framework}.py").read_text("utf-8")

    assert len(names) >= 6
    assert [name for name in names if not re.search(rf"^(def )?{name}\b", source, re.MULTILINE)] == []
