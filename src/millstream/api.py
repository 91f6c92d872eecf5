"""The folders composed: raw data -> a store, a store -> its loader."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Unpack

from millstream.chats import ChatSettings
from millstream.errors import LoaderError, RecipeError, SourceError, StoreError
from millstream.loaders import (
    ChatKeywords,
    ConversationDataLoader,
    PretrainDataLoader,
    RolloutDataLoader,
    SelfPlayDataLoader,
    kind_of,
    parse_bytes,
    positive,
    prepared_chat,
)
from millstream.loaders.growing import CuttingKeywords, RawSettings
from millstream.preparation import (
    Make,
    OnBad,
    RayCluster,
    RunOptions,
    StoreRecipe,
    make_part,
    prepare_store,
    read_report,
    report_of,
    report_path,
    reporting,
)
from millstream.records import Recipe
from millstream.settings import local_path
from millstream.sources import Found, Record, Where
from millstream.stages import cpus
from millstream.stats import OnProgress
from millstream.storage import ZSTD_LEVEL, default_cache_dir, need_zstd
from millstream.tokens import load_tokenizer

_log = logging.getLogger("millstream.api")


@dataclass(frozen=True, slots=True)
class PrepareReport:
    """What became of the raw data: what is in the store, what was left out and why, and how long it took.

    `skipped` counts records that are not in the store by reason; `details` is the whole report, as `report.json` has
    it and the page `page` shows it. `was_there`: with `resume=True` the finished store was found, and all but `seconds`
    is of the run that made it.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jsonl").write_text('{"text": "the mill"}\\n{"text": ""}\\n')
    >>> prepare(folder / "a.jsonl", folder / "corpus", tokenizer="char").skipped
    {'empty': 1}
    """

    path: Path
    fingerprint: str
    files: int
    documents: int
    tokens: int
    bytes: int
    seconds: float
    dtype: str
    tokenizer: str
    skipped: dict[str, int]
    quarantine: Path | None
    rejected: Path | None
    page: Path
    details: dict[str, Any]
    was_there: bool = False

    @property
    def tokens_per_second(self) -> float:
        """How fast it went, from the first file to the finished store."""
        return self.tokens / max(self.seconds, 1e-9)


class PrepareKeywords(CuttingKeywords, ChatKeywords, total=False):
    """How files are read, and how conversations become tokens; `format` is about both."""


def prepare(
    source: Any,
    output: Where,
    tokenizer: object = "bpe",
    *,
    kind: Literal["text", "chat"] = "text",
    max_length: int | None = None,
    file_format: str | None = None,
    workers: int | None = None,
    recipe: Recipe | Sequence[Any] | Where | None = None,
    on_bad: OnBad = "error",
    resume: bool = False,
    overwrite: bool = False,
    eos: str | int | None = "auto",
    special_tokens: Literal["text", "ids"] | None = None,
    dtype: str | None = None,
    compress: bool | int = False,
    keep_rejected: bool = False,
    cache: bool = True,
    cache_dir: Where | None = None,
    compression: Literal["zstd", "none"] | None = None,
    level: int = ZSTD_LEVEL,
    memory_budget: int | str | None = None,
    engine: Literal["local", "ray"] = "local",
    before: Callable[[Record], None] | None = None,
    after: Callable[[Record, Any], None] | None = None,
    progress: OnProgress | None = None,
    **keywords: Unpack[PrepareKeywords],
) -> PrepareReport:
    """Turn a raw corpus into a token store; the same input gives the same bytes, whatever the number of workers.

    `source` is a file, a folder, a pattern, a list of them, a mapping of them to weights, or a data set of Hugging
    Face. Text, JSON lines, Parquet, Arrow, CSV and tar files are read, also compressed. `tokenizer` is what
    `load_tokenizer` takes, or "char", "bpe" or "bpe:4096" to learn one from the source; it is kept beside the tokens.
    Each document ends with the `eos` token; special tokens that are spelled out in a text are text, unless
    `special_tokens="ids"`.

    `keywords` say which files are read, and how: `format`, `include`, `exclude`, `text_field`, `documents` (what a
    document is in a text file: the "file", a "line", or what is between two `separator`s), `separator`, `encoding`,
    `on_invalid`, `max_document_bytes`, `max_expansion` and `chunk_bytes`.

    `recipe` is a list of steps (names, dicts with a name and settings, functions) or a TOML or YAML file: records are
    cleaned, filtered and deduplicated by it, and what it drops is counted by rule. Bad records raise
    (`on_bad="error"`), or are counted ("skip") and kept aside ("quarantine").

    What was made of each chunk of a file is cached by content: the same thing again is instant, a changed file re-does
    only itself. A run that was killed resumes where it was with `resume=True`; over a finished store of the same files
    and the same recipe there is nothing left to do. `compress=True`, or a level of zstd, packs the tokens of the store
    in blocks, which loaders read more slowly.

    `kind="chat"` reads conversations, of which each token is kept with its weight in the loss, for
    `ConversationDataLoader`. `keywords` then say how they become tokens, as that loader takes them (`chat_template`,
    `train`, …: docs/reference/keywords.md); `max_length` is the most tokens of one, `format` names the format of
    the rows ("messages", "sharegpt", …), and `file_format` that of files whose names do not tell.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jsonl").write_text('{"text": "the mill"}\\n{"text": "the stream"}\\n')
    >>> report = prepare(folder / "a.jsonl", folder / "corpus", tokenizer="char")
    >>> report.documents, report.tokens, report.skipped
    (2, 20, {})
    """
    unknown = keywords.keys() - PrepareKeywords.__annotations__.keys()
    if unknown:
        raise TypeError(f"prepare() got an unexpected keyword argument {min(unknown)!r}")
    path = local_path(output, "an output", StoreError)
    about_texts = {"eos": eos, "special_tokens": special_tokens, "dtype": dtype}
    chat = _chat(keywords, about_texts, tokenizer, max_length) if kind == "chat" else None
    reading = _reading(kind, keywords, file_format, max_length)
    raw = RawSettings(recipe, on_bad, eos, reading)
    how, found = replace(raw.how(), whole_rows=chat is not None), raw.found(source)
    if special_tokens is not None:
        tokenizer = load_tokenizer(tokenizer, special_tokens=special_tokens)
    making = StoreRecipe(how, Recipe.of(recipe), tokenizer, eos, dtype, _packing(compress), before, after, chat)
    make, processors = _engine(engine)
    means = RunOptions(
        workers=processors if workers is None else positive("workers", workers),
        on_bad=on_bad,
        resume=resume,
        overwrite=overwrite,
        cache_dir=_cache_dir(cache_dir) if cache else None,
        level=_level(compression, level),
        keep_rejected=keep_rejected,
        memory_budget=parse_bytes(memory_budget),
        make=make,
        progress=progress or _to_nobody,
    )
    return _prepared(found, path, making, means)


def _chat(
    keywords: Mapping[str, Any], about_texts: Mapping[str, Any], tokenizer: object, max_length: int | None
) -> ChatSettings:
    """How conversations become tokens; what was said about texts is refused."""
    given = {name: value for name, value in about_texts.items() if value not in (None, "auto")}
    return prepared_chat({**keywords, **given}, tokenizer, max_length)


def _reading(kind: str, keywords: Mapping[str, Any], file_format: str | None, max_length: int | None) -> dict[str, Any]:
    """Those of the keywords that say how files are read; what is about conversations is refused for texts."""
    reading = {name: value for name, value in keywords.items() if name in CuttingKeywords.__annotations__}
    if kind == "chat":
        return {**reading, "format": file_format}
    if kind != "text":
        raise RecipeError(f"kind={kind!r} is unknown", hint='choose "text" or "chat"')
    asked = {**keywords, "max_length": max_length, "file_format": file_format}
    for name, value in asked.items():
        if name not in reading and name != "format" and value is not None:
            raise RecipeError(f"{name}= is about conversations, and texts are prepared", hint='pass kind="chat" too')
    return {**reading, "format": keywords.get("format")}


def _prepared(found: Found, path: Path, making: StoreRecipe, means: RunOptions) -> PrepareReport:
    """Make the store, and report."""
    outcome = prepare_store(found, path, making, means, reporting(found, means))
    details = read_report(path)
    if details is None or details["fingerprint"] != outcome.manifest["fingerprint"]:
        details = report_of(outcome, found, means)
    manifest, statistics = outcome.manifest, outcome.statistics
    _log.info("%s: %d tokens of %d documents", path, manifest["tokens"], manifest["documents"])
    return PrepareReport(
        path=path,
        fingerprint=manifest["fingerprint"],
        files=len(statistics.files),
        documents=manifest["documents"],
        tokens=manifest["tokens"],
        bytes=sum(source["bytes"] for source in manifest["sources"]),
        seconds=outcome.seconds,
        dtype=manifest["dtype"],
        tokenizer=outcome.tokenizer,
        skipped=details["left_out"],
        quarantine=outcome.quarantine,
        rejected=outcome.rejected,
        page=report_path(path, ".html"),
        details=details,
        was_there=outcome.was_there,
    )


def _cache_dir(chosen: Where | None) -> Path:
    return (default_cache_dir() if chosen is None else local_path(chosen, "a cache_dir", LoaderError)) / "parts"


def _packing(compress: bool | int) -> int | None:  # noqa: FBT001 - True is the usual level
    if compress is True:
        return ZSTD_LEVEL
    return None if compress is False else compress


def _level(compression: str | None, level: int) -> int | None:
    """The level of what is cached and kept aside; None is plain. A default is plain where there is no zstd."""
    if compression not in ("zstd", "none", None):
        raise SourceError(f"compression={compression!r} is unknown", hint='choose "zstd" or "none"')
    if compression == "zstd":
        need_zstd()
    return None if compression == "none" else level


def _engine(engine: str) -> tuple[Make, int]:
    """What makes the parts, and how many at once unless given."""
    if engine == "local":
        return make_part, cpus()
    if engine == "ray":
        cluster = RayCluster()
        return cluster.make_part, cluster.processors
    raise SourceError(f"engine={engine!r} is unknown", hint='choose "local" or "ray"')


def _to_nobody(progress: object) -> None:
    """Ignore progress."""


def load(
    path: Any, **settings: Any
) -> PretrainDataLoader | ConversationDataLoader | RolloutDataLoader | SelfPlayDataLoader:
    """Open the loader that fits what `path` holds: a store, raw files, games, or a feed; settings are the loader's.

    Conversations are detected by how a store was made, rollouts by the ending `.rollouts` and by being a feed, and
    self-play games by what a folder's archives hold. All are detected by a keyword that is about them alone, or by the
    fields of a first row.

    >>> from millstream.loaders import example_loader
    >>> with load(example_loader().store, chunk_size=4, framework="numpy") as loader:
    ...     loader.get_num_batches()
    1
    """
    kind = kind_of(path, settings)
    if kind == "rollouts":
        return RolloutDataLoader(path, **settings)
    if kind == "games":
        return SelfPlayDataLoader(path, **settings)
    return ConversationDataLoader(path, **settings) if kind == "chat" else PretrainDataLoader(path, **settings)
