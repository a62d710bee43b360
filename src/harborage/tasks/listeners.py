"""Whoever wants to hear of tasks at once: called synchronously, in order, and never able to harm the change itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harborage.tasks.model import Task

__all__ = ["Listeners"]

_log = logging.getLogger(__name__)


class Listeners:
    """The listeners of one occasion; `name` is what a log line calls it."""

    __slots__ = ("_listeners", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._listeners: dict[object, Callable[[Task], None]] = {}

    def add(self, listener: Callable[[Task], None]) -> Callable[[], None]:
        """Call `listener` from now on, until the returned function is called."""
        key = object()
        self._listeners[key] = listener

        def unlisten() -> None:
            self._listeners.pop(key, None)

        return unlisten

    def tell(self, task: Task) -> None:
        """Tell everybody of `task`, whatever one of them makes of it."""
        for listener in list(self._listeners.values()):
            try:
                listener(task)
            except Exception:  # noqa: BLE001 - logged
                # The change is true and was told; neither its maker nor the other listeners may lose it over this.
                _log.exception("a listener failed on task %s", task.id, extra={"action": self._name})

    def clear(self) -> None:
        """Forget everybody."""
        self._listeners.clear()
