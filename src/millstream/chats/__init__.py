"""Conversations -> text in pieces -> ids and weights.

parse/        rows of fine-tuning files become conversations
templates/    a conversation becomes pieces, in the format that a model knows: ChatTemplate
pieces.py     what flows: pieces that know where they come from, rows of weighted tokens
masks.py      which pieces are trained, and how much
encode.py     pieces and weights become tokens and weights, many rows at once: Encoder
native.py     the same for plain conversations, in the core
answers.py    what rows are about; answers become documents of a store: pairs, labels, steps
truncate.py   rows and pairs that are too long
settings.py   all of that in one value: ChatSettings
block.py      a block of raw rows, encoded
lint.py       what is wrong with files of conversations, before a model learns it
show.py       rows as text for people
"""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "answers": "documents_of",
        "block": "encode_block",
        "encode": "UNRENDERED Boundary",
        "lint": "lint_files",
        "masks": "Choice Policy",
        "media": "Media MediaTokens control_strings",
        "pieces": "Kind Piece Rendered Supervised",
        "settings": "ChatSettings DecidedChat",
        "show": "show_raw_row show_row",
        "truncate": "Limit Truncation Untrained",
    },
)
