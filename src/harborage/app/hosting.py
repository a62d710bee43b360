"""How a command serves a site: it listens, says where, reloads code that changed, and stops without losing anything."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harborage.app.watching import changes
from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.concurrency import Crew
from harborage.errors import error_reason, error_summary
from harborage.identity import Identity
from harborage.server.listening import Address, Listener, bound_address

if TYPE_CHECKING:
    import socket

    from harborage.app.site import Site


class Reloading(msgspec.Struct, frozen=True, kw_only=True):
    """Which folders hold the code that is reloaded, and in whose session each reload is announced."""

    roots: tuple[Path, ...]
    who: Identity


async def host(
    site: Site,
    opened: socket.socket,
    *,
    on_ready: Callable[[Address], None],
    stopping: asyncio.Event,
    grace: float,
    reloading: Reloading | None = None,
    clock: Timers = SYSTEM_CLOCK,
) -> None:
    """Serve a site on an open socket until `stopping` is set, and return once it has stopped.

    `on_ready` is called with the address once requests are answered. `grace` is how many seconds requests have to end;
    streams end at once, and runs go on elsewhere, or with the next start.

    Raises:
        Exception: the site cannot be opened.
    """
    logger = logging.getLogger("harborage.server")
    async with site:
        crew = Crew(lambda name, error: logger.error("%s stopped: %s", name, error_reason(error)))
        listener = Listener(site.server, opened, grace=grace)
        try:
            if reloading is not None:
                crew.start(_reload(site, reloading, clock, logger), "reload")
            serving = crew.start(listener.serve(), "listener")
            on_ready(bound_address(opened))
            waiting = crew.start(stopping.wait(), "stop")
            await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
            site.server.drain()
            listener.stop()
            await serving
        finally:
            await crew.aclose()


async def _reload(site: Site, reloading: Reloading, clock: Timers, logger: logging.Logger) -> None:
    """Replace the code each time that its files have changed; code that cannot be loaded is refused with its error."""
    async for files in changes(reloading.roots, clock):
        try:
            await site.reload(files[0], reloading.who)
        except Exception as error:  # noqa: BLE001 - whatever the edited file raises, the code before keeps serving
            logger.error("%s was not reloaded, the code before keeps serving: %s", files[0], error_summary(error))
        else:
            logger.warning("reloaded: %s", ", ".join(_shown(files)))


def _shown(files: Iterable[Path]) -> list[str]:
    names = [path.name for path in files]
    return names if len(names) <= 3 else [*names[:3], f"and {len(names) - 3} more"]
