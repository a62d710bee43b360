"""The model that a system uses, for a status page: no key, no header, no credential in an address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.events import Event, EventBus, EventType, LLMPostureReadAdminPayload
from harborage.identity import AdminScopeRequiredError, Quadruple, current_scopes, effective_quadruple, require_triple
from harborage.llm.configure import complete_settings

if TYPE_CHECKING:
    from harborage.llm.config import ConfigSnapshot

ADMIN: Final = "admin"


class Posture(msgspec.Struct, frozen=True):
    """The provider and the model of a system, the address, and whether its answers are made up."""

    provider: str
    model: str
    region: str
    mock_mode: bool


def posture(cfg: ConfigSnapshot) -> Posture:
    """Return the posture of a configuration: the provider, else the driver; the region is the address of the server."""
    full = complete_settings(cfg)
    return Posture(
        provider=full.provider or full.driver,
        model=full.model,
        region=_public(full.base_url),
        mock_mode=full.driver == "mock",
    )


class PostureReader:
    """Gives out the posture with which the system was started."""

    def __init__(self, cfg: ConfigSnapshot, bus: EventBus | None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._posture = posture(cfg)
        self._bus = bus
        self._clock = clock

    async def read(self, tenant: str = "", *, who: Quadruple | None = None) -> Posture:
        """Return the posture to the ambient identity or to `who`; `tenant` names another tenant than its own.

        Raises:
            IdentityRequiredError: there is no identity.
            AdminScopeRequiredError: another tenant is read without the `admin` scope.
        """
        caller = effective_quadruple() if who is None else who
        require_triple(caller, "llm.posture")
        assert caller is not None
        if tenant and tenant != caller.tenant_id:
            if ADMIN not in current_scopes():
                raise AdminScopeRequiredError("llm.posture: another tenant's posture", (ADMIN,))
            await self._publish(caller, tenant)
        return self._posture

    async def _publish(self, caller: Quadruple, tenant: str) -> None:
        """Publish the reading before it happens: one that cannot be published is refused."""
        if self._bus is None:
            return
        payload = LLMPostureReadAdminPayload(actor=caller, requested_tenant=tenant)
        await self._bus.publish(Event(EventType.LLM_POSTURE_READ_ADMIN, caller, payload, self._clock.now()))


def _public(address: str) -> str:
    """Return the address without a user, a password or a query, any of which may be a secret."""
    if not address:
        return ""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
