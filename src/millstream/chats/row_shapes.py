"""Plain conversations, encoded by the core: what a built-in format writes around texts depends on the roles, the shape.

Each shape is rendered once by the format itself, with stand-ins for the texts, and weighed as any other row; the core
then puts the texts of thousands of rows into it (csrc/core/chat/chats.h). Whatever may depend on the texts themselves,
or says more than roles and contents, is left to encode.py, which is slower: both give the same tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millstream import _core
from millstream.chats.align import borders, segments
from millstream.chats.masks import Policy, weigh
from millstream.chats.parse import Conversation, Message, RowParser, plain_names
from millstream.chats.pieces import Pieces, begins_of
from millstream.chats.run_tokenizer import RunTokenizer
from millstream.chats.templates import ChatTemplate
from millstream.chats.truncate import Limit
from millstream.errors import RecordError, TemplateError
from millstream.tokens import Ends, Ids, Text

_NO_LIMIT = 1 << 62
_MOST_SHAPES = 4096
_LETTERS = {"system": "s", "user": "u", "assistant": "a", "developer": "d"}
_ROLES = {letter: role for role, letter in _LETTERS.items()}
_BLANKS = (" ", "\n", "\t", "\u3000")
_TEXT, _CONTENT, _CONTROL = range(3)
_ShapePart = tuple[int, bool, bool, float, int, bytes]


class ShapedRows(NamedTuple):
    """The rows of a block that could be encoded natively, as documents end to end."""

    ids: Ids
    weights: NDArray[np.float32]
    ends: Ends
    places: NDArray[np.int64]
    straddlers: int


class ShapeEncoder:
    """Encodes plain conversations of blocks with one template and one tokenizer."""

    def __init__(self, template: ChatTemplate, policy: Policy, runs: RunTokenizer, *, strict: bool) -> None:
        self._template, self._policy, self._runs, self._strict = template, policy, runs, strict
        self._sizes = runs.bytes_of_ids()
        self._shapes: dict[str, _core.ChatShape] = {}

    @classmethod
    def of(cls, template: object, policy: Policy, runs: RunTokenizer, *, strict: bool) -> ShapeEncoder | None:
        """An encoder for a template that follows shapes, and a tokenizer whose tokens spell their texts."""
        if isinstance(template, ChatTemplate) and template.looked_for is not None and runs.spells:
            return cls(template, policy, runs, strict=strict)
        return None

    def encode(self, text: Text, ends: Ends, parser: RowParser, limit: Limit) -> ShapedRows | None:
        """Encode the plain rows of a block of JSON; None where the parser reads more than such rows say."""
        fields = plain_names(parser)
        if fields is None or self._template.looked_for is None:
            return None
        roles = [(name, _LETTERS[role]) for name, role in fields.roles.items() if role in _LETTERS]
        names = _core.ChatNames(
            messages=fields.messages,
            role=fields.role,
            content=fields.content,
            besides=list(fields.besides),
            roles=roles,
            looked_for=list(self._template.looked_for),
        )
        rows = _core.ChatRows(text, ends, names)
        shapes = [self._shape(shape) for shape in rows.shapes]
        ids, id_ends, altered = self._runs.encode_runs(*rows.lay(shapes))
        made = rows.weigh(
            shapes,
            ids,
            id_ends,
            self._sizes,
            altered,
            most_tokens=_NO_LIMIT if limit.max_length is None else limit.max_length,
            keep_untrained=limit.untrained == "keep",
            keep_straddlers=not self._strict,
        )
        return ShapedRows(*made)

    def _shape(self, letters: str) -> _core.ChatShape:
        known = self._shapes.get(letters)
        if known is None:
            known = self._rendered([_ROLES[letter] for letter in letters])
            if len(self._shapes) < _MOST_SHAPES:
                self._shapes[letters] = known
        return known

    def _rendered(self, roles: Sequence[str]) -> _core.ChatShape:
        """What the format makes of a shape; nothing if it refuses it, or does more than put texts between its own."""
        parts = self._parts(roles, "") if "assistant" in roles else None
        if parts is None:
            return _core.ChatShape([], verbatim=False)
        return _core.ChatShape(parts, verbatim=all(self._parts(roles, blank) == parts for blank in _BLANKS))

    def _parts(self, roles: Sequence[str], around: str) -> list[_ShapePart] | None:
        """The parts of a shape as the core wants them; None if some text is not where, or as, it should be."""
        messages = [Message(role, f"{around}\ue000{at}\ue001{around}") for at, role in enumerate(roles)]
        conversation = Conversation(tuple(messages))
        try:
            rendered = self._template.render(conversation)
            spans = weigh(pieces := Pieces.of([rendered]), [conversation], self._policy)
        except (TemplateError, RecordError):
            return None
        said = [piece.text for piece in rendered if piece.given]
        others = "".join(piece.text for piece in rendered if not piece.given)
        contents = {message.content: at for at, message in enumerate(messages)}
        if sorted(said) != sorted(contents) or "\ue000" in others:
            return None
        controls = self._runs.controls_in(pieces)
        cut = segments(pieces, controls, borders(spans) if self._runs.split else np.empty(0, np.int64))
        ids = iter(controls[:, 2].tolist())
        parts = []
        begin = 0
        for end in np.unique(np.concatenate([spans.ends, cut.ends])).tolist():
            segment = int(np.searchsorted(cut.ends, begin, side="right"))
            first = int(np.searchsorted(spans.ends, begin, side="right"))
            weight, opens = float(spans.weights[first]), begin == int(begins_of(cut.ends)[segment])
            text = pieces.text[begin:end].tobytes()
            if not cut.control[segment]:
                content = contents[text.decode()] if pieces.given[first] else 0
                parts.append((_CONTENT if pieces.given[first] else _TEXT, opens, False, weight, content, text))
            elif opens:
                last = int(np.searchsorted(spans.ends, cut.ends[segment] - 1, side="right"))
                within = spans.weights[first : last + 1]
                least, straddles = float(within.min()), bool(within.min() != within.max())
                parts.append((_CONTROL, True, straddles, least, next(ids), b""))
            begin = end
        return [part if part[0] != _CONTENT else (*part[:5], b"") for part in parts]
