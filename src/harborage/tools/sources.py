"""Tools that come from elsewhere: what an agent names in `tools=[…]` beside functions, and what a runtime opens of it.

A `ToolSource` is a value: it connects to nothing and reads no secret. A runtime opens each source once, whatever
number of agents name it, lists its tools when a run begins, and closes it at its own end.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import msgspec

from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.concurrency import CancelScope
from harborage.errors import at_least

if TYPE_CHECKING:
    from harborage.artifacts import ArtifactStore
    from harborage.events import Event, Redactor
    from harborage.identity import Quadruple
    from harborage.tools.model import ToolDescriptor


class ToolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much tools that come from elsewhere may take. What is above a limit is refused or cut, and says so.

    `result_bytes` of one result; `description_bytes` and `schema_bytes` of one tool, whose schema nests at most
    `schema_levels` deep; `tools_per_server`, in `listing_pages` of one listing; `notifications_per_second` of one call;
    `line_bytes` of a server on standard input and output; `elicitation_rounds` and `request_state_bytes` of one call;
    `http_pages` and `redirects` that one call follows.

    Raises:
        InvalidOptionError: one is not above 0.
    """

    result_bytes: int = 32 * 1024 * 1024
    description_bytes: int = 2048
    schema_bytes: int = 256 * 1024
    schema_levels: int = 100
    tools_per_server: int = 1000
    listing_pages: int = 100
    notifications_per_second: int = 10
    line_bytes: int = 16 * 1024 * 1024
    elicitation_rounds: int = 10
    request_state_bytes: int = 64 * 1024
    http_pages: int = 10
    redirects: int = 3

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            at_least(1, getattr(self, name), name, is_whole=True)


_CLOSE_S: Final = 30.0
"""How long a source may take to close, in seconds; those of the package take less."""


class SourceServices(msgspec.Struct, frozen=True, kw_only=True):
    """What a runtime offers to its sources of tools. `publish` takes an event, `allow_hosts` are private hosts that
    addresses from outside may name, as `host:port`."""

    clock: Timers = SYSTEM_CLOCK
    logger: logging.Logger = logging.getLogger("harborage.tools")
    limits: ToolLimits = ToolLimits()
    allow_hosts: tuple[str, ...] = ()
    redactor: Redactor | None = None
    publish: Callable[[Event], object] | None = None
    artifacts: ArtifactStore | None = None


class OpenSource(Protocol):
    """A source that a runtime has opened."""

    async def list_tools(self, who: Quadruple) -> Sequence[ToolDescriptor[Any]]:
        """Return the tools that the run `who` may be offered, named as in the catalog; connect when it is needed.

        The very same object as long as none came, went or changed.

        Raises:
            Exception: the peer cannot be asked now; the tools of the last listing stay.
        """
        ...

    async def aclose(self) -> None:
        """End the connections and the calls that wait on them."""
        ...


@runtime_checkable
class ToolSource(Protocol):
    """Tools of a document, a server or a peer, as a program or a configuration describes them.

    Names in the catalog begin with the `name` of the source, or are it.
    """

    @property
    def name(self) -> str:
        """The name of the source, distinct among those of an agent."""
        ...

    @property
    def known(self) -> Sequence[ToolDescriptor[Any]]:
        """The tools that are known without asking anybody; their bodies need not work before the source is open."""
        ...

    def open(self, services: SourceServices) -> OpenSource:
        """Return the open source. It connects to nothing yet."""
        ...


class Sources:
    """The open sources of a runtime, one for each value, whoever names it."""

    def __init__(self, services: SourceServices) -> None:
        self._services = services
        self._open: dict[int, tuple[ToolSource, OpenSource]] = {}

    def open(self, source: ToolSource) -> OpenSource:
        """Return the open source, opened when it is new."""
        found = self._open.get(id(source))
        if found is None:
            found = self._open[id(source)] = (source, source.open(self._services))
        return found[1]

    def __iter__(self) -> Iterator[tuple[ToolSource, OpenSource]]:
        return iter(tuple(self._open.values()))

    async def aclose(self) -> None:
        """Close them all; one that fails to close is logged and keeps none of the others open."""
        opened, self._open = [*self._open.values()], {}
        for source, one in reversed(opened):
            await self._close(source, one.aclose())

    async def _close(self, source: ToolSource, closing: Awaitable[None]) -> None:
        try:
            with CancelScope(self._services.clock, _CLOSE_S):
                await closing
                return
        except Exception:
            self._services.logger.warning("the tools of %s could not be closed", source.name, exc_info=True)
        else:
            self._services.logger.warning("the tools of %s were not closed in %g s", source.name, _CLOSE_S)
