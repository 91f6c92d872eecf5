from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.rollouts.lint.linter import lint_rollouts as lint_rollouts
    from millstream.rollouts.lint.rules import sampled_versions as sampled_versions

__all__ = [
    "lint_rollouts",
    "sampled_versions",
]
