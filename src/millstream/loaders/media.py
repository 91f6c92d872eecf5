"""Which pictures, films and sounds the rows of a batch refer to: read again from the records that rows came from.

A store holds tokens. What a row refers to stands in its raw record, to which every document knows the way, and nothing
is opened or decoded here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from millstream.chats import DecidedChat, MediaTokens, control_strings
from millstream.chats.parse import Media, Options, RowParser
from millstream.errors import LoaderError, SourceError
from millstream.loaders.rows import RowOrigin
from millstream.preparation import ReadRecord, origin_of, reader_of_files, reader_of_store
from millstream.sources import FoundFile, Reading, object_in
from millstream.store import Origin, TokenStore
from millstream.tokens import Tokenizer

_REMEMBERED = 1 << 16


@dataclass(frozen=True, slots=True)
class MediaReference:
    """A picture, film or sound of a row, as its record names it: a path, an address, or an object with one.

    `segment` is the place of its conversation in the row, `position` the first of the tokens that stand for it in the
    row; None where it has no token of its own.
    """

    kind: Literal["image", "video", "audio"]
    reference: str | Mapping[str, Any]
    document: int
    segment: int
    position: int | None


class MediaRows:
    """Finds the media of rows. `tokens` are the ids that stand for one of a kind; `from_end`: rows lost their front."""

    def __init__(
        self,
        read: ReadRecord,
        options: Options,
        formats: Mapping[str, str | None],
        tokens: Mapping[str, Sequence[int]],
        *,
        from_end: bool,
    ) -> None:
        self._read, self._options, self._formats = read, options, formats
        self._tokens = {kind: np.array(ids) for kind, ids in tokens.items()}
        self._from_end = from_end
        self._media = lru_cache(_REMEMBERED)(self._media_at)

    def of(self, store: TokenStore, rows: Sequence[RowOrigin], ids: NDArray[Any]) -> list[list[MediaReference]]:
        """The media of each row, in the order of their places."""
        return [self._of_row(store, origin, ids[row]) for row, origin in enumerate(rows)]

    def _of_row(self, store: TokenStore, origin: RowOrigin, ids: NDArray[Any]) -> list[MediaReference]:
        found: list[MediaReference] = []
        begin = 0
        for segment, span in enumerate(origin.spans):
            end = begin + span.stop - span.start
            where = origin_of(store, span.document)
            media = self._media(where.file, where.row, where.start, where.stop)
            for kind in dict.fromkeys(each.kind for each in media):
                mine = [each for each in media if each.kind == kind]
                for each, position in self._placed(mine, ids[begin:end]):
                    place = None if position is None else begin + position
                    found.append(MediaReference(kind, each.reference, span.document, segment, place))
            begin = end
        return found

    def _placed(self, media: Sequence[Media], ids: NDArray[Any]) -> list[tuple[Media, int | None]]:
        """The media of one kind in a conversation, each with the place of its tokens there."""
        token = self._tokens.get(media[0].kind)
        if token is None:
            return [(each, None) for each in media]
        places = occurrences(ids, token)
        if len(places) > len(media):
            raise LoaderError(
                f"a conversation has {len(places)} places for {media[0].kind}s, and its record names {len(media)}",
                hint="the file has changed since it was tokenised: prepare it again",
            )
        left = len(media) - len(places)  # cut off with the tokens of their places
        kept = media[left:] if self._from_end else media[: len(places)]
        return list(zip(kept, places, strict=True))

    def _media_at(self, file: str, row: int, start: int | None, stop: int | None) -> tuple[Media, ...]:
        raw = self._read(Origin(file, row, start, stop))
        parsed = RowParser(self._formats.get(file), self._options).parse(object_in(raw.decode(), like="a row"))
        return getattr(parsed, "media", ())


def media_of_files(files: Sequence[FoundFile], reading: Reading, chat: DecidedChat) -> MediaRows | None:
    """What finds the media of rows that are at hand, if they are kept."""
    how = chat.settings
    if how.media != "keep":
        return None
    formats = {file.name: chat.formats.of(file) for file in files}
    tokens, from_end = chat.encoder.media_ids(), how.limit.truncation == "keep_end"
    return MediaRows(reader_of_files(files, reading), how.options, formats, tokens, from_end=from_end)


def media_of_store(store: TokenStore, recipe: Mapping[str, Any], tokenizer: Tokenizer | None) -> MediaRows | None:
    """What finds the media of a prepared store, in the files that it was made from, if they were kept."""
    if recipe.get("media") != "keep":
        return None
    asked: MediaTokens = recipe.get("media_tokens") or {}
    options = Options(columns=recipe.get("columns") or {}, roles=recipe.get("roles") or {})
    formats = dict.fromkeys([source["path"] for source in store.manifest["sources"]], recipe.get("format"))
    from_end = recipe.get("truncation") == "keep_end"
    tokens = {kind: _ids({kind: text}, tokenizer, store) for kind, text in asked.items()}
    return MediaRows(_reader(store), options, formats, tokens, from_end=from_end)


def _reader(store: TokenStore) -> ReadRecord:
    read = reader_of_store(store)

    def read_or_say(origin: Origin) -> bytes:
        try:
            return read(origin)
        except SourceError as error:
            hint = "media are named by the raw files: keep those where and as they were, or prepare the store again"
            raise SourceError(error.message, hint=hint) from None

    return read_or_say


def _ids(token: MediaTokens, tokenizer: Tokenizer | None, store: TokenStore) -> list[int]:
    found = [] if tokenizer is None else [tokenizer.token_id(each) for each in control_strings(token)]
    known = [id for id in found if id is not None]
    if not known or len(known) < len(found):
        raise LoaderError(
            f"{store.path}: its tokenizer must say which tokens {token} are, the places of media in a row",
            hint="pass tokenizer=, the one that the store was made with",
        )
    return known


def occurrences(ids: NDArray[Any], wanted: NDArray[Any]) -> list[int]:
    """Where some ids stand one after the other.

    >>> occurrences(np.array([7, 8, 9, 7, 8, 8]), np.array([7, 8]))
    [0, 3]
    """
    if len(ids) < len(wanted):
        return []
    windows = np.lib.stride_tricks.sliding_window_view(ids, len(wanted))
    return np.flatnonzero((windows == wanted).all(axis=1)).tolist()
