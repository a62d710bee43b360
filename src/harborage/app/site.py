"""`Site`: a server over the runtime of a program, whose code can be replaced while it serves.

The storage, the bus, the signing key and the open streams stay; only the runtime is made anew. Runs in flight stop at
their last recorded step and go on with the new code.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Self

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.errors import error_summary
from harborage.events import (
    BUS_DRIVERS,
    REDACTOR_DRIVERS,
    DevHotReloadCompletedPayload,
    DevHotReloadTriggeredPayload,
    Event,
    EventBus,
    EventType,
)
from harborage.server.application import Server
from harborage.server.auth.gate import TokenGate
from harborage.state.storage import Storage, open_storage

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from harborage.events import Redactor
    from harborage.identity import Identity
    from harborage.runtime.host import Runtime
    from harborage.server.application import Extension
    from harborage.server.auth.gate import Gate
    from harborage.server.flows import Flows
    from harborage.server.services import Issuer, ServerOptions

_PARK: str = "drain"
"""What a reload does to runs in flight: they are parked, and go on."""


class Site:
    """Opens what `load` returns over one storage, and serves it: `async with Site(…) as site: site.server`.

    `load` reads the program and returns its runtime, not entered; it is called once for each reload. `storage_of` says
    where the first one keeps its runs: an open storage, or the url of one that the site opens. `grace` is how many
    seconds steps in flight have to end when the runtime is stopped or replaced. `prepare` is called with the first
    runtime, once it is open; `flows` are those that the server answers for. `probe` is awaited before the code is
    loaded anew, and raises for code that must not be loaded in this process.
    """

    def __init__(
        self,
        load: Callable[[], Runtime],
        *,
        storage_of: Callable[[Runtime], Storage | str],
        make_gate: Callable[[Redactor, EventBus], Gate],
        options: ServerOptions,
        grace: float = 0,
        issuer: Issuer | None = None,
        routes: Iterable[BaseRoute] = (),
        extensions: Iterable[Extension] = (),
        fallback: Callable[[Request], Awaitable[Response]] | None = None,
        flows: Flows | None = None,
        prepare: Callable[[Runtime], Awaitable[None]] | None = None,
        probe: Callable[[], Awaitable[None]] | None = None,
        clock: Timers = SYSTEM_CLOCK,
        logger: logging.Logger | None = None,
    ) -> None:
        self._load = load
        self._storage_of = storage_of
        self._make_gate = make_gate
        self._serve = partial(
            Server,
            options=options,
            issuer=issuer,
            routes=tuple(routes),
            extensions=tuple(extensions),
            fallback=fallback,
            flows=flows,
            clock=clock,
        )
        self._grace = grace
        self._prepare = prepare
        self._probe = probe
        self._clock = clock
        self._logger = logging.getLogger("harborage.server") if logger is None else logger
        self._open = AsyncExitStack()
        self._parts: tuple[Storage, EventBus] | None = None
        self._runtime: Runtime | None = None
        self.server: Server

    async def __aenter__(self) -> Self:
        runtime = self._load()
        try:
            redactor = REDACTOR_DRIVERS.factory(runtime.options.redactor)()
            storage, bus = self._parts = await self._open_parts(runtime, redactor)
            runtime.keep_in(storage, bus)
            self._runtime = runtime
            await runtime.__aenter__()
            self._open.push_async_callback(self._stop)
            if self._prepare is not None:
                await self._prepare(runtime)
            gate = self._make_gate(redactor, bus)
            if isinstance(gate, TokenGate):
                self._open.callback(gate.close)
            self.server = self._serve(runtime, gate=gate, logger=self._logger)
        except BaseException:
            await self._open.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the runtime, so that its runs can go on elsewhere, and close the storage."""
        await self._open.aclose()

    async def _stop(self) -> None:
        assert self._runtime is not None
        await self._runtime.aclose(grace=self._grace)

    async def _open_parts(self, runtime: Runtime, redactor: Redactor) -> tuple[Storage, EventBus]:
        """The storage of the first runtime, in which all others keep their runs, too, and a bus over it."""
        given = self._storage_of(runtime)
        storage = await open_storage(given, clock=self._clock) if isinstance(given, str) else given
        if isinstance(given, str):
            self._open.push_async_callback(storage.aclose)
        bus = BUS_DRIVERS.factory("durable")(store=storage.store, redactor=redactor, clock=self._clock)
        self._open.push_async_callback(bus.aclose)
        return storage, bus

    async def reload(self, path: Path, who: Identity) -> None:
        """Replace the running code with the program as it is now, because the file at `path` has changed.

        Both begin and end are announced in the session of `who`. While the new runtime opens, the old one serves.

        Raises:
            Exception: the program cannot be loaded or opened; the old code keeps serving.
        """
        assert self._parts is not None
        began = self._clock.monotonic()
        await self._publish(
            EventType.DEV_HOT_RELOAD_TRIGGERED, who, DevHotReloadTriggeredPayload(path.name, "write", _PARK)
        )
        failure = ""
        try:
            await self._replace()
        except Exception as error:
            failure = error_summary(error)
            raise
        finally:
            took = round((self._clock.monotonic() - began) * 1000)
            done = DevHotReloadCompletedPayload(path.name, "write", _PARK, took, not failure, failure)
            await self._publish(EventType.DEV_HOT_RELOAD_COMPLETED, who, done)

    async def _replace(self) -> None:
        assert self._parts is not None
        if self._probe is not None:
            await self._probe()
        runtime = self._load()
        runtime.keep_in(*self._parts)
        await runtime.__aenter__()
        before, self._runtime, self.server.services.runtime = self.server.services.runtime, runtime, runtime
        await before.aclose(grace=self._grace)

    async def _publish(
        self, type: EventType, who: Identity, payload: DevHotReloadTriggeredPayload | DevHotReloadCompletedPayload
    ) -> None:
        assert self._parts is not None
        await self._parts[1].publish(Event(type, who.with_run(""), payload))
