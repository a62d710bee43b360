"""Telling the bus what a layer did. Best effort: a bus that fails never costs anybody an answer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from harborage.events import Event, EventType, SafePayload
from harborage.identity import Quadruple, effective_quadruple
from harborage.llm.errors import IdentityMissingError

if TYPE_CHECKING:
    from harborage.llm.config import Deps

__all__ = ["announce", "caller"]

log = logging.getLogger(__name__)


def announce(deps: Deps, type: EventType, payload: SafePayload, *, who: Quadruple) -> None:
    """Publish one event of `who`'s call; a failure is logged and goes no further, and without a bus nothing happens."""
    if deps.bus is None:
        return
    try:
        deps.bus.publish_nowait(Event(type=type, identity=who, payload=payload))
    except Exception as error:  # noqa: BLE001 - whatever fails there, the call goes on
        log.warning("llm: event %s of run %s was not published: %s", type, who.run_id, error)


def caller() -> Quadruple:
    """Whose call this is: the ambient identity, with the run when it is known.

    Raises:
        IdentityMissingError: none is bound, or a part of it is empty.
    """
    who = effective_quadruple()
    if who is None or not (who.tenant_id and who.user_id and who.session_id):
        raise IdentityMissingError()
    return who
