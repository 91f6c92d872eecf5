"""The public surface grows only on purpose: names, the native stub and the README's tree are compared with the disk."""

from __future__ import annotations

import ast
import pydoc
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import millstream
from door_stubs import doors, homes_of, package_of
from loaders.samples import ran

ROOT = Path(__file__).parent.parent
PUBLIC = [
    "AdvantageSettings",
    "BPETokenizer",
    "BatchError",
    "BatchPool",
    "BatchQueue",
    "BudgetError",
    "BusyError",
    "CharTokenizer",
    "ChatTemplate",
    "ChunkFilter",
    "ChunkReader",
    "ChunkRescorer",
    "ChunkSet",
    "ChunkSourceFeed",
    "ChunkUnpacker",
    "ClosedError",
    "CompletionTracker",
    "CompressionError",
    "ConversationDataLoader",
    "DataLoader",
    "DataProcessor",
    "Discovery",
    "FingerprintError",
    "FrameShuffler",
    "LoaderError",
    "LossWarning",
    "MemoryFeed",
    "MillstreamError",
    "MissingExtra",
    "MixedDataLoader",
    "OrderError",
    "Pipeline",
    "PrepareReport",
    "PretrainDataLoader",
    "Queue",
    "QueueClosed",
    "Recipe",
    "RecipeError",
    "Record",
    "RecordError",
    "RecordFormat",
    "Reject",
    "Rollout",
    "RolloutDataLoader",
    "RolloutSource",
    "RowOrigin",
    "SelfPlayBatch",
    "SelfPlayDataLoader",
    "SourceError",
    "Span",
    "Stage",
    "StageError",
    "StateError",
    "Stopped",
    "StoreError",
    "StreamShuffler",
    "TemplateError",
    "TensorGenerator",
    "TokenStore",
    "TokenStoreWriter",
    "TokenizerError",
    "Topology",
    "TrainingBatch",
    "UnknownLength",
    "WaitTimeout",
    "WaitWarning",
    "check_isolation",
    "compute_advantages",
    "corrupt_spans",
    "distribute",
    "fill_in_the_middle",
    "lint",
    "load",
    "load_tokenizer",
    "mask_tokens",
    "merge_states",
    "open_feed",
    "open_source",
    "per_row",
    "prepare",
    "register_balancer",
    "register_format",
    "register_processor",
]


def test_the_public_names_are_the_written_ones() -> None:
    assert sorted(millstream.__all__) == sorted(PUBLIC)


def test_what_a_program_does_not_use_is_not_loaded() -> None:
    code = """
        import sys

        def loaded():
            return [name for name in sys.modules if name.partition(".")[0] == "millstream"]

        import millstream
        print(len(loaded()), "numpy" in sys.modules)
        from millstream.cli.main import main
        try:
            main(["--help"])
        except SystemExit as end:
            print(end.code, len(loaded()))
        from millstream import PretrainDataLoader
        print(len([name for name in loaded() if not name.startswith("millstream.cli")]))
        unused = ("games", "selfplay", "loaders.self_play", "feeds", "chats")
        print([name for name in loaded() if name.removeprefix("millstream.").startswith(unused)])
        print(millstream.feeds.spool.SpoolFeed is millstream.feeds.SpoolFeed, hasattr(millstream, "nothing"))
    """
    first, *_, helped, reader, unused, rest = ran(code)

    assert int(first.split()[0]) <= 10
    assert first.split()[1] == "False"
    assert helped.startswith("0 ")
    assert int(helped.split()[1]) <= 20
    assert int(reader) <= 150
    assert unused == "[]"
    assert rest == "True False"


def test_names_that_wait_are_seen_by_all_who_look() -> None:
    names: dict[str, object] = {}
    exec("from millstream import *", names)

    assert names.keys() >= set(PUBLIC)
    assert set(dir(millstream)) >= {*PUBLIC, "__version__"}
    assert "class PretrainDataLoader" in pydoc.plain(pydoc.render_doc(millstream))
    with pytest.raises(ImportError, match="cannot import name 'PretrainLoader' from 'millstream'"):
        exec("from millstream import PretrainLoader", {})


@pytest.mark.parametrize("door", doors(), ids=package_of)
def test_names_are_found_where_type_checkers_find_them(door: Path) -> None:
    package = package_of(door)
    module, homes = import_module(package), homes_of(door)
    stub = ast.walk(ast.parse(door.with_suffix(".pyi").read_text()))
    typed = {each.name: node.module for node in stub if isinstance(node, ast.ImportFrom) for each in node.names}

    assert typed == {"TYPE_CHECKING": "typing", **homes}
    assert [name for name in homes if (door.parent / f"{name}.py").exists() or (door.parent / name).exists()] == []
    assert sorted(homes) == module.__all__
    assert homes.keys() <= set(dir(module))
    assert [
        name for name, home in homes.items() if getattr(module, name) is not getattr(import_module(home), name)
    ] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example(name: str) -> None:
    assert ">>>" in str(getattr(millstream, name).__doc__)


@pytest.mark.parametrize("name", [name for name in vars(millstream.DataLoader) if not name.startswith("_")])
def test_every_method_of_a_loader_has_an_example(name: str) -> None:
    """Where it is promised, or where it is kept."""
    docs = [str(getattr(each, name).__doc__) for each in (millstream.DataLoader, millstream.PretrainDataLoader)]

    assert any(">>>" in doc for doc in docs)


def test_the_stub_of_the_native_module_is_fresh(tmp_path: Path) -> None:
    fresh = tmp_path / "_core.pyi"
    subprocess.run([sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "millstream._core", "-o", fresh], check=True)

    assert fresh.read_text() == (ROOT / "src/millstream/_core.pyi").read_text(), "run `make stub`"


def test_every_folder_in_the_readme_exists() -> None:
    readme = (ROOT / "README.md").read_text()
    named = re.findall(r"^([a-z]+(?:/[a-z_]+)*)/ ", readme, flags=re.MULTILINE)
    linked = re.findall(r"\]\(((?!http)[^)#]+)\)", readme)

    assert len(named) >= 8
    assert [path for path in [*named, *linked] if not (ROOT / path).exists()] == []


def test_every_folder_of_the_repository_and_every_stage_of_the_flow_is_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    source = ROOT / "src/millstream"
    stages = {path.parent.name for path in source.glob("*/__init__.py")} - {"cli", "stats"}
    missing = [name for name in stages if f"](src/millstream/{name})" not in readme]

    assert missing == []
    assert [name for name in ("benchmarks", "docs", "examples", "tests") if f"\n{name}/ " not in readme] == []


@pytest.mark.parametrize(
    "package", ["torch", "jax", "mlx", "tokenizers", "tiktoken", "rich", "ray", "datasets", "jinja2"]
)
def test_each_optional_library_is_imported_in_its_own_files_only(package: str) -> None:
    allowed = {
        "torch": {"tensors/torch.py"},
        "jax": {"tensors/jax.py"},
        "mlx": {"tensors/mlx.py"},
        "tokenizers": {"tokens/huggingface.py", "tokens/bpe.py"},
        "tiktoken": {"tokens/tiktoken.py"},
        "rich": {"cli/terminal.py", "cli/progress.py", "cli/watch.py"},
        "ray": {"preparation/ray.py"},
        "datasets": set(),
        "jinja2": {"chats/templates/sandbox.py"},
    }
    pattern = re.compile(rf"^\s*(?:import|from) {package}\b", flags=re.MULTILINE)
    source = ROOT / "src/millstream"
    found = {str(path.relative_to(source)) for path in source.rglob("*.py") if pattern.search(path.read_text())}

    assert found <= allowed[package]
