"""The posture of a system: without secrets, and of another tenant for admins only."""

from __future__ import annotations

import pytest

from harborage.events import EventType, LLMPostureReadAdminPayload, MemoryEventBus
from harborage.identity import AdminScopeRequiredError, IdentityRequiredError, Quadruple, bound
from harborage.llm import ConfigSnapshot, ModelRef, Posture, PostureReader, config_for, posture
from harborage.testing.events import EventRecorder
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

SECRET = "sk-very-secret-0123456789"
WHO = Quadruple("t", "u", "s", "r")
ADMIN = frozenset({"admin"})
CFG = ConfigSnapshot(
    provider="openai", model="gpt-5", api_key=SECRET, base_url=f"https://me:{SECRET}@gate/v1?k={SECRET}"
)


@each_row(
    "cfg, expected",
    [
        (CFG, Posture("openai", "gpt-5", "https://gate/v1", False)),
        (ConfigSnapshot(driver="anthropic", model="m"), Posture("anthropic", "m", "", False)),
        (ConfigSnapshot(), Posture("openai_compat", "", "", False)),
        (config_for(ModelRef("mock"), environ={}), Posture("mock", "mock", "", True)),
        (ConfigSnapshot(driver="mock", provider="openai"), Posture("openai", "", "", True)),
    ],
)
def test_a_posture(cfg: ConfigSnapshot, expected: Posture) -> None:
    """The provider, else the driver, else the default driver; the address is the region; no secret is in it."""
    assert posture(cfg) == expected
    assert SECRET not in repr(posture(cfg))


async def test_ones_own_posture() -> None:
    """Anybody may read it, and nothing is recorded."""
    bus = MemoryEventBus()
    events = EventRecorder(bus)
    desk = PostureReader(CFG, bus)
    with bound(WHO):
        assert await desk.read() == await desk.read("t") == posture(CFG)
    assert await desk.read(who=WHO) == posture(CFG)
    assert not events.events


async def test_another_tenants_posture_needs_an_admin() -> None:
    """Without the scope it is refused; with it the reading is recorded: who read, and about whom."""
    bus = MemoryEventBus()
    events = EventRecorder(bus)
    desk = PostureReader(CFG, bus)
    with bound(WHO), pytest.raises(AdminScopeRequiredError, match="'admin'"):
        await desk.read("other")
    assert not events.events
    with bound(WHO, scopes=ADMIN):
        assert await desk.read("other") == posture(CFG)
    (event,) = events.events
    assert (event.type, event.identity) == (EventType.LLM_POSTURE_READ_ADMIN, WHO)
    assert event.payload == LLMPostureReadAdminPayload(actor=WHO, requested_tenant="other")


async def test_a_reading_that_cannot_be_recorded_does_not_happen() -> None:
    """An audit that fails is not passed over."""
    bus = MemoryEventBus()
    await bus.aclose()
    with bound(WHO, scopes=ADMIN), pytest.raises(Exception, match="bus"):
        await PostureReader(CFG, bus).read("other")


async def test_an_identity_is_required() -> None:
    """Without an identity the posture is refused."""
    with pytest.raises(IdentityRequiredError):
        await PostureReader(CFG, None).read()
