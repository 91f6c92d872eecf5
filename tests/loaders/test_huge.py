"""What a loader costs does not grow with its data: a trillion tokens, in a file that has holes for all of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loaders.samples import ran
from millstream.store import Row, rows_of
from store.samples import build_sparse

TOKENS = 10**12
MIB = 2**20

# A kernel may map more than the page that is touched, by fault-around or in large folios, but never more than one page
# table names: 2 MiB. Two runs of the ring, of 8 batches that are ready, 2 that are being filled and 1 that was given,
# touch one place per row. That is 3 GB; a loader that went through a share of the 2 TB would map far more.
MOST_MAPPED = 2 * (8 + 2 + 1) * 64 * 2 * MIB

FIRST_BATCHES = """
    import json, sys
    from pathlib import Path
    from millstream import MixedDataLoader, PretrainDataLoader

    def private():
        return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) * 1024

    def bytes_read():
        return int(Path("/proc/self/io").read_text().split()[1])

    path, shuffle, kind = sys.argv[1:]

    def open_one(**settings):
        return PretrainDataLoader(path, chunk_size=16, shuffle=shuffle, framework="numpy", **settings)

    def open_loader():
        if kind == "pretrain":
            return open_one(batch_size=64, threads=2, prefetch=8)
        sources = {"web": (open_one(), 3.0), "code": (open_one(), 1.0)}
        return MixedDataLoader(sources, batch_size=64, threads=2, prefetch=8, framework="numpy")

    memory, read = private(), bytes_read()
    with open_loader() as loader:
        rows = loader.next().metadata["rows"]
        samples = [origin.sample for origin in loader.explain(0)]
        far = loader.get_num_batches() - 1
        loader.seek(far)
        last = loader.next().metadata["step"]
        state = len(json.dumps(loader.state_dict()))
        mapped = 0
        for line in Path("/proc/self/smaps").read_text().splitlines():
            words = line.split()
            if not words[0].endswith(":"):
                ours = path in line
            elif ours and words[0] == "Rss:":
                mapped += int(words[1]) * 1024
        print(json.dumps({"rows": rows, "samples": samples, "far": far, "last": last, "state": state, "mapped": mapped,
                          "memory": private() - memory, "read": bytes_read() - read}))
"""


@pytest.mark.parametrize("kind", ["pretrain", "mixed"])
@pytest.mark.parametrize("shuffle", ["global", "local"])
def test_a_trillion_shuffled_tokens_deliver_their_first_and_last_batch_for_next_to_nothing(
    tmp_path: Path, kind: str, shuffle: str
) -> None:
    """Anything that went through all samples, or all tokens, would run for minutes and meet the time limit."""
    build_sparse(tmp_path / "store", rows_of([Row(TOKENS, 3, tag=1, bound=2, file=0)]), TOKENS)

    found = json.loads(ran(FIRST_BATCHES, tmp_path / "store", shuffle, kind)[0])

    assert found["rows"] == 64
    assert found["last"] == found["far"] > TOKENS // 16 // 64 - 2
    assert max(found["samples"]) - min(found["samples"]) > 10**6  # shuffled, in a window of 64 Mi tokens at least
    assert found["state"] < 4096
    assert found["memory"] < 16 * MIB
    assert found["mapped"] < MOST_MAPPED < TOKENS * 2 / 500
    assert found["read"] < MIB
