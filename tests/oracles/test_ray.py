"""A cluster of two nodes on this machine makes the same store as threads do. `make oracles` installs Ray."""

from __future__ import annotations

import gzip
import json
import os
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow
import pytest

from millstream import prepare
from millstream.errors import RecipeError, SourceError
from millstream.records import Reject
from millstream.sources import Chunk, ChunkRead, FoundFile, Reading, Record, RecordFormat, register_format
from millstream.storage import compress
from millstream.tokens import BPETokenizer, CharTokenizer
from oracles.asked import asked

pytestmark = pytest.mark.oracle
ray = asked("ray")

NODE = "MILLSTREAM_TEST_NODE"


@dataclass
class TwoNodes:
    """A head that makes parts, and a second node that can be lost."""

    cluster: Any
    second: Any

    def lose_the_second(self) -> None:
        self.cluster.remove_node(self.second, allow_graceful=False)


@pytest.fixture(scope="module")
def nodes() -> Iterator[TwoNodes]:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "env_vars": {NODE: "head"}})
    second = cluster.add_node(num_cpus=1, env_vars={NODE: "second"})
    ray.init(address=cluster.address, log_to_driver=False)
    yield TwoNodes(cluster, second)
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def texts() -> list[str]:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return [path.read_text("utf-8", "replace") for path in files]


@pytest.fixture(scope="module")
def tokenizer(texts: list[str]) -> BPETokenizer:
    return BPETokenizer.train(texts[:20], vocab_size=2000)


@pytest.fixture(scope="module")
def corpus(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of several formats and chunks, with duplicates and with records that a rule drops."""
    folder = tmp_path_factory.mktemp("raw")
    lines = [json.dumps({"text": text}).encode() + b"\n" for text in [*texts, *texts[::3], "short"]]
    (folder / "a.jsonl").write_bytes(b"".join(lines))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[::-1]), 1))
    (folder / "c.jsonl.zst").write_bytes(b"".join(compress(line, 1) for line in lines[::2]))
    for number, text in enumerate(texts[:8]):
        (folder / f"d{number}.txt").write_text(f"{number}\n{text}", "utf-8")
    return folder


def watched(seen: Path) -> Callable[[Record], Record | Reject]:
    """A user's function that knows values of its surroundings; it notes which node it ran on."""

    def without_tests(record: Record) -> Record | Reject:
        (seen / os.environ.get(NODE, "here")).touch()
        return Reject("a test") if "unittest" in record.text else replace(record, text=record.text.rstrip())

    return without_tests


class Rows:
    """What an `IterableDataset` shows of itself."""

    column_names, features = ("text",), None

    def __init__(self, rows: Callable[[], Iterator[dict[str, str]]]) -> None:
        self.rows = rows

    def with_format(self, kind: str) -> Rows:
        return self

    def iter(self, batch_size: int) -> Iterator[Any]:
        yield pyarrow.Table.from_pylist(list(self.rows()))


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file of a store but its report, which tells the time it took."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "report" not in path.name]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def prepared(corpus: Path, out: Path, tokenizer: BPETokenizer, step: object, **settings: Any) -> dict[str, bytes]:
    recipe = [{"name": "length", "min_words": 5}, step, "exact_dedup"]
    report = prepare(corpus, out / "corpus", tokenizer, recipe=recipe, cache=False, **settings)
    assert report.skipped["exact_dedup: duplicate"] > 100
    return files_of(out)


def test_the_store_is_the_one_that_threads_make(
    nodes: TwoNodes, corpus: Path, tokenizer: BPETokenizer, tmp_path: Path
) -> None:
    step = watched(tmp_path)

    here = [prepared(corpus, tmp_path / f"here{n}", tokenizer, step, workers=n) for n in (1, 3)]
    there = prepared(corpus, tmp_path / "there", tokenizer, step, engine="ray")

    assert here == [there, there]
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"here", "head", "second"}


