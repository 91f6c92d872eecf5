"""A game as it was played -> a game as it should be learned from: results, policies, moves left, input format."""

from millstream.lazy import lazy

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "rescorer": "Rescorer",
        "settings": "RescoreSettings",
    },
)
