"""Files of conversations -> what is wrong with them, in plain words, before a model learns it."""

from millstream.chats.lint.files import lint_files
from millstream.stats.findings import Finding, LintReport

__all__ = ["Finding", "LintReport", "lint_files"]
