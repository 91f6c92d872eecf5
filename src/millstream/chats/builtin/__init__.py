"""The chat formats that have a name, as functions that put down pieces: one file for each family.

sheet.py    what a format writes on
format.py   what a format is, and what it refuses
table.py    all of them, by name
"""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "format": "Builtin",
        "sheet": "Sheet",
        "table": "find",
    },
)
