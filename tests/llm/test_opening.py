"""From a configuration to a client: what is refused in which order, and which layers stand around the driver."""

from __future__ import annotations

from typing import Any

import pytest

from harborage.artifacts import MemoryArtifactStore
from harborage.drivers import DriverDuplicateError, DriverEmptyNameError, DriverNilFactoryError, DriverTable
from harborage.errors import MissingExtraError
from harborage.events import LLMCostRecordedPayload, MemoryEventBus
from harborage.identity import Quadruple, bound
from harborage.llm import (
    LLM_DRIVERS,
    ChatMessage,
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Content,
    Deps,
    LLMClient,
    LLMConfigError,
    MissingAPIKeyError,
    ModelProfile,
    ModelRef,
    Role,
    UnknownDriverError,
    config_for,
    open_llm,
)
from harborage.testing.clock import FakeClock
from harborage.testing.events import EventRecorder
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
PROFILES = {"m": ModelProfile(context_window_tokens=1000)}
REQUEST = CompleteRequest(messages=[ChatMessage(Role.USER, Content("hi"))])
ALL = ["Retrying", "Downgrading", "Correcting", "Safe", "Naming", "Resilient", "Accounted", "Metered", "Driver"]


class Driver:
    """The simplest driver."""

    closings = 0

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        return CompleteResponse("answer")

    async def close(self) -> None:
        self.closings += 1


class Yes:
    """A governor that allows everything."""

    async def pre_call(self, request: CompleteRequest) -> None:
        """Allowed."""

    async def post_call(self, request: CompleteRequest, response: CompleteResponse) -> None:
        """Heard."""


def drivers(made: object, name: str = "test") -> DriverTable[Any]:
    """A table of one driver: what it makes, or the error it fails with."""

    def make(cfg: ConfigSnapshot, deps: Deps) -> Any:
        if isinstance(made, Exception):
            raise made
        return made

    return DriverTable("llm", {name: make})


def deps(**fields: Any) -> Deps:
    """The parts of a client."""
    parts = {"artifacts": MemoryArtifactStore(), "bus": MemoryEventBus(), "clock": FakeClock()}
    return Deps(**{**parts, **fields})


async def opened(made: object = None, *, parts: Deps | None = None, name: str = "test", **fields: Any) -> LLMClient:
    """A client over a driver of one's own."""
    cfg = ConfigSnapshot(**{"driver": name, "model": "m", "profiles": PROFILES, **fields})
    return await open_llm(cfg, parts or deps(), drivers=drivers(made or Driver(), name))


def layers(client: Any) -> list[str]:
    """The names of the layers, outermost first, and the driver."""
    names = []
    while client is not None:
        names.append(type(client).__name__)
        client = getattr(client, "_inner", None)
    return names


# --- what is refused, in order ------------------------------------------------------------------------------------


async def test_artifacts_then_bus_then_settings_then_driver() -> None:
    """Each missing part is reported before the next is checked."""
    bad = ConfigSnapshot(driver="nobody", context_window_reserve=2.0)
    with pytest.raises(LLMConfigError, match=r"Deps\.artifacts"):
        await open_llm(bad, deps(artifacts=None, bus=None))
    with pytest.raises(LLMConfigError, match=r"Deps\.bus"):
        await open_llm(bad, deps(bus=None))
    with pytest.raises(LLMConfigError, match="context_window_reserve"):
        await open_llm(bad, deps())
    with pytest.raises(UnknownDriverError):
        await open_llm(ConfigSnapshot(driver="nobody"), deps())


async def test_an_unknown_driver_lists_those_there_are() -> None:
    """Sorted, or `<none>`."""
    with pytest.raises(UnknownDriverError, match="anthropic,any,cassette,google,local,mock") as caught:
        await open_llm(ConfigSnapshot(driver="nobody"), deps())
    assert (caught.value.name, list(caught.value.known)) == ("nobody", sorted(LLM_DRIVERS.names()))
    with pytest.raises(UnknownDriverError, match="<none>"):
        await open_llm(ConfigSnapshot(driver="nobody"), deps(), drivers=DriverTable("llm"))


async def test_a_driver_that_cannot_be_made_is_named() -> None:
    """A foreign failure is wrapped with the driver's name and keeps its cause."""
    cause = OSError("no socket")
    with pytest.raises(LLMConfigError, match="the driver 'test' cannot be opened: no socket") as caught:
        await opened(cause)
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize("error", [MissingAPIKeyError("acme", "ACME_KEY"), MissingExtraError("acme", "the driver")])
async def test_what_a_driver_says_itself_is_passed_on(error: Exception) -> None:
    """A missing key or extra stays what it is, with a note of the driver; a mock never takes its place."""
    with pytest.raises(type(error)) as caught:
        await opened(error)
    assert caught.value is error
    assert error.__notes__ == ["while the LLM driver 'test' was opened"]


