"""Contents of typed parts, and the pictures, films and sounds that placeholders in texts stand for.

References are kept as they are: nothing is opened. For each kind, all of them stand in the typed parts or all in a
column of the row, and there are as many as there are placeholders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from millstream.chats.parse.conversation import Media, Message, Stretch
from millstream.chats.parse.fields import Row, encodable, items, mapping, needed, shown, text, wrong
from millstream.chats.parse.weights import weight_of
from millstream.errors import RecordError

Kind: TypeAlias = Literal["image", "video", "audio"]
Mentioned: TypeAlias = list[Media | Kind]
"""What typed parts name: a reference, or only its kind, when a column of the row lists the references."""

PLACEHOLDERS: dict[Kind, str] = {"image": "<image>", "video": "<video>", "audio": "<audio>"}
COLUMNS: dict[Kind, str] = {"image": "images", "video": "videos", "audio": "audios"}
_TEXT = ("text", "input_text", "output_text")
_KINDS: dict[str, Kind] = {kind + end: kind for kind in PLACEHOLDERS for end in ("", "_url")}
_KINDS |= {"input_image": "image", "input_audio": "audio"}
_REFERENCES = ("url", "path", "base64", "bytes", "data", "file", "file_id")


def joined_parts(parts: Iterable[Any], where: str, media: Mentioned) -> tuple[str, list[Stretch]]:
    """The text of typed parts with placeholders for media, which are added to `media`, and the stretches that the
    flags of parts make.

    >>> joined_parts([{"type": "image", "path": "a.png"}, {"type": "text", "text": "What?", "weight": 0}], "", [])
    ('<image>What?', [Stretch(start=7, stop=12, weight=0.0)])
    """
    pieces: list[str] = []
    stretches: list[Stretch] = []
    at = 0
    for place, value in enumerate(parts):
        here = f"{where}[{place}]"
        part = mapping(value, here)
        name = needed(part, "type", here)
        if name in _TEXT:
            piece = text(needed(part, "text", here), f"{here}.text")
        elif isinstance(name, str) and name in _KINDS:
            piece = PLACEHOLDERS[_KINDS[name]]
            reference = _reference(part, name)
            media.append(_KINDS[name] if reference is None else _media(_KINDS[name], reference, here))
        else:
            raise RecordError(
                "unknown part", f"{here} has type {shown(name)}", hint=f"known types: text, {', '.join(_KINDS)}"
            )
        weight = weight_of(part, here)
        if weight is not None and piece:
            stretches.append(Stretch(at, at + len(piece), weight))
        pieces.append(piece)
        at += len(piece)
    return "".join(pieces), stretches


def media_of(row: Row, messages: Iterable[Message], mentioned: Mentioned) -> tuple[Media, ...]:
    """All media of a row, images first: those of its typed parts, or those of its columns."""
    found: list[Media] = []
    for kind, column in COLUMNS.items():
        listed = row.get(column)
        ours = [each for each in mentioned if isinstance(each, Media) and each.kind == kind]
        if listed is None and not ours and kind not in mentioned:
            continue
        given = [] if listed is None else items([listed] if isinstance(listed, str | Mapping) else listed, column)
        if ours and given:
            raise RecordError(
                "media twice",
                f"{column!r} lists {len(given)}, and parts name {len(ours)} themselves",
                hint=f"leave one of them out, e.g. columns={{{column!r}: None}}",
            )
        ours += [_media(kind, each, f"{column}[{place}]") for place, each in enumerate(given)]
        places = sum(each.content.count(PLACEHOLDERS[kind]) for each in messages)
        if places != len(ours):
            raise RecordError(
                "media count",
                f"the texts have {places} {PLACEHOLDERS[kind]} and the row has {len(ours)} {column}",
                hint=f"each {PLACEHOLDERS[kind]} stands for one of {column!r}, in this order",
            )
        found += ours
    return tuple(found)


def _reference(part: Row, name: str) -> Any:
    own = part.get(name, part.get(_KINDS[name]))
    if own is not None:
        return own
    found = {key: part[key] for key in _REFERENCES if part.get(key) is not None}
    return found or None


def _media(kind: Kind, reference: object, where: str) -> Media:
    """A reference; an object that only has an address or a path is that string."""
    if isinstance(reference, Mapping):
        kept = {str(key): each for key, each in reference.items() if each is not None}
        if len(kept) == 1 and isinstance(only := kept.get("url", kept.get("path")), str):
            return Media(kind, text(only, where))
        if not kept:
            raise wrong(where, reference, "a path, an address or an object with one")
        return Media(kind, encodable(kept, where))
    if isinstance(reference, str) and reference:
        return Media(kind, text(reference, where))
    raise wrong(where, reference, "a path, an address or an object with one")
