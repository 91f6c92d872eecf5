"""A tokenizer -> the same vocabulary without its control strings: what encodes the text between them.

Other added tokens, such as words and runs of spaces, are found in every text as before.
"""

from __future__ import annotations

import itertools
import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from millstream.errors import TokenizerError
from millstream.tokens.bpe import BPETokenizer
from millstream.tokens.tokenizer import Tokenizer

_NO_TEXT = "\U0010ffff"
Sizes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ControlToken:
    """A token that stands for a string of its own, and how it is found in a text."""

    text: str
    id: int
    special: bool = True
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False

    @property
    def bracketed(self) -> bool:
        """Whether it looks like a mark for machines: a word between signs. Added words and runs of spaces do not.

        >>> [ControlToken(text, 0).bracketed for text in ("<think>", "[INST]", "｜DSML｜", "chromosome", "    ", "...")]
        [True, True, True, False, False, False]
        """
        first, last = self.text[0], self.text[-1]
        signs = not (first.isalnum() or first.isspace() or last.isalnum() or last.isspace())
        return signs and any(letter.isalnum() for letter in self.text)


class PlainVocabulary(NamedTuple):
    """How runs of text are encoded.

    `opening` encodes a run at the beginning of a row or after a control string, `continuing` one inside a
    text: only the first may get a space in front. `sizes` are the bytes of text that each id stands for, exact for
    runs that are not `altered`; None: only the library can say.
    """

    opening: Tokenizer
    continuing: Tokenizer
    controls: tuple[ControlToken, ...]
    sizes: Sizes | None = None
    composes: bool = False  # the normalizer joins characters: only composed text (NFC) keeps its bytes
    marks_spaces: bool = False  # spaces are spelled "▁"
    only_first: bool = False  # the space in front is only for the beginning of a row
    whole: Tokenizer | None = None  # finds control strings in the text itself
    unknown: str | None = None  # the token for letters that the vocabulary does not have

    def alters(self, text: str) -> bool:
        """Whether tokens may not spell this text byte by byte."""
        if self.composes and not unicodedata.is_normalized("NFC", text):
            return True
        return self.marks_spaces and "▁" in text


def plain_tokenizer(tokenizer: Tokenizer, controls: Sequence[str] = ()) -> PlainVocabulary:
    """Take a tokenizer apart. Control strings are its special tokens, `controls`, and added tokens like "<think>".

    >>> from millstream.tokens.char import CharTokenizer
    >>> [control.text for control in plain_tokenizer(CharTokenizer("ab")).controls]
    ['<|endoftext|>']
    """
    if isinstance(tokenizer, BPETokenizer):
        tokenizer = tokenizer.adapted
    if hasattr(tokenizer, "definition"):
        return _huggingface(tokenizer, controls)
    if hasattr(tokenizer, "encoding"):
        ranks, special = tokenizer.encoding._mergeable_ranks, tokenizer.encoding._special_tokens
        sizes = _sizes({rank: len(token) for token, rank in ranks.items()})
        return PlainVocabulary(
            tokenizer, tokenizer, tuple(ControlToken(text, id) for text, id in special.items()), sizes
        )
    ending = [] if tokenizer.eos_id is None else [tokenizer.decode([tokenizer.eos_id]), "</s>"]  # some decode it to ""
    found = {name: id for name in (*controls, *ending) if name and (id := tokenizer.token_id(name)) is not None}
    return PlainVocabulary(tokenizer, tokenizer, tuple(ControlToken(text, id) for text, id in found.items()))


def missing_controls(tokenizer: Tokenizer, controls: Sequence[str]) -> tuple[str, ...]:
    """The strings that are no single tokens of a tokenizer.

    >>> missing_controls(BPETokenizer.train(["the mill"], vocab_size=260), ["<|endoftext|>", "<|im_end|>"])
    ('<|im_end|>',)
    """
    adapted: Any = tokenizer.adapted if isinstance(tokenizer, BPETokenizer) else tokenizer
    if hasattr(adapted, "definition"):
        known = {token["content"] for token in adapted.head["added_tokens"]}
    elif hasattr(adapted, "encoding"):
        known = set(adapted.encoding._special_tokens)
    else:
        known = {control for control in controls if adapted.token_id(control) is not None}
    return tuple(control for control in dict.fromkeys(controls) if control not in known)


