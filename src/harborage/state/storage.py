"""One place where a process keeps everything: records, runs with their events, and artifacts; opened by a url.

It names no driver but through a table of lazy targets, so listing what there is costs no import and needs no extra.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.drivers import DriverTable
from harborage.state.errors import StorageUrlError

if TYPE_CHECKING:
    from harborage.artifacts import ArtifactStore
    from harborage.state.store import StateStore
    from harborage.store import Store

# As text: `re` compiles it for the first url and keeps it.
_SCHEME = r"(?i)([a-z][a-z0-9+.-]+):"


class _Closable(Protocol):
    async def aclose(self) -> None: ...


class Storage:
    """The stores of one process, over one place. Closed with `aclose`, or at the end of an `async with` block."""

    def __init__(
        self,
        *,
        state: StateStore,
        store: Store,
        artifacts: ArtifactStore | None = None,
        artifact_folder: str = "",
        beneath: _Closable | None = None,
        is_read_only: bool = False,
    ) -> None:
        """`beneath` is what the stores share, such as a database; it is closed after them.

        A storage that keeps artifacts itself has `artifacts`; one that is a file names the folder beside it where they
        belong. In one that `is_read_only` every write is refused.
        """
        self.state = state
        self.store = store
        self.artifacts = artifacts
        self.artifact_folder = artifact_folder
        self.is_read_only = is_read_only
        self.beneath = beneath
        self._is_closed = False

    async def aclose(self) -> None:
        """Close every store once, and then what is beneath them, whatever goes wrong. Closing twice does nothing.

        Raises:
            ExceptionGroup: what went wrong.
        """
        if self._is_closed:
            return
        self._is_closed = True
        failures: list[Exception] = []
        parts: list[_Closable] = [self.store, self.state]
        if self.artifacts is not None:
            parts.append(self.artifacts)
        if self.beneath is not None:
            parts.append(self.beneath)
        for part in {id(part): part for part in parts}.values():  # one object may be several of them
            try:
                await part.aclose()
            except Exception as error:  # noqa: BLE001 - raised with the others below
                failures.append(error)
        if failures:
            raise ExceptionGroup("the storage did not close cleanly", failures)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


StorageFactory: TypeAlias = Callable[[str, Timers], Awaitable[Storage]]
"""Opens what a whole url names; it takes its time and its timers from the clock."""

STORAGE_DRIVERS: DriverTable[StorageFactory] = DriverTable(
    "storage",
    {
        "memory": "harborage.state.memory_storage:open_memory",
        "postgres": "harborage.state.postgres:open_postgres",
        "postgresql": "harborage.state.postgres:open_postgres",
        "sqlite": "harborage.state.sqlite:open_sqlite",
    },
)


async def open_storage(
    url: str, *, clock: Timers = SYSTEM_CLOCK, drivers: DriverTable[StorageFactory] = STORAGE_DRIVERS
) -> Storage:
    """The storage that `url` names: `memory:`, `sqlite:PATH` or a bare path, or `postgres://…`.

    Raises:
        StorageUrlError: it is empty, or of a kind that no driver opens; the text lists those there are.
        MissingExtraError: what opens it is not installed.
        DatabaseError: it cannot be opened.
    """
    if not url.strip():
        raise StorageUrlError("the storage url is empty: write memory:, sqlite:PATH, a bare path, or postgres://…")
    found = re.match(_SCHEME, url)
    scheme = found[1].lower() if found else "sqlite"
    if scheme not in drivers.names():
        # The rest of the url is left out: it may hold a password.
        raise StorageUrlError(
            f"no storage is called {scheme}: (there are {', '.join(drivers.names())}, or a bare path)"
        )
    return await drivers.factory(scheme)(url, clock)
