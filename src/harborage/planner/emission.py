"""How a planner tells the world about itself: an event under the run's identity, if anybody listens."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from harborage.events import Event, EventType, Payload

if TYPE_CHECKING:
    from harborage.planner.context import RunContext

__all__ = ["clipped", "publish"]

_log = logging.getLogger(__name__)


def publish(run: RunContext, type: EventType, payload: Payload) -> None:
    """Emit an event of this run; without `run.emit` nothing happens.

    Never: fails. What cannot be published is logged, because telling must not change what was decided.
    """
    if run.emit is None:
        return
    try:
        run.emit(Event(type, run.quadruple, payload, getattr(payload, "occurred_at", None)))
    except Exception:  # noqa: BLE001 - logged; a listener's failure is not the planner's
        _log.exception("planner event not published", extra={"action": "planner.emit", "event_type": str(type)})


def clipped(text: str, limit: int = 256) -> str:
    """`text` in at most `limit` bytes of UTF-8; what is longer loses its end to `...`, never half a character."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return encoded.decode()
    return encoded[: limit - 3].decode("utf-8", "ignore") + "..."
