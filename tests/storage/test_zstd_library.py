"""The zstd of the machine: found when it is needed, inside Python's modules too; without any, plain data works."""

from __future__ import annotations

import importlib.util
import json
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import numpy as np
import pytest
import zstandard

from millstream.errors import MissingExtra
from millstream.storage.compression import modules_with_zstd
from millstream.store import TokenStoreWriter
from scripts import ran

NO_ZSTD = """
    import sys
    from millstream import _core
    from millstream.storage import compression
    _core.look_for_zstd([])
    compression.modules_with_zstd = lambda: []
"""
PLAIN = f"""
    {NO_ZSTD}
    from pathlib import Path
    from millstream import PretrainDataLoader, TokenStore, prepare
    folder = Path(sys.argv[1])
    for name in ("first", "again"):  # the second from the cache
        report = prepare(folder / "raw.jsonl", folder / name, "char", on_bad="quarantine", cache_dir=folder / "cache")
        print(report.documents, report.quarantine.name, len(TokenStore(report.path)))
    with PretrainDataLoader(folder / "first", chunk_size=3, batch_size=1, framework="numpy") as loader:
        print(loader.next().input_ids.shape)
    print(_core.has_zstd())
"""
PACKED = f"""
    {NO_ZSTD}
    import io
    from millstream import MissingExtra, PretrainDataLoader, TokenStore, TokenStoreWriter, prepare
    folder = sys.argv[1]
    uses = [
        lambda: compression.compress(b"mill"),
        lambda: compression.decompress(b"mill", limit=4),
        lambda: compression.ZstdReader(io.BytesIO(b"mill")),
        lambda: prepare(folder + "/raw.jsonl.zst", folder + "/a", "char"),
        lambda: prepare(folder + "/raw.jsonl.zst", folder + "/b", "char", on_bad="skip"),
        lambda: prepare(folder + "/raw.jsonl", folder + "/c", "char", compression="zstd"),
        lambda: prepare(folder + "/raw.jsonl", folder + "/d", "char", compress=True),
        lambda: TokenStoreWriter(folder + "/e", compress=True),
        lambda: TokenStore(folder + "/packed")[:],
        lambda: PretrainDataLoader(folder + "/packed", chunk_size=3, framework="numpy").next(),
    ]
    for number, use in enumerate(uses):
        try:
            print(number, "works", use())
        except MissingExtra as error:
            print(number, error.hint)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in ("the mill", "the stream"))
    (tmp_path / "raw.jsonl").write_bytes(lines + b"no JSON\n")
    (tmp_path / "raw.jsonl.zst").write_bytes(zstandard.compress(lines))
    with TokenStoreWriter(tmp_path / "packed", compress=True) as writer:
        writer.append(np.arange(100))
    return tmp_path


def test_without_zstd_plain_files_stores_and_caches_work(folder: Path) -> None:
    done = "2 {}.quarantine.jsonl 20"

    assert ran(PLAIN, folder) == [done.format("first"), done.format("again"), "(1, 3)", "False"]


def test_without_zstd_packed_data_names_the_extra_that_brings_it(folder: Path) -> None:
    expected = MissingExtra.of("backports.zstd", "zstd", or_else="install libzstd of the system").hint
    assert expected is not None and "[zstd]" in expected

    assert ran(PACKED, folder) == [f"{number} {expected}" for number in range(10)]


def test_a_library_inside_a_python_module_does_as_well() -> None:
    """The module of `zstandard` stands for Python's own: it has a whole zstd in it, too."""
    found = importlib.util.find_spec("zstandard._cffi")
    assert found is not None
    code = f"""
    {NO_ZSTD}
    compression.modules_with_zstd = lambda: ["nowhere.so", _core.__file__, sys.argv[1]]
    from millstream.storage import compress, decompress
    print(decompress(compress(b"mill"), limit=4), "zstandard" in sys.modules)
    """
    assert ran(code, found.origin) == ["b'mill' False"]


def test_the_backport_is_found_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "backports" / "zstd"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('nobody shall import it')")
    module = package / f"_zstd{EXTENSION_SUFFIXES[0]}"
    module.touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "backports", raising=False)

    assert str(module) in modules_with_zstd()
