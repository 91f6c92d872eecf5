"""Raw paths in the place of a store: what is raw, how it is read, and preparing it once into the cache."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from millstream.errors import BusyError, LoaderError, SourceError, StoreError
from millstream.loaders import LoaderSettings, positive
from millstream.preparation import OnBad, check_on_bad
from millstream.sources import Found, FoundFile, Reading, discover, format_of, identify_object, touch_of
from millstream.stages import cpus, poll
from millstream.stats import OnProgress
from millstream.storage import default_cache_dir, key_of
from millstream.store import MAGIC, TokenStore

if TYPE_CHECKING:
    from millstream.chats import ChatSettings
    from millstream.preparation import Mixing, RunOptions, StoreRecipe
    from millstream.records import Recipe

_WAIT_S = 0.1
_DISCOVERY = ("format", "include", "exclude")
_LIMITS = ("max_document_bytes", "max_expansion", "max_decoded_bytes", "chunk_bytes")
_log = logging.getLogger("millstream.loaders")


class CuttingKeywords(TypedDict, total=False):
    """Which files of a raw source are read, and how they are cut into documents, whatever their format is."""

    include: Iterable[str]
    exclude: Iterable[str]
    text_field: str
    documents: str
    separator: str | None
    encoding: str
    on_invalid: Literal["reject", "replace"]
    max_document_bytes: int
    max_expansion: int
    chunk_bytes: int


class ReadingKeywords(CuttingKeywords, total=False):
    """Which files of a raw source are read, and how they are cut into documents (`Reading`, `discover`)."""

    format: str | None


_WORDS = "|".join(word + ("=?" if "_" in word else "=") for word in ReadingKeywords.__annotations__)


@contextmanager
def in_words_of_loaders() -> Iterator[None]:
    """Hints name the keywords of `prepare`; a loader takes them in `reading=`.

    >>> with in_words_of_loaders():
    ...     raise SourceError("a.txt:1: not UTF-8", hint='pass encoding= or on_invalid="replace"')
    Traceback (most recent call last):
    millstream.errors.SourceError: a.txt:1: not UTF-8
      hint: pass reading={"encoding": …} or reading={"on_invalid": "replace"}
    """
    try:
        yield
    except SourceError as error:
        error.hint = re.sub(
            rf'(?<!["\w])({_WORDS})(?!\w)("[^"]*")?',
            lambda word: f'reading={{"{word[1].rstrip("=")}": {word[2] or "…"}}}',
            error.hint or "",
        )
        error.args = (f"{error.message}\n  hint: {error.hint}" if error.hint else error.message,)
        raise


@dataclass(frozen=True)
class RawSettings:
    """How raw files become tokens: the words of `prepare`. `reading` holds those that say how files are cut."""

    recipe: Any = None
    on_bad: OnBad = "error"
    eos: str | int | None = "auto"
    reading: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_on_bad(self.on_bad)

    @property
    def untouched(self) -> bool:
        """Whether no setting was given."""
        return self == RawSettings()

    def found(self, path: Any) -> Found:
        """Find the files of a raw path."""
        return discover(path, **{key: self.reading[key] for key in _DISCOVERY if key in self.reading})

    def how(self) -> Reading:
        """How the files are cut into documents."""
        known = {each.name for each in fields(Reading)}
        for key in self.reading:
            if key not in known and key not in _DISCOVERY:
                raise LoaderError(
                    f"reading={{{key!r}: …}} is unknown", hint=f"use {', '.join(sorted({*known, *_DISCOVERY}))}"
                )
        given = {key: value for key, value in self.reading.items() if key in known}
        return Reading(**given | {key: positive(key, given[key]) for key in _LIMITS if key in given})


def is_raw(path: Any) -> bool:
    """Whether a path holds texts rather than tokens.

    >>> is_raw("corpus/*.jsonl"), is_raw("tokens.bin"), is_raw(["a.txt", "b.txt"]), is_raw("missing.jsonl")
    (True, False, True, True)
    """
    if isinstance(path, TokenStore):
        return False
    if not isinstance(path, str | os.PathLike):
        return True
    place = Path(path)
    if place.is_dir():
        return not (place / "manifest.json").exists()
    if not place.is_file():
        return has_magic(os.fspath(path)) or format_of(place) is not None  # the reader says that it is missing
    with place.open("rb") as file:
        return file.read(len(MAGIC)) != MAGIC and format_of(place) is not None


@dataclass(frozen=True)
class CachedStore:
    """A store that is made of raw files in the cache: where it belongs, and how it is made there, by one process."""

    found: Found
    output: Path
    making: StoreRecipe
    means: RunOptions

    @property
    def sources(self) -> list[str]:
        """The names of its files, as the store will list them."""
        return [file.name for file in self.found.files]

    def make(self, progress: OnProgress | None = None) -> None:
        """Make it, from where an earlier run stopped; raises BusyError while another process does."""
        from millstream.preparation import prepare_store, reporting

        means = self.means if progress is None else replace(self.means, progress=progress)
        _log.info("preparing %d files into %s", len(self.found.files), self.output)
        try:
            prepare_store(self.found, self.output, self.making, means, reporting(self.found, means))
        except StoreError:
            if not self.output.exists():  # else another process was faster
                raise


def cached_store(
    path: Any,
    tokenizer: Any,
    raw: RawSettings,
    settings: LoaderSettings,
    *,
    chat: ChatSettings | None = None,
    mixing: Mixing | None = None,
) -> CachedStore:
    """Say which store of the cache is that of a raw path."""
    if settings.in_memory:
        raise LoaderError(
            'cache_dir="memory://" keeps the windows of a stream, and this is prepared as a whole',
            hint="pass streaming=True" if chat is None else "pass the path of a folder, or leave it out",
        )
    from millstream.preparation import RunOptions, StoreRecipe
    from millstream.records import Recipe

    found, recipe, decided = raw.found(path), Recipe.of(raw.recipe), None
    reading = replace(raw.how(), whole_rows=chat is not None)
    if chat is not None:
        from millstream.chats import DecidedChat, documents_of

        decided = DecidedChat.of(chat, found.files, reading, tokenizer)
        mixing = mixing and replace(mixing, unit=documents_of(decided.settings.kind))
    if recipe.digest() is None:
        raise LoaderError(
            f"what {', '.join(recipe.uncacheable())} does cannot be told from its source, so nothing can be cached",
            hint=_instead_of_the_cache(chat),
        )
    wanted = tokenizer if isinstance(tokenizer, str) else tokenizer.fingerprint
    rows = decided and decided.settings.identity
    identity = [asdict(reading), recipe.digest(), wanted, raw.eos, raw.on_bad, rows, repr(mixing)]
    root = default_cache_dir() if settings.cache_dir is None else settings.cache_dir
    touches = [touch(file) for file in found.files]
    if not all(touches):
        raise LoaderError(
            f"what {described(path)} holds cannot be told without reading it, so nothing can be cached",
            hint=_instead_of_the_cache(chat),
        )
    making = StoreRecipe(reading, recipe, tokenizer, raw.eos, chat=decided, mixing=mixing)
    means = RunOptions(workers=cpus(), on_bad=raw.on_bad, resume=True, cache_dir=root / "parts")
    if settings.cache_limit is not None:
        means = replace(means, cache_limit=settings.cache_limit)
    return CachedStore(found, root / "stores" / key_of("store", touches, identity), making, means)


def _instead_of_the_cache(chat: ChatSettings | None) -> str:
    """What works where nothing can be cached."""
    if chat is not None:
        return 'prepare(…, kind="chat") it into a store of your own, and load that'
    return "prepare() it into a store of your own, or pass streaming=True"


@in_words_of_loaders()
def prepared_store(path: Any, tokenizer: Any, raw: RawSettings, settings: LoaderSettings) -> Path:
    """Prepare a raw path into the cache, unless that was done before; gives the path of the store."""
    cached = cached_store(path, tokenizer, raw, settings)

    def is_made() -> bool | None:
        with suppress(BusyError):  # another rank prepares it
            if not cached.output.exists():
                cached.make()
        return cached.output.exists() or None

    poll(is_made, pauses_s=(_WAIT_S, _WAIT_S))
    return cached.output


def check_streamable(recipe: Recipe) -> None:
    """Refuse steps that must see all documents before they can decide about one."""
    late: Sequence[Any] = recipe.pipeline().global_steps
    if late:
        raise LoaderError(
            f"the recipe's step {late[0].name!r} compares each document with all others, which a stream cannot",
            hint="prepare() the data with this recipe and load the store, or leave the step out",
        )


def described(path: Any) -> str:
    """A source in few words.

    >>> described("a.txt"), described(["a.txt", "b.txt"])
    ('a.txt', 'list')
    """
    return os.fspath(path) if isinstance(path, str | os.PathLike) else str(getattr(path, "path", type(path).__name__))


def touch(file: FoundFile) -> str:
    """What tells a file, or other data, from another without reading it; nothing where nothing does."""
    return touch_of(file.path) if file.data is None else identify_object(file.data)
