"""A game as it was played -> a game as it should be learned from: results, policies, moves left, input format."""

from millstream.games.rescore.rescorer import Rescorer
from millstream.games.rescore.settings import RescoreSettings

__all__ = ["RescoreSettings", "Rescorer"]
