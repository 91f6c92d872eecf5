"""Mutated Arrow and Parquet files, read in every way: a program of its own, since damage must not end a process.

    python damaged_tables.py FOLDER FIRST COUNT    cases FIRST to FIRST + COUNT; prints what came of them as JSON

The number of the case that is tried stands in FOLDER/case: when the process dies, it names the culprit.
"""

from __future__ import annotations

import io
import itertools
import json
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from millstream.errors import MillstreamError
from millstream.parts import BadRecords, KeptAside
from millstream.rollouts import read_rollouts
from millstream.sources import Reading, discover, raw_record, read_file
from mutations import mutated

ROWS = 12
TEXTS = [None if n == 5 else f"text {n} " + "long " * (n % 4) for n in range(ROWS)]
NUMBERS = [[n, n + 1, n + 2][: n % 4] for n in range(ROWS)]
POLICIES = ("error", "skip", "quarantine")


def _runs(values: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, ROWS + 1), pa.int32()), values)


def _union(*, dense: bool) -> pa.Array:
    kinds, texts = pa.array([n % 2 for n in range(ROWS)], pa.int8()), pa.array(map(str, range(ROWS)))
    if dense:
        places = pa.array([n // 2 for n in range(ROWS)], pa.int32())
        return pa.UnionArray.from_dense(kinds, places, [pa.array(range(6)), texts[:6]])
    return pa.UnionArray.from_sparse(kinds, [pa.array(range(ROWS)), texts])


def columns() -> dict[str, pa.Array]:
    """A column of every type, by the name of the type."""
    texts = pa.array(TEXTS)
    kinds = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(), pa.binary_view()]
    made = {str(kind): texts.cast(kind) for kind in kinds}
    nested = pa.struct([("a", pa.dictionary(pa.int8(), pa.string())), ("b", pa.list_(pa.struct([("c", pa.string())])))])
    rows = [{"a": "xy"[n % 2], "b": [{"c": "deep"}] * (n % 3)} for n in range(ROWS)]
    made |= {
        "words": texts.dictionary_encode(),
        "words in views": pa.DictionaryArray.from_arrays(pa.array([0, 1] * 6), texts.cast(pa.string_view())[:3]),
        "runs": _runs(texts),
        "runs of views": _runs(texts.cast(pa.string_view())),
        "runs of words": _runs(texts.dictionary_encode()),
        "null": pa.nulls(ROWS),
        "bool": pa.array([True, None, False] * 4),
        "int64": pa.array(range(ROWS)),
        "float": pa.array([0.5] * ROWS),
        "decimal": pa.array([Decimal(n) for n in range(ROWS)], pa.decimal128(9, 2)),
        "date": pa.array(range(ROWS), pa.date32()).cast(pa.date64()),
        "time": pa.array(range(ROWS), pa.time64("us")),
        "stamp": pa.array(range(ROWS), pa.timestamp("s", tz="Europe/Berlin")),
        "duration": pa.array(range(ROWS), pa.duration("ms")),
        "list": pa.array(NUMBERS, pa.list_(pa.int64())),
        "large_list": pa.array(NUMBERS, pa.large_list(pa.float32())),
        "list of views": pa.array([["some text that is long", "x"]] * ROWS, pa.list_(pa.string_view())),
        "list of words": pa.array([["a", "b"]] * ROWS, pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        "list of nothing": pa.array([[None, None]] * ROWS, pa.list_(pa.null())),
        "list_view": pa.array(NUMBERS, pa.list_view(pa.int32())),
        "large_list_view": pa.array([["text that is not short"]] * ROWS, pa.large_list_view(pa.string_view())),
        "fixed list": pa.array([[1, 2]] * ROWS, pa.list_(pa.int32(), 2)),
        "struct": pa.array(rows, nested),
        "map": pa.array([[("a", [n]), ("b", None)] for n in range(ROWS)], pa.map_(pa.string(), pa.list_(pa.int32()))),
        "dense union": _union(dense=True),
        "sparse union": _union(dense=False),
    }
    return made


def rollouts() -> list[pa.Table]:
    """Tables of rollouts, their columns in different types."""
    ids, flags = pa.array([[5, 6, 7]] * ROWS), pa.array([[0, 1, 1]] * ROWS)
    plain = {
        "rollout_id": pa.array([f"rollout number {n}" for n in range(ROWS)]),
        "group_id": pa.array([f"g{n % 3}" for n in range(ROWS)]),
        "token_ids": ids,
        "loss_mask": flags,
        "reward": pa.array([n / 4 for n in range(ROWS)]),
        "finish": pa.array(["stop", "length"] * 6),
        "sampling_logprobs": pa.array([[0.0, -0.5, -1.0]] * ROWS, pa.list_(pa.float32())),
        "rewards": pa.array([{"right": 1.0, "short": 0.5}] * ROWS),
        "extra": pa.array(['{"env": "a math problem"}'] * ROWS),
    }
    other = {
        "rollout_id": plain["rollout_id"].cast(pa.string_view()),
        "group_id": plain["group_id"].dictionary_encode(),
        "token_ids": ids.cast(pa.large_list(pa.uint32())),
        "loss_mask": flags.cast(pa.list_(pa.bool_())),
        "finish": plain["finish"].cast(pa.large_string()),
    }
    return [pa.table(plain), pa.table({**plain, **other})]


def files() -> dict[str, bytes]:
    """The files that are mutated, by their names; of rollouts, the name begins so."""
    made: dict[str, bytes] = {}
    for name, column in columns().items():
        table = pa.table({"text": column})
        made |= {f"{name}{ending}": _written(table, ending) for ending in (".arrow", ".arrows")}
        if not any(word in name for word in ("view", "union", "runs", "words in")):
            made[f"{name}.parquet"] = _written(table, ".parquet")
    for number, table in enumerate(rollouts()):
        made |= {f"rollouts {number}{ending}": _written(table, ending) for ending in (".arrow", ".arrows", ".parquet")}
    made["packed.arrow"] = _written(pa.table({"text": pa.array(TEXTS)}), ".arrow", compression="lz4")
    made["growing words.arrows"] = _growing(deltas=True)
    made["other words.arrows"] = _growing(deltas=False)
    return made


def _written(table: pa.Table, ending: str, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    if ending == ".parquet":
        pa.parquet.write_table(table, sink, row_group_size=5, compression="zstd" if len(table.columns) > 1 else "none")
        return sink.getvalue()
    open_writer = pa.ipc.new_file if ending == ".arrow" else pa.ipc.new_stream
    with open_writer(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, 5)
    return sink.getvalue()


def _growing(*, deltas: bool) -> bytes:
    """A stream whose dictionary grows, or is replaced, between two batches."""
    words = [pa.array(["a", "b"]), pa.array(["a", "b", "c"])]
    made = [pa.DictionaryArray.from_arrays(pa.array([0, len(each) - 1], pa.int32()), each) for each in words]
    schema, sink = pa.schema([("text", made[0].type)]), io.BytesIO()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=deltas)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for each in made:
            writer.write_batch(pa.record_batch([each], schema=schema))
    return sink.getvalue()


def changed(whole: bytes, seed: int) -> bytes:
    """A file with other numbers in it, where offsets, views, indices and lengths stand; or damaged as any file is."""
    chance = random.Random(seed)
    if chance.random() < 0.4:
        return mutated(whole, seed)
    data = bytearray(whole)
    for _ in range(chance.choice((1, 1, 2, 6))):
        size = chance.choice((1, 4, 4, 8))
        at = chance.randrange(len(data) // size) * size
        number = chance.choice((0, 1, -1, 13, 127, 1 << 16, (1 << 31) - 1, 1 << 40, chance.getrandbits(62)))
        data[at : at + size] = (number & (1 << 8 * size) - 1).to_bytes(size, "little")
    return bytes(data)


def readings(path: Path, on_bad: Any) -> Iterator[Callable[[], int]]:
    """Each way to read a file: what it does gives the number of what was left out."""
    if path.name.startswith("rollouts"):
        yield lambda: sum(len(chunk.bad) for chunk in read_rollouts(path, on_bad=on_bad, format=_format(path)))
    for whole_rows, chunk_bytes in itertools.product((True, False), (1, 1 << 20)):
        yield partial(_read, path, on_bad, Reading(whole_rows=whole_rows, chunk_bytes=chunk_bytes))


def _read(path: Path, on_bad: Any, reading: Reading) -> int:
    (file,) = discover(path, format=_format(path)).files
    with KeptAside(path.with_suffix(".aside"), level=None) as kept:
        policy = BadRecords(on_bad, kept)
        for read in read_file(file, reading):
            policy.take(file.name, read.bad)
            for record in itertools.islice(read.block, 2):
                raw_record(file, reading, record.row, record.start, record.stop)
    return sum(policy.losses.counts.values())


def _format(path: Path) -> str:
    return "parquet" if path.suffix == ".parquet" else "arrow"


def main(folder: Path, first: int, count: int) -> None:
    """Try some cases; what is raised must be an error of ours."""
    warnings.simplefilter("ignore")
    wholes = files()
    outcomes: Counter[str] = Counter()
    for case in range(first, first + count):
        name = list(wholes)[case % len(wholes)]
        path = folder / name
        (folder / "case").write_text(f"{case}: {name}")
        path.write_bytes(changed(wholes[name], case))
        for on_bad in POLICIES:
            for read in readings(path, on_bad):
                try:
                    outcomes["left out" if read() else "read"] += 1
                except MillstreamError:
                    outcomes["refused"] += 1
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
