"""The events of one run on a server, from where a reader left off to the end of the run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from harborage.concurrency import Crew
from harborage.errors import HarborageError, error_reason
from harborage.events import Event, EventType
from harborage.runtime.durable.engine import RunBlockedError, RunPhase

if TYPE_CHECKING:
    from harborage.client.events import EventStream
    from harborage.runtime.durable.engine import RunStatus

ENDS: Final = (EventType.TASK_COMPLETED, EventType.TASK_FAILED, EventType.TASK_CANCELLED)
"""The events that end a run; each run has one of them."""

_LOOK_S: Final = 15.0
_log = logging.getLogger(__name__)


def is_end_of(event: Event, run_id: str) -> bool:
    """Whether an event is the end of this run."""
    return event.type in ENDS and run_id in (event.identity.run_id, _task_of(event.payload))


def _task_of(payload: Any) -> str:
    return str(getattr(payload, "task_id", ""))


async def follow(
    stream: EventStream, run_id: str, status: Callable[[], Awaitable[RunStatus]], *, settle_s: float
) -> AsyncGenerator[Event, None]:
    """Yield the events of a stream until the run has ended.

    Where its last event is not kept any more, the stream ends once the server was silent for `settle_s`.

    Raises:
        RunNotFoundError: there is no such run.
        RunBlockedError: it is blocked.
        HarborageError: the stream cannot be read.
    """
    failures: list[HarborageError] = []
    crew = Crew(lambda name, error: _log.error("%s: %s", name, error_reason(error)))
    crew.start(_end_with_run(stream, status, failures, settle_s), f"end of {run_id}")
    try:
        async with aclosing(stream.read()) as events:
            async for event in events:
                yield event
                if is_end_of(event, run_id):
                    return
    finally:
        await crew.aclose()
    if failures:
        raise failures[0]


async def _end_with_run(
    stream: EventStream, status: Callable[[], Awaitable[RunStatus]], failures: list[HarborageError], settle_s: float
) -> None:
    """End the stream when the run is over or blocked, and what was on the way has arrived."""
    await stream.opened.wait()
    try:
        while not (found := await status()).phase.is_final:
            if found.phase is RunPhase.BLOCKED:
                failures.append(RunBlockedError(found.run_id, found.reason))
                break
            await asyncio.sleep(_LOOK_S)
    except HarborageError as error:
        failures.append(error)
    await stream.end_when_quiet(settle_s)
