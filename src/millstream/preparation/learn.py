"""The tokenizer of a run: loaded, or learned from the very records that it will encode."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from millstream.preparation.part import PartCache
from millstream.records import Recipe
from millstream.sources import FLEETING, BadRecord, Found, Reading, digesting, format_named
from millstream.stats import OnProgress, Progress
from millstream.storage import key_of
from millstream.tokens import BPETokenizer, CharTokenizer, Tokenizer, is_learned, learn_tokenizer, load_tokenizer


def learned_or_loaded(
    wanted: object, found: Found, reading: Reading, recipe: Recipe, cache: PartCache | None, progress: OnProgress
) -> Tokenizer:
    """Load a tokenizer, or learn it in a pass over the files, unless that was done before."""
    if not is_learned(wanted):
        return load_tokenizer(wanted)
    key, known = None, None
    if cache is not None and recipe.digest() is not None:
        digests = [digesting(file, cache)() for file in found.files]
        if all(digests):  # of a file that cannot be hashed nothing is known
            key = key_of("tokenizer", wanted, digests, str(reading), recipe.digest())
            known = cache.note(key)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tokenizer.json")
        if isinstance(known, str):
            path.write_text(known, encoding="utf-8")
            return CharTokenizer.load(path) if wanted == "char" else BPETokenizer.load(path)
        lost: list[BadRecord] = []
        progress(Progress("learn tokenizer", 0, found.bytes, "bytes"))
        tokenizer = learn_tokenizer(str(wanted), _texts(found, reading, recipe, progress, lost))
        progress(Progress("learn tokenizer", found.bytes, found.bytes, "bytes"))  # it learns after the last text
        assert isinstance(tokenizer, BPETokenizer | CharTokenizer)
        tokenizer.save(path)
        if cache is not None and key is not None and not lost:
            cache.put_note(key, path.read_text(encoding="utf-8"))
    return tokenizer


def _texts(
    found: Found, reading: Reading, recipe: Recipe, progress: OnProgress, lost: list[BadRecord]
) -> Iterator[str]:
    """The texts that the recipe leaves; what is bad is counted, or refused, when they are encoded. `lost` gets what
    the files would give at another time."""
    pipeline, before = recipe.pipeline(), 0
    for file in found.files:
        format = format_named(file.format)
        for chunk in format.chunks(file, reading):
            read = format.read(chunk, file, reading)
            lost += [bad for bad in read.bad if bad.reason in FLEETING]
            block = pipeline.run(read.block).block
            for index in range(len(block)):
                yield block.text_of(index)
            done = before + chunk.behind(file.bytes)
            progress(Progress("learn tokenizer", done, found.bytes, "bytes"))
        before += file.bytes
