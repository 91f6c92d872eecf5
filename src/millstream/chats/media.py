"""Pictures, films and sounds of a row: where a placeholder in its texts becomes a token of the model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from millstream.chats.parse import PLACEHOLDERS, ChatRow
from millstream.chats.pieces import Rendered
from millstream.errors import RecipeError, RecordError

Media: TypeAlias = Literal["refuse", "ignore", "keep"]
"""What happens to rows with media: refused, without them, or kept: batches then carry the references."""
MediaTokens: TypeAlias = Mapping[str, str]
"""What stands for one picture, film or sound in the text of the model: one control string, or several."""
_MARK = re.compile(r"<[^<>]*>|\[[^\[\]]*\]")


def check_media(media: str, tokens: MediaTokens) -> None:
    """Refuse what cannot be meant."""
    if media not in ("refuse", "ignore", "keep"):
        raise RecipeError(f"media={media!r} is unknown", hint='choose "refuse", "ignore" or "keep"')
    unknown = [kind for kind in tokens if kind not in PLACEHOLDERS]
    if unknown or not all(tokens.values()):
        raise RecipeError(
            f"media_tokens={dict(tokens)!r}: " + (f"there is no kind {unknown[0]!r}" if unknown else "one is empty"),
            hint='write, e.g., media_tokens={"image": "<|image_pad|>"}; kinds are image, video and audio',
        )
    if tokens and media != "keep":
        raise RecipeError(f"media_tokens= with media={media!r}", hint='pass media="keep" with it')


def media_refused(row: ChatRow) -> RecordError | None:
    """The error for a row with media, which tokens alone would lose in silence; None if it has none."""
    media = getattr(row, "media", ())
    if not media:
        return None
    return RecordError(
        "pictures, films or sounds",
        f"it refers to {len(media)} of them, the first is {media[0].kind} {str(media[0].reference)[:80]!r}",
        hint='media="keep" delivers references with the batches of conversations, media="ignore" leaves them out',
    )


def control_strings(tokens: MediaTokens) -> tuple[str, ...]:
    """The control strings that media tokens are made of.

    >>> control_strings({"image": "<|vision_start|><|image_pad|><|vision_end|>", "audio": "AUDIO"})
    ('<|vision_start|>', '<|image_pad|>', '<|vision_end|>', 'AUDIO')
    """
    found: list[str] = []
    for text in tokens.values():
        marks = _MARK.findall(text)
        found += marks if "".join(marks) == text else [text]
    return tuple(dict.fromkeys(found))


def with_media_tokens(rendered: Rendered, tokens: MediaTokens) -> Rendered:
    """The pieces of a row that has media, with the model's token in the place of each placeholder.

    >>> from millstream.chats.pieces import Kind, Piece
    >>> row = [Piece("See <image>!", Kind.content, 0, True, "user")]
    >>> [(piece.text, piece.given) for piece in with_media_tokens(row, {"image": "<|image_pad|>"})]
    [('See ', True), ('<|image_pad|>', False), ('!', True)]
    """
    made = {placeholder: tokens[kind] for kind, placeholder in PLACEHOLDERS.items() if kind in tokens}
    if not made:
        return rendered
    cut = re.compile("(" + "|".join(map(re.escape, made)) + ")")
    pieces: Rendered = []
    for piece in rendered:
        parts: Sequence[str] = cut.split(piece.text) if piece.given else [piece.text]
        for part in filter(None, parts):
            ours = part in made and len(parts) > 1
            pieces.append(piece._replace(text=made[part] if ours else part, given=piece.given and not ours))
    return pieces