def with_control_tokens(tokenizer: Tokenizer, tokens: Sequence[str]) -> Tokenizer:
    """A new tokenizer in which these strings are single tokens; new ids follow the largest one.

    >>> tokenizer = BPETokenizer.train(["the mill"], vocab_size=260)
    >>> with_control_tokens(tokenizer, ["<|im_start|>", "<|im_end|>"]).vocab_size
    262
    """
    adapted: Any = tokenizer.adapted if isinstance(tokenizer, BPETokenizer) else tokenizer
    if hasattr(adapted, "encoding"):
        return _with_special(adapted, tokens)
    if not hasattr(adapted, "definition"):
        raise TokenizerError(
            f"{tokenizer.name}: no tokens can be added to a tokenizer of this kind",
            hint="use a BPETokenizer, a tokenizer.json or a tiktoken encoding",
        )
    head = adapted.head
    known = {token["content"] for token in head["added_tokens"]}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    fresh = itertools.count(adapted.vocab_size)
    for token in dict.fromkeys(tokens):
        if token not in known:
            id = adapted.token_id(token)
            entry = {"id": next(fresh) if id is None else id, "content": token, **flags, "special": True}
            head["added_tokens"].append(entry)
    head["added_tokens"].sort(key=lambda token: token["id"])
    made = adapted.variant(head, special_in_text=adapted.special_in_text, keep_names=True)
    if any(made.token_id(token["content"]) != token["id"] for token in head["added_tokens"]):
        raise TokenizerError(
            f"{tokenizer.name}: its ids have gaps, which `tokenizers` closes when tokens are added",
            hint="add the tokens with the tokenizer's own library, and save it",
        )
    made.extends = adapted.vocabulary
    return BPETokenizer(made) if isinstance(tokenizer, BPETokenizer) else made


def _with_special(tokenizer: Any, tokens: Sequence[str]) -> Tokenizer:
    from millstream.tokens.tiktoken import TiktokenTokenizer

    encoding = tokenizer.encoding
    special = dict(encoding._special_tokens)
    for token in tokens:
        special.setdefault(token, max(encoding.n_vocab, 1 + max(special.values(), default=-1)))
    made = type(encoding)(
        encoding.name, pat_str=encoding._pat_str, mergeable_ranks=encoding._mergeable_ranks, special_tokens=special
    )
    extended = TiktokenTokenizer(made, special_in_text=tokenizer.special_in_text)
    extended.extends = tokenizer.vocabulary
    return extended


def _huggingface(tokenizer: Any, wanted: Sequence[str]) -> PlainVocabulary:
    head, model = tokenizer.head, tokenizer.model(merges=False)
    added = [
        ControlToken(**{("text" if key == "content" else key): value for key, value in token.items()})
        for token in head["added_tokens"]
    ]
    controls = tuple(token for token in added if token.special or token.text in wanted or token.bracketed)
    names = {control.text for control in controls}
    bare = {**head, "post_processor": None, "added_tokens": []}
    if len(controls) < len(added):  # the library numbers added tokens anew if one is missing
        bare["added_tokens"] = [
            {**token, "content": _hidden(token["content"])} if token["content"] in names else token
            for token in head["added_tokens"]
        ]
    spelled = names & _pieces(model).keys()
    if spelled and (bare["added_tokens"] or any(map(tokenizer.may_spell, spelled))):
        unspelled = _unspelled(tokenizer.model(), names, always=bool(bare["added_tokens"]))
        opening = tokenizer.variant(bare, json.dumps(unspelled))
    else:
        unspelled = model
        opening = tokenizer.variant(bare)
    inside = _without_prefix(bare)
    kinds = {part["type"] for part in _parts(head)}
    return PlainVocabulary(
        opening,
        opening if inside == bare else opening.variant(inside),
        controls,
        sizes=_spelled_sizes(bare, unspelled),
        composes="NFC" in kinds,
        marks_spaces="ByteLevel" not in kinds,
        only_first=any(part.get("prepend_scheme") == "first" for part in _parts(head)),
        whole=tokenizer.variant({**head, "post_processor": None}, special_in_text="ids"),
        unknown=model["vocab"][model["unk_id"]][0] if model.get("unk_id") is not None else model.get("unk_token"),
    )


