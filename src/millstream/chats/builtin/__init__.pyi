from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.chats.builtin.format import Builtin as Builtin
    from millstream.chats.builtin.sheet import Sheet as Sheet
    from millstream.chats.builtin.table import find as find

__all__ = [
    "Builtin",
    "Sheet",
    "find",
]
