"""A control that is sent and watched: what the run makes of it, from the one event with its id."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from harborage.client.events import EventStream, StreamOptions
from harborage.client.run import ControlFate
from harborage.concurrency import Crew
from harborage.events import Event, EventType
from harborage.ids import new_id

if TYPE_CHECKING:
    from harborage.client.connection import Connection
    from harborage.client.run import RemoteRun
    from harborage.runtime.loop.controls import ControlType

_FATES: Final = (EventType.CONTROL_APPLIED, EventType.CONTROL_REJECTED)
_OPEN_S: Final = 5.0


async def send_and_wait(
    run: RemoteRun[Any], connection: Connection, type: ControlType, payload: Mapping[str, Any], seconds: float
) -> ControlFate:
    """Send a control, and return its outcome within `seconds`; `sent` where the run has not reached it.

    Raises:
        Exception: as of `RemoteRun.control`.
    """
    event_id = new_id()
    options = StreamOptions(run=run.id, types=_FATES)
    stream = EventStream(connection, run.who.identity, options)
    fates: asyncio.Queue[Event] = asyncio.Queue()
    crew = Crew(lambda name, error: stream.opened.set())
    # Read before it is sent, so that no answer is too quick; a stream that cannot be opened leaves it at `sent`.
    crew.start(_read(stream, event_id, fates), f"fate of {event_id}")
    try:
        await _within(stream.opened.wait(), _OPEN_S)
        await run.control(type, payload, event_id=event_id)
        event = await _within(fates.get(), seconds)
    finally:
        await crew.aclose()
    return ControlFate(event_id=event_id, control=str(type), fate="sent") if event is None else _fate(event, event_id)


async def _within(waited: Any, seconds: float) -> Any:
    """What is awaited, None when it takes longer."""
    try:
        async with asyncio.timeout(seconds):
            return await waited
    except TimeoutError:
        return None


async def _read(stream: EventStream, event_id: str, fates: asyncio.Queue[Event]) -> None:
    async with aclosing(stream.read()) as events:
        async for event in events:
            if getattr(event.payload, "event_id", "") == event_id:
                fates.put_nowait(event)
                return


def _fate(event: Event, event_id: str) -> ControlFate:
    payload: Any = event.payload
    is_rejected = event.type == EventType.CONTROL_REJECTED
    outcome = "rejected" if is_rejected else str(getattr(payload, "outcome", "") or "applied")
    why = getattr(payload, "reason", "") if is_rejected else getattr(payload, "err", "")
    return ControlFate(
        event_id=event_id,
        control=str(payload.type),
        fate=outcome,
        step=int(getattr(payload, "step", 0) or 0),
        why=str(why or ""),
    )
