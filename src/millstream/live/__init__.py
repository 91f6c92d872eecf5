"""The live road: stages that turn a folder which grows into frames of games, for ever."""

from millstream.live.arrivals import Arrival, Found, Gone, ScanComplete
from millstream.live.discovery import Discovery

__all__ = ["Arrival", "Discovery", "Found", "Gone", "ScanComplete"]
