"""The guide keeps up with the code: every public name, keyword, error and verb is on its page."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

import millstream
from millstream import Rollout, errors
from millstream.admission import AdmissionRules
from millstream.admission.admission import LATE
from millstream.admission.arrivals import COMPLAINTS, REPEATED
from millstream.cli.main import VERBS, main, verb_module
from millstream.loaders.chat_keywords import ChatKeywords
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


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def test_every_public_name_has_its_place_in_the_reference_and_nothing_else_has() -> None:
    documented = re.findall(r"^::: millstream\.(\w+)$", page("reference/api.md"), re.MULTILINE)

    assert sorted(documented) == sorted(millstream.__all__)


def test_every_shared_keyword_is_explained() -> None:
    cells = [line.split("|")[1] for line in page("reference/api.md").splitlines() if line.startswith("| `")]
    explained = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}

    assert explained == set(SharedKeywords.__annotations__)


def test_every_error_has_its_cause_and_cure() -> None:
    names = {name for name, each in vars(errors).items() if inspect.isclass(each)} - {"MillstreamError"}
    headings = set(re.findall(r"^## (\w+)$", page("reference/errors.md"), re.MULTILINE))

    assert names <= headings


def test_every_verb_has_a_session() -> None:
    assert set(VERBS) <= set(re.findall(r"^## (\w+)$", page("reference/cli.md"), re.MULTILINE))


@pytest.mark.parametrize("step", OUR_STEPS)
def test_every_step_of_a_recipe_is_explained_with_all_its_settings(step: str) -> None:
    rows = [line for line in page("reference/preparing.md").splitlines() if line.startswith(f"| `{step}` |")]
    settings = inspect.signature(_find(step)).parameters

    assert len(rows) == 1
    assert [name for name in settings if f"`{name}`" not in rows[0]] == []


def test_the_recipes_of_the_guide_are_the_same_in_toml_and_yaml(tmp_path: Path) -> None:
    recipes = []
    for kind in ("toml", "yaml"):
        fence = re.search(rf"^```{kind}\n(# clean\.{kind}\n.*?)^```$", page("reference/preparing.md"), re.MULTILINE | re.DOTALL)
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


def test_every_keyword_about_conversations_is_explained() -> None:
    assert [name for name in ChatKeywords.__annotations__ if not re.search(rf"`{name}[`=]", page("howto/chat.md"))] == []


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


@pytest.mark.parametrize("name", ["explanation/flow.md", "howto/new_source.md", "howto/new_framework.md"])
def test_files_that_the_guide_names_are_there(name: str) -> None:
    roots = (ROOT, ROOT / "src/millstream", ROOT / "csrc/core", DOCS)
    named = re.findall(r"`([\w/]+/[\w.]+\.(?:py|h|cpp|md)|\w+\.(?:h|toml))`", page(name))

    assert [path for path in named if not any((root / path).exists() for root in roots)] == []


def test_every_field_and_setting_of_rollouts_is_explained() -> None:
    names = {field.name for each in (Rollout, LiveSettings, AdmissionRules) for field in fields(each)}
    explained = set(re.findall(r"`(?:live=\{\")?(\w+)=?", page("howto/rollouts.md")))

    assert names | set(StepKeywords.__annotations__) <= explained


def test_every_fate_of_a_rollout_is_explained() -> None:
    rows = [line.split("|")[1] for line in page("howto/rollouts.md").splitlines() if line.startswith("| `")]

    assert {REPEATED, LATE, *COMPLAINTS} <= set(re.findall(r"`(\w+)`", " ".join(rows)))


def test_every_keyword_of_self_play_is_explained() -> None:
    keywords = inspect.signature(millstream.SelfPlayDataLoader).parameters.keys() - {"path", "shared"}

    assert sorted(name for name in keywords if not re.search(rf"`{name}[`=(]", page("howto/selfplay.md"))) == []


def test_the_recipe_of_the_guide_to_self_play_is_the_one_of_the_examples() -> None:
    fence = re.search(r"^```yaml\n(.*?)^```$", page("howto/selfplay.md"), re.MULTILINE | re.DOTALL)

    assert fence is not None
    assert fence[1] == (ROOT / "examples/lc0.yaml").read_text("utf-8")


def test_every_header_of_the_core_is_on_the_map() -> None:
    core = ROOT / "csrc/core"
    headers = {path.relative_to(core).as_posix() for path in core.rglob("*.h")}

    assert headers <= set(re.findall(r"`(\w+/\w+\.h)`", page("explanation/flow.md")))


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
    cells = [line.split(" | ")[0] for line in page("reference/errors.md").splitlines() if line.startswith("| `")]
    quoted = [quote for cell in cells for quote in re.findall(r"`([^`]+)`", cell)]
    pieces = {quote: [piece.strip(" ':,()") for piece in quote.split("…")] for quote in quoted}

    assert len(quoted) > 60
    assert [quote for quote in quoted if not all(piece in given for piece in pieces[quote])] == []


def test_every_extra_that_users_need_is_in_the_quick_start_with_what_it_brings() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for ours in ("demo", "oracles", "docs", "dev"):  # for those who work on Millstream itself
        del extras[ours]
    table = page("tutorials/pretrain.md").partition("| extra |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    named = [name for names, _ in cells for name in re.findall(r"`(\w+)`", names)]

    assert sorted(named) == sorted(extras)
    for names, brings in cells:
        for name in re.findall(r"`(\w+)`", names):
            packages = [re.split(r"[\[>=]", each)[0] for each in extras[name] if not each.startswith("millstream[")]
            missing = [each for each in packages if each.lower() not in brings.lower()]
            assert not missing or packages[0] == name in ("torch", "jax", "mlx"), name


def test_the_front_page_leads_to_every_page_of_the_guide() -> None:
    menu = (ROOT / "mkdocs.yml").read_text("utf-8").partition("- Use it:")[2].partition("- Reference:")[0]

    assert sorted(name for name in re.findall(r"[\w/]+\.md", menu) if f"]({name})" not in page("index.md")) == []


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "mlx"])
def test_the_checklist_for_a_framework_names_what_every_one_of_them_has(framework: str) -> None:
    table = page("howto/new_framework.md").partition("| name | meaning |")[2].partition("\n\n")[0]
    names = re.findall(r"^\| `(\w+)", table, re.MULTILINE)
    source = (ROOT / f"src/millstream/tensors/{framework}.py").read_text("utf-8")

    assert len(names) >= 6
    assert [name for name in names if not re.search(rf"^(def )?{name}\b", source, re.MULTILINE)] == []
