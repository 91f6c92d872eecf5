"""Contents of messages: typed parts, the media that placeholders stand for, and flags that become weights.

Media references are kept as they are: nothing is opened. For each kind, all of them stand in the typed parts or all in
a column of the row. There are as many as there are placeholders.

Of the training flags, `weight` and `loss_scale` are numbers; `train`, `training` and `loss` say yes or no, `masked`
says the opposite; `training_detail` (or `train_detail`) lists stretches by character, the last one included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from millstream.chats.parse.row_fields import Row, encodable, flag, items, mapping, needed, shown, text, wrong
from millstream.chats.parse.row_types import Media, Message, Stretch
from millstream.errors import RecordError

MediaKind: TypeAlias = Literal["image", "video", "audio"]
Mentioned: TypeAlias = list[Media | MediaKind]
"""What typed parts name: a reference, or only its kind, when a column of the row lists the references."""
PLACEHOLDERS: dict[MediaKind, str] = {"image": "<image>", "video": "<video>", "audio": "<audio>"}
COLUMNS: dict[MediaKind, str] = {"image": "images", "video": "videos", "audio": "audios"}
_TEXT = ("text", "input_text", "output_text")
_KINDS: dict[str, MediaKind] = {kind + end: kind for kind in PLACEHOLDERS for end in ("", "_url")}
_REFERENCES = ("url", "path", "base64", "bytes", "data", "file", "file_id")
MOST = 75
"""The greatest weight: what a token of a store can hold (millstream.store.weighted_tokens)."""
_NUMBERS = ("weight", "loss_scale")
_YES = ("train", "training", "loss")
_NO = "masked"
_DETAILS = ("training_detail", "train_detail")
_FLAGS = frozenset({*_NUMBERS, *_YES, _NO})


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


_KINDS |= {"input_image": "image", "input_audio": "audio"}


def _reference(part: Row, name: str) -> Any:
    own = part.get(name, part.get(_KINDS[name]))
    if own is not None:
        return own
    found = {key: part[key] for key in _REFERENCES if part.get(key) is not None}
    return found or None


def _media(kind: MediaKind, reference: object, where: str) -> Media:
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


def weight_of(row: Row, where: str) -> float | None:
    """What a message or a part says about its loss; None if it says nothing.

    >>> weight_of({"weight": 0.5}, ""), weight_of({"masked": True}, ""), weight_of({"role": "user"}, "")
    (0.5, 0.0, None)
    """
    if _FLAGS.isdisjoint(row):
        return None
    said: dict[str, float] = {}
    for name in _NUMBERS:
        if (value := row.get(name)) is not None:
            said[name] = number(value, f"{where}.{name}")
    for name in _YES:
        if (value := row.get(name)) is not None:
            said[name] = float(flag(value, f"{where}.{name}"))
    if (value := row.get(_NO)) is not None:
        said[_NO] = float(not flag(value, f"{where}.{_NO}"))
    if not said:
        return None
    numbers = {said[name] for name in _NUMBERS if name in said}
    if len({value > 0 for value in said.values()}) > 1 or len(numbers) > 1:
        flags = ", ".join(f"{name}={shown(row[name])}" for name in said)
        raise RecordError("flags contradict", f"{where} has {flags}", hint="keep one of them")
    return numbers.pop() if numbers else next(iter(said.values()))


def number(value: object, where: str) -> float:
    """A weight: finite, not negative, and not more than a store can hold.

    >>> number(-1, "weight")
    Traceback (most recent call last):
    millstream.errors.RecordError: bad weight: weight is -1
      hint: weights are numbers from 0 to 75; scale them all down
    """
    if not isinstance(value, int | float):
        raise wrong(where, value, "a number")
    if not 0 <= value <= MOST:  # nor is what is not a number
        raise bad_weight(f"{where} is {shown(value)}")
    return float(value)


def bad_weight(found: str) -> RecordError:
    """The error for a weight that no token can have."""
    return RecordError("bad weight", found, hint=f"weights are numbers from 0 to {MOST}; scale them all down")


def stretches_of(row: Row, content: str, where: str) -> tuple[Stretch, ...]:
    """The stretches that a message lists, sorted.

    >>> stretches_of({"training_detail": [{"begin_offset": 0, "end_offset": 4, "train": False}]}, "hello you", "")
    (Stretch(start=0, stop=5, weight=0.0),)
    """
    for name in _DETAILS:
        if (details := row.get(name)) is not None:
            where = f"{where}.{name}"
            listed = items(details, where)
            found = [_stretch(each, len(content), f"{where}[{place}]") for place, each in enumerate(listed)]
            return in_order(found, where)
    return ()


def in_order(stretches: list[Stretch], where: str) -> tuple[Stretch, ...]:
    """The same, sorted; an error if two overlap."""
    stretches.sort(key=lambda each: each.start)
    for before, after in pairwise(stretches):
        if after.start < before.stop:
            found = f"{where}: character {after.start} lies in two stretches"
            raise RecordError("stretches overlap", found, hint="each ends, last character included, before the next")
    return tuple(stretches)


def _stretch(value: Any, length: int, where: str) -> Stretch:
    detail = mapping(value, where)
    begin, end = (_offset(needed(detail, name, where), f"{where}.{name}") for name in ("begin_offset", "end_offset"))
    if not 0 <= begin <= end < length:
        found = f"{where} is characters {shown(begin)} to {shown(end)} of a content of {length}"
        raise RecordError("offsets outside", found, hint="offsets count characters from 0; end_offset is the last one")
    weight = weight_of(detail, where)
    if weight is None:
        raise RecordError("no flag", f"{where} does not say whether to train", hint='add "train": true or false')
    return Stretch(begin, end + 1, weight)


def _offset(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value % 1:
        raise wrong(where, value, "a whole number")
    return int(value)
