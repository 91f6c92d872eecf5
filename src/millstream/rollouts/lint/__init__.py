"""Rollouts -> what is wrong with them, in plain words, before a policy learns it."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "linter": "lint_rollouts",
        "rules": "sampled_versions",
    },
)
