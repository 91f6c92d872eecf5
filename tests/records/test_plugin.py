"""A package that declares an entry point is all that a plugin needs: installed, its name works in recipes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "millstream_shout"
USE = """
from millstream.records import Recipe
from millstream.records.recipe import known_processors
from millstream.sources import Record, RecordBlock
block = RecordBlock.of([Record("hello", "a", 0, 0, 5), Record("psst, you", "a", 1, 6, 15)], "a")
done = Recipe.of([{"name": "shout", "mark": "?!"}]).pipeline().run(block)
print("shout" in known_processors(), [record.text for record in done.block], dict(done.counts))
"""


def use(folder: Path) -> subprocess.CompletedProcess[str]:
    """What the plugin of a folder says, in a process of its own."""
    code = f"import sys; sys.path.append({str(folder)!r})\n{USE}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_an_installed_package_adds_a_processor(tmp_path: Path) -> None:
    source = shutil.copytree(EXAMPLE, tmp_path / "source")
    target = tmp_path / "target"
    install = ["pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(target), str(source)]
    subprocess.run([sys.executable, "-m", *install], check=True)

    said = use(target)

    assert said.stdout.strip() == "True ['HELLO?!'] {'shout: whispered': 1}"


def test_a_plugin_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    info = tmp_path / "broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[millstream.processors]\nshout = no_such_module:X\n")

    assert "the plugin 'shout' of no_such_module:X cannot be loaded" in use(tmp_path).stderr
