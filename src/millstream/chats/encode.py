"""Rows of conversations -> ids and weights, a whole batch at a time.

A token belongs to every part of the text that it overlaps, and has the smallest of their weights: so nothing is trained
that should not be, whatever merges cross a border. Weights are decided on whole rows, before any is shortened.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias, get_args

import numpy as np

from millstream.chats.align import overlap
from millstream.chats.masks import Policy, weigh
from millstream.chats.media import MediaTokens, control_strings, with_media_tokens
from millstream.chats.parse import ChatRow, Completion, Conversation, Document, Tokens
from millstream.chats.pieces import Kind, Piece, Pieces, Rendered, Supervised
from millstream.chats.row_shapes import ShapeEncoder
from millstream.chats.run_tokenizer import RunTokenizer
from millstream.chats.templates import CheckedTokens, RowTemplate, check_template
from millstream.chats.truncate import ConversationPart, Limit, shorten
from millstream.errors import MillstreamError, RecipeError, RecordError, TemplateError, TokenizerError
from millstream.tokens import Tokenizer, missing_controls, with_control_tokens

STRADDLERS = "straddlers"
REASONING_LEFT_OUT = "reasoning left out"
UNRENDERED = "cannot be rendered"
TOO_LONG, NOTHING_TO_TRAIN, TRUNCATED = "too long", "nothing to train", "truncated"
Boundary: TypeAlias = Literal["whole", "split"]
_log = logging.getLogger("millstream.chats")


@dataclass(slots=True)
class Encoded:
    """The result for some rows: for each the rows for the store, several if it was split, none if it was left out.

    A row is counted once: it has a fault, or the settings leave it out (`reasons` says why), or it is kept. Of kept
    rows, `changes` says what was lost.
    """

    rows: list[list[Supervised]]
    faults: dict[int, RecordError] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    changes: dict[int, Counter[str]] = field(default_factory=dict)

    @property
    def dropped(self) -> Counter[str]:
        """How many rows the settings left out, by reason."""
        return Counter(self.reasons.values())

    @property
    def counts(self) -> Counter[str]:
        """What was lost of the rows that are kept, by what it was."""
        return sum((+lost for at, lost in self.changes.items() if self.rows[at]), Counter[str]())

    def change(self, row: int, what: str, number: int) -> None:
        """Count what is lost of a row, if it is kept."""
        self.changes.setdefault(row, Counter())[what] += number

    @contextmanager
    def catching_faults(self, row: int) -> Iterator[None]:
        """Keep what is wrong with a row as its fault."""
        try:
            yield
        except RecordError as fault:
            self.faults[row] = fault
        except TemplateError as error:
            self.faults[row] = RecordError(UNRENDERED, error.message, hint=error.hint)
        except MillstreamError as error:
            self.faults[row] = RecordError("cannot be encoded", error.message, hint=error.hint)


class Encoder:
    """Encodes conversations with one tokenizer and one template.

    * boundary "whole": the ids that the rendered text has as a whole. "split": what is handed to the model and what it
      writes, and parts of different weight, are encoded apart, as inference sees them
    * trust_content: control strings in the texts of the data are control tokens too; only for data of your own
    * strict: a token that lies in parts of different weight is an error; otherwise it is counted
    * media_tokens: what stands for a picture, film or sound, of rows that have some
    * add_control_tokens: work with a new tokenizer that has the template's control tokens; see `tokenizer`
    * check: refuse a template that misleads training, as `check_template` finds out on small conversations
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: RowTemplate | None = None,
        *,
        policy: Policy | None = None,
        boundary: Boundary = "whole",
        trust_content: bool = False,
        strict: bool = False,
        add_control_tokens: bool = False,
        media_tokens: MediaTokens | None = None,
        check: bool = True,
    ) -> None:
        if boundary not in get_args(Boundary):
            raise RecipeError(f"boundary={boundary!r} is unknown", hint='choose "whole" or "split"')
        self.template = template
        self.policy = policy or Policy()
        self.strict = strict
        self.boundary = boundary
        self._media_tokens = media_tokens or {}
        ours = control_strings(self._media_tokens)
        controls = (*(() if template is None else template.control_tokens), *ours)
        how = {"split": boundary == "split", "trust_content": trust_content}
        missing = missing_controls(tokenizer, controls)
        if missing and (template is not None or ours) and not add_control_tokens:
            raise _lacking(tokenizer, "this loader" if template is None else f"the template {template.name}", missing)
        if missing:
            tokenizer = with_control_tokens(tokenizer, missing)
            _log.info(
                "%s: %d tokens were added; the vocabulary has %d ids",
                tokenizer.name,
                len(missing),
                tokenizer.vocab_size,
            )
        self._runs = RunTokenizer(tokenizer, controls, **how)
        self.tokenizer = tokenizer
        self.added_tokens = missing
        if template is not None and check:
            known = CheckedTokens(self.encode_rows, tokenizer.decode, frozenset(self.control_ids.values()))
            check_template(template, known, self.policy)
        self.shapes = ShapeEncoder.of(template, self.policy, self._runs, strict=strict)
        """What encodes plain conversations natively; None: every row is rendered by itself."""

    @property
    def control_ids(self) -> dict[str, int]:
        """The strings that are single tokens where a template writes them."""
        return self._runs.control_ids

    @property
    def engine(self) -> str | None:
        """What encodes the texts between control strings, if it is known."""
        return self._runs.engine

    def media_ids(self) -> dict[str, list[int]]:
        """The ids that stand for one picture, film or sound, where tokens were asked for."""
        return {
            kind: [self.control_ids[text] for text in control_strings({kind: text})]
            for kind, text in self._media_tokens.items()
        }

    def encode_rows(
        self,
        rendered: Sequence[Rendered],
        conversations: Sequence[Conversation | None] | None = None,
        *,
        policy: Policy | None = None,
    ) -> list[Supervised]:
        """Encode rendered rows; `conversations` bring the weights that the rows themselves give."""
        pieces = Pieces.of(rendered)
        spans = weigh(pieces, conversations or [None] * len(rendered), policy or self.policy)
        tokens = self._runs.tokens(pieces, spans)
        weights, messages, straddles = overlap(tokens, spans)
        counts = np.diff(np.concatenate([[0], np.cumsum(straddles)])[tokens.ends], prepend=0).tolist()
        stops = tokens.ends.tolist()
        return [
            Supervised(tokens.ids[start:stop], weights[start:stop], messages[start:stop], count)
            for start, stop, count in zip([0, *stops], stops, counts, strict=False)
        ]

    def encode(self, rows: Sequence[ChatRow], limit: Limit | None = None, *, policy: Policy | None = None) -> Encoded:
        """Encode rows of any kind and shorten those that are too long. A row that cannot be used has a fault; what is
        dropped or cut as `limit` says is counted."""
        limit, policy = limit or Limit(), policy or self.policy
        encoded = Encoded([[] for _ in rows])
        rendered: dict[int, Rendered] = {}
        for at, row in enumerate(rows):
            if not isinstance(row, Tokens):
                with encoded.catching_faults(at):
                    rendered[at] = self._render(row)
                    encoded.change(at, REASONING_LEFT_OUT, _reasoning_left_out(row, rendered[at]))
        made = self._each(rows, rendered, policy, encoded)
        for at, row in enumerate(rows):
            if isinstance(row, Tokens):
                made[at] = Supervised(row.ids, row.weights, np.full(len(row.ids), -1, np.int32))
            if at in made:
                with encoded.catching_faults(at):
                    encoded.rows[at] = self._fit(at, row, made[at], limit, policy, encoded)
        return encoded

    def _render(self, row: ChatRow) -> Rendered:
        """A row as pieces. Texts without a template are what the assistant says, and end as documents end."""
        if isinstance(row, Conversation):
            if self.template is None:
                raise RecordError(
                    "no template",
                    "the row is a conversation",
                    hint='pass chat_template="chatml", or the one of your model',
                )
            rendered = self.template.render(row)
            return with_media_tokens(rendered, self._media_tokens) if row.media else rendered
        if isinstance(row, Document):
            prompt, answer = "", row.text
        elif isinstance(row, Completion):
            prompt, answer = row.prompt, row.completion
        else:
            raise RecordError("wrong kind", f"{type(row).__name__} is more than one row", hint="use encode_kind")
        pieces = [
            Piece(prompt, Kind.content, 0, True, "user"),
            Piece(answer, Kind.content, 1, True, "assistant"),
            Piece(self._eos, Kind.stop, 1, False, "assistant"),
        ]
        return [piece for piece in pieces if piece.text]

    def _each(
        self, rows: Sequence[ChatRow], rendered: Mapping[int, Rendered], policy: Policy, encoded: Encoded
    ) -> dict[int, Supervised]:
        """Encode what was rendered, all rows of a kind at once; if one of them is refused, in halves."""
        made: dict[int, Supervised] = {}
        chats = [at for at in rendered if isinstance(rows[at], Conversation)]
        groups = [(chats, policy), ([at for at in rendered if not isinstance(rows[at], Conversation)], Policy())]
        while groups:
            places, chosen = groups.pop()
            owners = [row if isinstance(row := rows[at], Conversation) else None for at in places]
            try:
                found = self.encode_rows([rendered[at] for at in places], owners, policy=chosen)
                made |= zip(places, found, strict=True)
            except (RecordError, TokenizerError) as error:
                if len(places) > 1:
                    middle = len(places) // 2
                    groups += [(places[:middle], chosen), (places[middle:], chosen)]
                    continue
                with encoded.catching_faults(places[0]):
                    raise error
        return made

    def _fit(
        self, at: int, row: ChatRow, made: Supervised, limit: Limit, policy: Policy, encoded: Encoded
    ) -> list[Supervised]:
        """What is left of a row under the limit."""
        fitting = [made] if limit.allows(made) else shorten(row, made, limit, policy, partial(self._part, policy))
        kept = [each for each in fitting if self._is_usable(each, limit, policy)]
        if not kept:
            encoded.reasons[at] = NOTHING_TO_TRAIN if fitting else TOO_LONG
            return []
        if not limit.allows(made):
            left = np.concatenate([each.messages for each in kept])
            encoded.change(at, TRUNCATED, 1)
            encoded.change(at, "messages left out", len(np.setdiff1d(made.messages, left)))
            encoded.change(at, "windows left out: nothing to train", len(fitting) - len(kept))
        encoded.change(at, STRADDLERS, sum(each.straddlers for each in kept))
        return kept

    def _is_usable(self, row: Supervised, limit: Limit, policy: Policy) -> bool:
        """Whether a row or a window of one is kept; False: it trains nothing and may be left out."""
        if self.strict and row.straddlers:
            raise RecordError(
                "straddler",
                f"{row.straddlers} tokens lie in parts of different weight",
                hint='pass boundary="split", or strict=False to count such tokens and not train them',
            )
        if row.trained or limit.untrained != "error":
            return bool(row.trained) or limit.untrained == "keep"
        raise RecordError(
            NOTHING_TO_TRAIN,
            f"none of {len(row)} tokens carries loss" + (" after truncation" if row.truncated else ""),
            hint=_untrained_hint(policy, truncated=row.truncated),
        )

    def _part(self, policy: Policy, part: ConversationPart) -> Supervised:
        rendered = [self._render(part.conversation)]
        return part.restored(self.encode_rows(rendered, [part.conversation], policy=policy)[0])

    @property
    def _eos(self) -> str:
        """How the end of a document is spelled; "" if the tokenizer has no token for it."""
        return next((text for text, id in self.control_ids.items() if id == self.tokenizer.eos_id), "")