def _pieces(model: Mapping[str, Any]) -> Mapping[str, int]:
    """The vocabulary of a model; that of a Unigram is a list, and places are ids."""
    pieces: Any = model.get("vocab") or {}
    return {piece: id for id, (piece, _) in enumerate(pieces)} if isinstance(pieces, list) else pieces


def _hidden(text: str) -> str:
    """Another name for a token, that no text holds."""
    return _NO_TEXT + text


def _unspelled(model: dict[str, Any], names: set[str], *, always: bool) -> dict[str, Any]:
    """The model without the spelling of control strings, which it could find letter by letter; ids stay as they are."""
    vocabulary = model.get("vocab") or {}
    if isinstance(vocabulary, list):  # Unigram: places are ids
        return {**model, "vocab": [[_hidden(piece) if piece in names else piece, score] for piece, score in vocabulary]}
    merges = [merge for merge in model.get("merges") or [] if _merged(merge) not in names]
    reached = model["type"] != "BPE" or bool(model.get("ignore_merges")) or len(merges) < len(model.get("merges") or [])
    if not (reached or always) or not names & vocabulary.keys():
        return model
    changed = {_hidden(piece) if piece in names else piece: id for piece, id in vocabulary.items()}
    kept = {**model, "vocab": changed}
    if model.get("unk_token") in names:
        kept["unk_token"] = _hidden(model["unk_token"])
    return {**kept, "merges": merges} if "merges" in model else kept


def _merged(merge: str | Sequence[str]) -> str:
    return "".join(merge.split(" ", 1) if isinstance(merge, str) else merge)


def _without_prefix(head: dict[str, Any]) -> dict[str, Any]:
    """The definition without a space in front of the text."""

    def changed(part: Any) -> Any:
        if isinstance(part, list):
            return [changed(each) for each in part if not (isinstance(each, dict) and each.get("type") == "Prepend")]
        if not isinstance(part, dict):
            return part
        fixed = {"prepend_scheme": "never", "add_prefix_space": False}
        return {key: fixed[key] if key in fixed else changed(value) for key, value in part.items()}

    normalizer = head["normalizer"]
    if normalizer and normalizer["type"] == "Prepend":
        normalizer = None
    return {**head, "normalizer": changed(normalizer), "pre_tokenizer": changed(head["pre_tokenizer"])}


def _parts(head: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The normalizers and pre-tokenizers of a definition."""
    waiting = [head["normalizer"], head["pre_tokenizer"]]
    while waiting:
        part = waiting.pop()
        if part:
            yield part
            waiting += [*part.get("normalizers", []), *part.get("pretokenizers", [])]


def _spelled_sizes(head: Mapping[str, Any], model: Mapping[str, Any]) -> Sizes | None:
    """The bytes that each id stands for, of definitions whose spelling is understood."""
    parts, pieces = list(_parts(head)), _pieces(model)
    kinds = {part["type"] for part in parts}
    added = {token["id"]: len(token["content"].encode()) for token in head["added_tokens"]}
    if "ByteLevel" in kinds and kinds <= {"ByteLevel", "Split", "Digits", "Sequence", "NFC"}:
        return _sizes({id: len(piece) for piece, id in pieces.items()} | added)
    if kinds <= {"Metaspace", "Prepend", "Replace", "Sequence"} and all(map(_marks_only_spaces, parts)):
        bytes_too = bool(model.get("byte_fallback"))
        return _sizes({id: _marked_size(piece, bytes_too=bytes_too) for piece, id in pieces.items()} | added)
    return None


def _marks_only_spaces(part: Mapping[str, Any]) -> bool:
    if part["type"] == "Replace":
        return part.get("pattern") == {"String": " "} and part.get("content") == "▁"
    return part["type"] != "Metaspace" or part.get("replacement") == "▁"


def _marked_size(piece: str, *, bytes_too: bool) -> int:
    if bytes_too and len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return 1
    return len(piece.replace("▁", " ").encode())


def _sizes(known: Mapping[int, int]) -> Sizes:
    sizes = np.zeros(1 + max(known, default=-1), np.int64)
    sizes[list(known)] = list(known.values())
    return sizes