async def test_a_missing_key_is_refused_when_a_provider_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent: the error names the variable."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(MissingAPIKeyError, match="OPENAI_API_KEY"):
        await open_llm(ConfigSnapshot(provider="openai", model="gpt-4o"), deps())


@each_row(
    "name, target, error",
    [("", Driver, DriverEmptyNameError), ("x", None, DriverNilFactoryError), ("mock", Driver, DriverDuplicateError)],
)
def test_a_driver_is_registered_once(name: str, target: Any, error: type[Exception]) -> None:
    """A name, a factory, and no second one of that name."""
    table: DriverTable[Any] = DriverTable("llm", {"mock": "harborage.llm.mock:make"})
    with pytest.raises(error):
        table.register(name, target)


def test_every_listed_driver_can_be_named() -> None:
    """The table is the nine that come with Harborage; naming them imports nothing."""
    assert LLM_DRIVERS.names() == [
        "anthropic", "any", "cassette", "google", "local", "mock", "openai", "openai_compat", "scripted",
    ]  # fmt: skip


# --- the chain ----------------------------------------------------------------------------------------------------


async def test_the_order_of_the_layers() -> None:
    """Outermost first: governance, retry, downgrade, corrections, safety, naming, resilience, metering, driver."""
    assert layers(await opened()) == ALL
    assert layers(await opened(parts=deps(governance=Yes()))) == ["Governed", *ALL]


@each_row(
    "flag, layer",
    [
        ("disable_governance", "Governed"),
        ("disable_retry", "Retrying"),
        ("disable_downgrade", "Downgrading"),
        ("disable_corrections", "Correcting"),
    ],
)
async def test_a_layer_can_be_left_out(flag: str, layer: str) -> None:
    """Each flag takes out its own layer and no other."""
    client = await opened(parts=deps(governance=Yes()), **{flag: True})
    assert layers(client) == [name for name in ["Governed", *ALL] if name != layer]


async def test_safety_cannot_be_left_out() -> None:
    """With every flag set it is still in front of the driver."""
    flags = {f"disable_{name}": True for name in ("governance", "retry", "downgrade", "corrections")}
    assert layers(await opened(parts=deps(governance=Yes()), **flags)) == [
        "Safe",
        "Naming",
        "Resilient",
        "Accounted",
        "Metered",
        "Driver",
    ]


@pytest.mark.parametrize("name", ["mock", "scripted"])
async def test_made_up_answers_have_no_price(name: str) -> None:
    """No event tells of the calls of the mock and the scripted driver; they are counted all the same."""
    bus = MemoryEventBus()
    events = EventRecorder(bus)
    client = await opened(name=name, parts=deps(bus=bus))
    assert layers(client) == ["Counted" if layer == "Metered" else layer for layer in ALL]
    with bound(WHO):
        assert (await client.complete(REQUEST)).content == "answer"
    assert not events.events


async def test_a_call_of_a_provider_is_recorded() -> None:
    """Even where it is free."""
    bus = MemoryEventBus()
    events = EventRecorder(bus)
    client = await opened(parts=deps(bus=bus))
    with bound(WHO):
        await client.complete(REQUEST)
    (recorded,) = events.payloads(LLMCostRecordedPayload)
    assert (recorded.identity, recorded.model, recorded.context_window_tokens) == (WHO, "m", 1000)
    await client.close()


async def test_closing_reaches_the_driver_once() -> None:
    """Through all the layers."""
    driver = Driver()
    client = await opened(driver)
    await client.close()
    await client.close()
    assert driver.closings == 1


async def test_the_configuration_is_left_as_it_was() -> None:
    """Defaults are filled in on a copy."""
    cfg = ConfigSnapshot(driver="test", model="m", profiles=PROFILES)
    await open_llm(cfg, deps(), drivers=drivers(Driver()))
    assert (cfg.context_window_reserve, cfg.profiles["m"].max_retries) == (None, None)


async def test_the_mock_opens_from_its_string() -> None:
    """Asked for by name, and only then."""
    client = await open_llm(config_for(ModelRef("mock"), environ={}), deps())
    with bound(WHO):
        assert (await client.complete(REQUEST)).content == "mock:hi"
