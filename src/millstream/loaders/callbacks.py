"""Callbacks: objects with any of `on_epoch_start`, `on_epoch_end`, `on_batch`, `on_error`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millstream.errors import LoaderError

EVENTS = ("on_epoch_start", "on_epoch_end", "on_batch", "on_error")


class Callbacks:
    """Tells the user's objects what happens; costs nothing when there are none."""

    def __init__(self, listeners: Sequence[object]) -> None:
        self._calls: dict[str, list[Callable[[Any], None]]] = {
            event: [getattr(listener, event) for listener in listeners if hasattr(listener, event)] for event in EVENTS
        }
        for listener in listeners:
            if not any(hasattr(listener, event) for event in EVENTS):
                raise LoaderError(f"{listener!r} listens to nothing", hint=f"give it one of {', '.join(EVENTS)}")
        self.any = bool(listeners)
        self._epoch: int | None = None

    def delivered(self, epoch: int, batch: object) -> None:
        """A batch is about to be handed over."""
        if epoch != self._epoch:
            self.epoch_ended(self._epoch)
            self._epoch = epoch
            self._tell("on_epoch_start", epoch)
        self._tell("on_batch", batch)

    def epoch_ended(self, epoch: int | None) -> None:
        """The last batch of an epoch was handed over."""
        if self._epoch is not None and epoch == self._epoch:
            self._epoch = None
            self._tell("on_epoch_end", epoch)

    def error(self, error: BaseException) -> None:
        """Something failed; the error is raised after this."""
        self._tell("on_error", error)

    def _tell(self, event: str, value: Any) -> None:
        for call in self._calls[event]:
            call(value)
