"""Files of conversations -> what is wrong with them, in plain words, before a model learns it."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "files": "lint_files",
    },
)
