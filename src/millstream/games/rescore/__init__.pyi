from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.games.rescore.rescorer import Rescorer as Rescorer
    from millstream.games.rescore.settings import RescoreSettings as RescoreSettings

__all__ = [
    "RescoreSettings",
    "Rescorer",
]
