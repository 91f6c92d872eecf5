"""Numbers that loaders leave behind."""

from millstream.stats.profile import Profile

__all__ = ["Profile"]
