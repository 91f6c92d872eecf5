"""Token ids as files that can be mapped: written once, versioned, read in place (docs/reference/formats.md)."""

from millstream.store.bodies import Damage, Report
from millstream.store.layout import Layout
from millstream.store.reader import TokenStore
from millstream.store.start import discard
from millstream.store.versions import Diff, Version
from millstream.store.writer import TokenStoreWriter

__all__ = ["Damage", "Diff", "Layout", "Report", "TokenStore", "TokenStoreWriter", "Version", "discard"]
