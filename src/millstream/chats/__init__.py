"""Conversations -> text in pieces -> ids and weights.

template.py   a conversation in the format that a model knows: ChatTemplate
builtin/      the formats that have a name
jinja.py      any other, in a sandbox
rendered.py   what comes out of them: pieces that know where they come from
masks.py      which pieces are trained, and how much
encode.py     pieces and weights become tokens and weights, many rows at once: Encoder
kinds.py      what rows are about: conversations, preferences, judged answers, judged steps
answers.py    answers become documents of a store: pairs, labels, steps
truncate.py   rows that are too long; pairs.py: two answers to one prompt
check.py      templates that would train a model wrong
settings.py   all of that in one value: ChatSettings
block.py      a block of raw rows, encoded
"""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "block": "encode_block",
        "encode": "UNRENDERED Boundary Encoder",
        "explode": "exploded",
        "kinds": "documents_of kind_of media_refused wrong_kind",
        "masks": "Choice Policy",
        "media": "Media MediaTokens control_strings",
        "plain": "plain_tokenizer",
        "raw_row": "show_raw_row",
        "rendered": "Kind Piece Rendered",
        "settings": "ChatSettings DecidedChat",
        "shown": "show_row",
        "supervised": "Supervised",
        "template": "ChatTemplate HistoryReasoning Variant",
        "truncate": "Limit Truncation Untrained",
    },
)
