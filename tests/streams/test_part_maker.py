"""Makers of parts: processes share the work, a killed one costs its part, and what failed is tried again."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forks import forked, in_child
from loaders.samples import follows_its_hint
from millstream.errors import ClosedError, SourceError, StoreError
from millstream.sources import Reading, discover
from millstream.storage import disk
from millstream.streams import Kept, KeptInMemory, KeptOnDisk, PartMaker, Units
from streams.files import TEXTS, TOKENIZER, found, job

WAIT_S = 60


def maker_of(kept: Kept, kind: str = "lines", *, recipe: Any = None, path: Path | None = None, **how: Any) -> PartMaker:
    file, own = found(kind)
    files = [file] if path is None else discover(path).files
    reading = Reading(chunk_bytes=200, **own)
    return PartMaker(Units(files, reading), job(reading, recipe), kept, **{"threads": 2, **how})


def tokens_of(kept: Kept, unit: int) -> list[int]:
    found: list[int] = np.frombuffer(Path(kept.paths(unit)[0]).read_bytes()[64:], np.uint16).tolist()
    return found


def texts_in(maker: PartMaker) -> Counter[str]:
    """All documents of all parts."""
    found: Counter[str] = Counter()
    for unit in range(maker.units.count):
        facts = maker.wait(unit)
        tokens = tokens_of(maker.kept, unit)
        assert len(tokens) == facts.tokens
        found.update(TOKENIZER.decode(tokens).split(TOKENIZER.decode([TOKENIZER.eos_id]))[:-1])
    return found


@pytest.mark.parametrize("kind", ["lines", "gz", "zst of many frames", "parquet", "csv", "tar"])
@pytest.mark.parametrize("threads", [1, 3])
def test_all_parts_hold_all_documents_each_once(kind: str, threads: int) -> None:
    kept = KeptInMemory()
    maker = maker_of(kept, kind, threads=threads)
    maker.want(range(maker.units.count))
    assert texts_in(maker) == Counter(TEXTS)
    assert maker.made == maker.units.count and maker.found == 0
    maker.close()


def test_what_is_wanted_no_more_is_not_made() -> None:
    going = threading.Event()

    def slow(record: Any) -> Any:
        going.wait(WAIT_S)
        return record

    maker = maker_of(KeptInMemory(), recipe=[slow], threads=1)
    maker.want(range(10))
    maker.want([7])
    going.set()
    maker.wait(7)
    maker.close()
    assert maker.made <= 2, "one was begun, and one is wanted"


def test_parts_that_are_there_are_found_and_not_made(tmp_path: Path) -> None:
    first = maker_of(KeptOnDisk(tmp_path))
    expected = texts_in(first)
    first.close()
    second = maker_of(KeptOnDisk(tmp_path))
    assert texts_in(second) == expected
    second.close()
    assert (second.made, second.found) == (0, second.units.count)


def test_processes_share_the_work(tmp_path: Path) -> None:
    """Each part is made by one of them."""

    def work() -> tuple[int, int, Counter[str]]:
        maker = maker_of(KeptOnDisk(tmp_path), recipe=[{"name": "length", "min_words": 1}])
        maker.want(range(maker.units.count))
        texts = texts_in(maker)
        maker.close()
        return maker.made, maker.found, texts

    children = [in_child(work) for _ in range(2)]
    results = [work(), *(child() for child in children)]
    count = maker_of(KeptInMemory()).units.count
    assert sum(made for made, _, _ in results) == count
    assert all(made + found == count for made, found, _ in results)
    assert all(texts == results[0][2] for _, _, texts in results)


def test_a_part_that_another_process_makes_is_waited_for_while_others_are_made(tmp_path: Path) -> None:
    maker = maker_of(KeptOnDisk(tmp_path), threads=1)
    with KeptOnDisk(tmp_path).lock(0):
        maker.want(range(4))
        assert [maker.wait(unit).tokens > 0 for unit in (1, 2, 3)] == [True] * 3
        assert maker.look(0) is None
    assert maker.wait(0).tokens > 0
    maker.close()


def test_a_killed_process_costs_its_part(tmp_path: Path) -> None:
    """Which the next one makes; the others are found."""
    ready = tmp_path / "ready"
    folder = tmp_path / "parts"

    def stuck(record: Any) -> Any:
        if record.text.startswith("30 "):
            ready.touch()
            time.sleep(WAIT_S)
        return record

    child = forked()
    if child == 0:
        maker = maker_of(KeptOnDisk(folder), recipe=[stuck], threads=1)
        maker.want(range(maker.units.count))
        time.sleep(WAIT_S)
        os._exit(1)
    while not ready.exists():
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    maker = maker_of(KeptOnDisk(folder), threads=1)
    made_before = sum(KeptOnDisk(folder).find(unit) is not None for unit in range(maker.units.count))
    assert texts_in(maker) == Counter(TEXTS)
    maker.close()
    assert 0 < made_before < maker.units.count
    assert maker.made == maker.units.count - made_before
    assert not list(folder.glob("*.lock")) and not list(folder.glob("*.tmp"))


def test_an_error_is_raised_once_and_then_the_part_is_tried_again(tmp_path: Path) -> None:
    """A full disk may have room by then."""
    kept = KeptOnDisk(tmp_path)
    maker = maker_of(kept, threads=1)
    write, full = disk.write, [True]

    def failing(*given: Any) -> Any:
        if full:
            raise OSError(28, "No space left on device")
        return write(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "write", failing)
        maker.want([0])
        for _ in range(2):
            with pytest.raises(StoreError) as refused:
                maker.wait(0)
            follows_its_hint(refused.value)
        full.clear()
        assert maker.wait(0).tokens > 0
    maker.close()
    assert maker.made == 1, "what could not be kept does not count"


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_bad_record_is_an_error_with_its_place_each_time_it_is_asked_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    lines = {"jsonl": ['{"text": "fine"}'] * 30 + ["{broken"], "csv": ["text", *["fine words"] * 40, "a,b,c"]}[kind]
    path.write_text("\n".join(lines) + "\n")
    maker = maker_of(KeptInMemory(), path=path)
    last = maker.units.count - 1
    for _ in range(2):
        with pytest.raises(SourceError, match=rf"a\.{kind}( from byte \d+)?:\d+: ") as refused:
            maker.wait(last)
        assert 'on_bad="skip"' in follows_its_hint(refused.value)
    maker.close()


def test_quarantine_needs_a_folder() -> None:
    with pytest.raises(SourceError, match="needs a folder") as refused:
        maker_of(KeptInMemory(), on_bad="quarantine")
    assert "cache_dir" in follows_its_hint(refused.value)


def test_closing_tells_who_waits_and_makes_no_more() -> None:
    going, begun = threading.Event(), threading.Event()

    def slow(record: Any) -> Any:
        begun.set()
        going.wait(WAIT_S)
        return record

    maker = maker_of(KeptInMemory(), recipe=[slow], threads=1)
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            maker.wait(3)
        except ClosedError as error:
            failures.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert begun.wait(WAIT_S)
    maker.close()  # while a part is being made
    waiting.join(WAIT_S)
    assert not waiting.is_alive()
    (failure,) = failures
    assert isinstance(failure, ClosedError) and follows_its_hint(failure)
    going.set()
    for thread in [each for each in threading.enumerate() if each.name == "millstream-parts"]:
        thread.join(WAIT_S)
    assert maker.made == 0 and maker.kept.held_bytes == 0, "it was given up"


def test_a_forked_child_makes_parts_with_threads_of_its_own() -> None:
    kept = KeptInMemory()
    maker = maker_of(kept)
    maker.wait(0)

    def work() -> int:
        tokens = sum(maker.wait(unit).tokens for unit in range(maker.units.count))
        maker.close()
        return tokens

    child = in_child(work)
    assert child() == work()
