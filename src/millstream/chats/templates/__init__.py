"""Conversations -> pieces, in the chat format that a model knows: a built-in format, or a jinja template in a sandbox.

template.py   one interface for both: ChatTemplate
builtin.py    the built-in formats by name; each family has a file with functions that write pieces
sheet.py      what these functions write on
jinja.py      a jinja template, rendered with traced texts (traced.py) in a sandbox (sandbox.py)
check.py      templates that would train a model wrong
"""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "check": "CheckedTokens RowTemplate check_template",
        "template": "ChatTemplate HistoryReasoning Variant",
    },
)