def _reasoning_left_out(row: ChatRow, rendered: Rendered) -> int:
    """How many messages of a row have reasoning that its template does not write, as many do in earlier turns."""
    if not isinstance(row, Conversation):
        return 0
    thinking = {at for at, message in enumerate(row.messages) if message.reasoning}
    return len(thinking - {piece.message for piece in rendered if piece.kind == Kind.reasoning}) if thinking else 0


def _untrained_hint(policy: Policy, *, truncated: bool) -> str:
    if truncated:
        mend = 'pass truncation="turns" or "keep_end"'
    elif policy.train == "explicit":
        mend = 'give messages a "weight", as train="explicit" trains nothing else'
    else:
        mend = f'look at the weights of its messages, or choose another train= than "{policy.train}"'
    return f'{mend}; or pass untrained="drop"'


def _lacking(tokenizer: Tokenizer, needed_by: str, missing: Sequence[str]) -> TokenizerError:
    names = ", ".join(map(repr, missing[:4])) + (" and others" if len(missing) > 4 else "")
    return TokenizerError(
        f"{tokenizer.name} has no token for {names}, which {needed_by} needs",
        hint=f"pass add_control_tokens=True: a new tokenizer with {tokenizer.vocab_size + len(missing)} ids, "
        "for which the model's embedding has to grow",
    )
