"""Rollouts -> what is wrong with them, in plain words, before a policy learns it."""

from millstream.rollouts.lint.linter import lint_rollouts

__all__ = ["lint_rollouts"]