def test_a_format_that_only_this_process_knows_is_read_there(nodes: TwoNodes, tmp_path: Path) -> None:
    class Stanzas(RecordFormat):
        name, suffixes = "stanzas", (".stanzas",)

        def records(self, stream: BinaryIO, reading: Reading) -> Iterator[bytes]:
            yield from stream.read().split(b"***")

    register_format(Stanzas())
    (tmp_path / "a.stanzas").write_text("the mill***by the stream")

    report = prepare(
        tmp_path / "a.stanzas", tmp_path / "corpus", CharTokenizer.train(["themillbystrea "]), engine="ray"
    )

    assert report.documents == 2


def test_the_rows_of_a_data_set_are_sent_but_not_the_data_set(
    nodes: TwoNodes, texts: list[str], tokenizer: BPETokenizer, tmp_path: Path
) -> None:
    lock = threading.Lock()  # a generator with one cannot travel

    def rows() -> Iterator[dict[str, str]]:
        with lock:
            yield from ({"text": text} for text in texts)

    reports = [
        prepare(Rows(rows), tmp_path / engine, tokenizer, engine=engine, cache=False) for engine in ("local", "ray")
    ]

    assert reports[0].fingerprint == reports[1].fingerprint


def test_an_error_of_a_worker_is_raised_as_itself(nodes: TwoNodes, tmp_path: Path) -> None:
    class Refused(RecordFormat):
        name, suffixes = "refused", (".refused",)

        def records(self, stream: BinaryIO, reading: Reading) -> Iterator[bytes]:
            yield stream.read()

        def read(self, chunk: Chunk, file: FoundFile, reading: Reading) -> ChunkRead:
            raise SourceError(f"{file.name}:1: not for you", hint="ask somebody else")

    register_format(Refused())
    (tmp_path / "a.refused").write_text("the mill")

    with pytest.raises(SourceError) as caught:
        prepare(tmp_path / "a.refused", tmp_path / "corpus", CharTokenizer("a"), engine="ray")

    assert type(caught.value) is SourceError
    assert (caught.value.message, caught.value.hint) == ("a.refused:1: not for you", "ask somebody else")
    assert not (tmp_path / "corpus").exists()


def test_a_chunk_that_kills_every_worker_is_named(nodes: TwoNodes, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the mill")

    def crash(record: Record) -> Record:
        os._exit(1)

    with pytest.raises(SourceError, match=r"a\.txt: chunk 0: 6 workers of the cluster died of it"):
        prepare(tmp_path / "a.txt", tmp_path / "corpus", CharTokenizer("a"), recipe=[crash], engine="ray")


def test_a_step_that_cannot_travel_is_refused(nodes: TwoNodes, corpus: Path, tmp_path: Path) -> None:
    lock = threading.Lock()

    def one_at_a_time(record: Record) -> Record:
        with lock:
            return record

    with pytest.raises(RecipeError, match="cannot be sent to the cluster"):
        prepare(corpus, tmp_path / "corpus", CharTokenizer("a"), recipe=[one_at_a_time], engine="ray")


def test_a_node_that_is_lost_in_the_middle_changes_nothing(
    nodes: TwoNodes, corpus: Path, tokenizer: BPETokenizer, tmp_path: Path
) -> None:
    caught = tmp_path / "caught"

    def stuck_on_the_second_node(record: Record) -> Record:
        if os.environ.get(NODE) == "second":
            caught.touch()
            time.sleep(3600)
        return record

    def lose_it_at_work() -> None:
        while not caught.exists():
            time.sleep(0.05)
        nodes.lose_the_second()

    losing = threading.Thread(target=lose_it_at_work, daemon=True)
    losing.start()
    there = prepared(corpus, tmp_path / "there", tokenizer, stuck_on_the_second_node, engine="ray")
    losing.join()

    assert there == prepared(corpus, tmp_path / "here", tokenizer, stuck_on_the_second_node, workers=2)
