"""Events to stream, and servers over a bus of one's own, for tests of the event stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from harborage.events import Event, EventType, LLMCompletionChunkPayload, TaskPausedPayload, TaskSpawnedPayload
from harborage.runtime.host import Runtime
from harborage.server.application import Server
from harborage.server.services import ServerOptions
from harborage.testing.clock import FakeClock
from tests.kit.wire import ADA, HeaderGate, Wire

if TYPE_CHECKING:
    from harborage.identity import Identity
    from tests.kit.sse import Frame

STEP = 4096


def paused(run: str = "r", who: Identity = ADA) -> Event:
    """An event of a run."""
    return Event(EventType.TASK_PAUSED, who.with_run(run), TaskPausedPayload(run))


def spawned(run: str, parent: str | None = None, who: Identity = ADA) -> Event:
    """The start of a run."""
    return Event(EventType.TASK_SPAWNED, who.with_run(run), TaskSpawnedPayload(run, "background", parent))


def delta(text: str = "x", run: str = "r", who: Identity = ADA, *, kind: str = "content", done: bool = False) -> Event:
    """A piece of a streamed answer."""
    at = FakeClock().now()
    payload = LLMCompletionChunkPayload(
        identity=who.with_run(run), task_id=run, run_id=run, delta=text, done=done, kind=kind, occurred_at=at
    )
    return Event(EventType.LLM_COMPLETION_CHUNK, who.with_run(run), payload)


async def publish(bus: Any, *events: Event) -> None:
    """Publish events, in order."""
    for event in events:
        await bus.publish(event)


def numbers(frames: list[Frame]) -> list[int]:
    """The sequences of events, which are the ids of their frames."""
    assert all(frame.id == frame.sequence for frame in frames)
    return [frame.sequence for frame in frames]


@asynccontextmanager
async def streaming(bus: Any, *, clock: Any = None, planner: Any = None, **options: Any) -> AsyncIterator[Wire]:
    """A client of a server over a runtime with this bus; `options` are the server's."""
    parts: dict[str, Any] = {"model": "mock:echo"} if planner is None else planner
    async with Runtime(bus=bus, **parts) as runtime:
        given = {} if clock is None else {"clock": clock}
        yield Wire(Server(runtime, gate=HeaderGate(), options=ServerOptions(**options), **given))
