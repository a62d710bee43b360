"""What operators decide about the tools of their tenants while the runtime is open, over what its agents say.

One record for each tenant, in the store of records, so that it outlives the process and counts in every process over
the same storage: at once in this one, and within `REFRESH_S` in the others.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harborage import codec
from harborage.errors import error_reason
from harborage.identity import Quadruple
from harborage.ids import new_id
from harborage.state import RecordNotFoundError, StateRecord, SwappingStateStore
from harborage.state.errors import DatabaseError

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.runtime.loop.seam import GatedTools
    from harborage.state import StateStore

REFRESH_S: Final = 5.0
"""Seconds after which what other processes decided is looked up again."""

DENIED: Final = "an operator has denied the calls of {0!r} in this tenant; do without it, or ask the operator"
GATED_SINCE: Final = (
    "an operator lets a person approve the calls of {0!r} since this run started, so it was not made; "
    "start another run, which asks for approval"
)
ASKS: Final = "an operator asks for it"

_KIND: Final = "tools.approval_policies"
_OWNER: Final = ("operator", "tool-approvals")

_log = logging.getLogger(__name__)


class ToolApproval(StrEnum):
    """What an operator decided about a tool: it needs no approval, a person is asked each time, or it is refused."""

    AUTO = "auto"
    GATED = "gated"
    DENIED = "denied"


class _Known:
    """What was decided in one tenant, and when that was looked up."""

    __slots__ = ("at", "policies")

    def __init__(self, policies: Mapping[str, ToolApproval], at: float) -> None:
        self.policies = policies
        self.at = at


class OperatorApprovals:
    """The decisions of all tenants; safe for many callers on one event loop, and for many processes over one store."""

    def __init__(self, state: StateStore, clock: Timers) -> None:
        self._state = state
        self._clock = clock
        self._known: dict[str, _Known] = {}

    def known(self, tenant: str) -> Mapping[str, ToolApproval] | None:
        """Return what was decided in a tenant, by tool; None where it must be looked up first, with `load`."""
        known = self._known.get(tenant)
        return None if known is None or self._clock.monotonic() - known.at >= REFRESH_S else known.policies

    async def load(self, tenant: str) -> Mapping[str, ToolApproval]:
        """Return the same, looked up where that is due; a store that fails then leaves what was known.

        Raises:
            DatabaseError: the store refused, and nothing was known before.
        """
        fresh = self.known(tenant)
        if fresh is not None:
            return fresh
        try:
            policies, _ = await self._read(tenant)
        except DatabaseError as error:
            if (known := self._known.get(tenant)) is None:
                raise
            _log.warning("the approval policies of a tenant could not be read again: %s", error_reason(error))
            policies = known.policies
        self._known[tenant] = _Known(policies, self._clock.monotonic())
        return policies

    async def set(self, tenant: str, tool: str, policy: ToolApproval | None) -> None:
        """Decide about a tool of a tenant; None leaves it to its agent again.

        Raises:
            DatabaseError: the store refused; nothing has changed.
        """
        while True:
            before, event_id = await self._read(tenant)
            policies = {name: one for name, one in before.items() if name != tool}
            if policy is not None:
                policies[tool] = policy
            if await self._write(tenant, policies, event_id):
                self._known[tenant] = _Known(policies, self._clock.monotonic())
                return

    def overlay(self, tenant: str, gated: GatedTools) -> GatedTools:
        """Return which tools are gated in a run of a tenant that starts now, over what its agent says."""
        known = self._known.get(tenant)
        if known is None or not known.policies:
            return gated
        waived = frozenset(name for name, one in known.policies.items() if one is ToolApproval.AUTO)
        return replace(gated, forced=frozenset(known.policies) - waived, waived=waived)

    def is_forced(self, tool: str) -> bool:
        """Whether an operator of any tenant that is known here wants a person asked about a tool, or denied it."""
        return any(one.policies.get(tool, ToolApproval.AUTO) is not ToolApproval.AUTO for one in self._known.values())

    async def _read(self, tenant: str) -> tuple[Mapping[str, ToolApproval], str]:
        try:
            record = await self._state.load(_slot(tenant), _KIND)
        except RecordNotFoundError:
            return {}, ""
        policies: Mapping[str, ToolApproval] = codec.decode(record.data, dict[str, ToolApproval])
        return policies, record.event_id

    async def _write(self, tenant: str, policies: Mapping[str, ToolApproval], after: str) -> bool:
        record = StateRecord(new_id(), _slot(tenant), _KIND, codec.encode(policies, _KIND))
        if isinstance(self._state, SwappingStateStore):
            return await self._state.swap(record, after=after)
        await self._state.save(record)
        return True


def _slot(tenant: str) -> Quadruple:
    return Quadruple(tenant, *_OWNER, "")
