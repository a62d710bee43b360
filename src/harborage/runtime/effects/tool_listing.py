"""The tools of an agent that come from elsewhere: listed when a run begins, in the catalog as they were listed last.

Here, too, is what a call of one means that was not answered.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from harborage.concurrency import together
from harborage.errors import error_reason
from harborage.runtime.effects.user_code import bounded
from harborage.tools.enums import BUILT_IN_TOOL_NAMES, Transport
from harborage.tools.errors import is_unanswered

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.identity import Quadruple
    from harborage.tools import Tool, ToolCatalog, ToolDescriptor
    from harborage.tools.sources import OpenSource, Sources, ToolSource

LISTING_S: Final = 30.0
"""Seconds that a peer has to list its tools; a run begins without those of one that takes longer."""
RESERVED: Final = frozenset({*BUILT_IN_TOOL_NAMES, "_finish", "_spawn_task", "_await_task"})
"""Names that no tool from elsewhere may have: those of the built-in tools, and those that mean a decision."""


class ToolListing:
    """Lists the sources of one agent into its catalog. What a source knows by itself is there from the beginning.

    Raises:
        Exception: a source does not open.
    """

    def __init__(
        self,
        sources: tuple[ToolSource, ...],
        opened: Sources,
        catalog: ToolCatalog,
        *,
        clock: Timers,
        logger: logging.Logger,
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._logger = logger
        self._sources: list[tuple[ToolSource, OpenSource]] = []
        for one in sources:
            self._sources.append((one, opened.open(one)))
            self._assign(one, one.known)

    def __len__(self) -> int:
        return len(self._sources)

    def may_have(self, name: str) -> bool:
        """Whether a source may list a tool of this name."""
        return any(name.startswith(f"{source.name}_") for source, _ in self._sources)

    async def refresh(self, who: Quadruple) -> None:
        """List the tools of every source anew for the run `who`; those of one that cannot be asked stay as they are."""
        await together(*(self._list(source, opened, who) for source, opened in self._sources))

    async def _list(self, source: ToolSource, opened: OpenSource, who: Quadruple) -> None:
        try:
            listing = opened.list_tools(who)
            self._assign(
                source, await bounded(listing, LISTING_S, clock=self._clock, on_left=partial(self._was_left, source))
            )
        except Exception as error:  # noqa: BLE001 - the run is told by what it is offered; the log says why
            self._logger.warning("the tools of %s could not be listed: %s", source.name, error_reason(error))

    def _assign(self, source: ToolSource, listed: Sequence[ToolDescriptor]) -> None:
        for text in self._catalog.assign(source.name, listed, reserved=RESERVED):
            self._logger.warning(text)

    def _was_left(self, source: ToolSource, _: BaseException | None) -> None:
        self._logger.warning("the listing of %s was abandoned: it ignored its cancellation", source.name)


def is_in_doubt(tool: Tool | None, error: BaseException | None) -> bool:
    """Whether nobody knows if a failed call has acted: it went to a peer, which did not answer."""
    if tool is None or tool.transport is Transport.INPROCESS or tool.is_repeatable:
        return False
    return is_unanswered(error)
