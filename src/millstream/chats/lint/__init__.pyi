from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.chats.lint.files import lint_files as lint_files

__all__ = [
    "lint_files",
]
