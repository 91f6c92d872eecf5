"""A store that is still being made: what its writer has sealed so far, for whoever follows right behind."""

from __future__ import annotations

from pathlib import Path

from millstream.store.growing import Places
from millstream.store.journal import load_journal, sealed_rows
from millstream.store.layout import Layout
from millstream.store.manifest import describe
from millstream.store.opening import Opened
from millstream.store.packed import BLOCK_TOKENS
from millstream.store.reader import TokenStore
from millstream.store.table import rows_of


def open_unfinished(path: Path) -> TokenStore | None:
    """Open the shards of a directory store that are whole, while its writer goes on; None: there are none yet.

    >>> import tempfile
    >>> from millstream.store import TokenStoreWriter
    >>> path = Path(tempfile.mkdtemp(), "corpus")
    >>> with TokenStoreWriter(path) as writer:
    ...     writer.append([10, 11, 12])
    ...     before = open_unfinished(path)
    ...     writer.finish_shard()
    ...     writer.append([20, 21])
    ...     store = open_unfinished(path)
    >>> before, store[:].tolist()
    (None, [10, 11, 12])
    """
    places = Places(path, single=False)
    journal = load_journal(places.journal)
    if journal is None or not journal.sealed:
        return None
    rows = rows_of(sealed_rows(places, journal))
    packed = BLOCK_TOKENS if journal.compress else 0
    layout = Layout(str(path), "", journal.dtype, 64, rows, "ends", block_tokens=packed)
    return TokenStore.of(path, Opened("unfinished", layout, describe(journal.dtype, rows)))
