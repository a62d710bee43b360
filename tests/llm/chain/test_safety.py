"""A request that is malformed, leaks or does not fit never reaches a provider."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta

import pytest

from harborage.artifacts import ArtifactScope, MemoryArtifactStore
from harborage.events import LLMContextLeakPayload, LLMContextWindowExceededPayload, MemoryEventBus
from harborage.identity import Identity, Quadruple, bound
from harborage.llm import (
    AudioPart,
    ChatMessage,
    ClientClosedError,
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Content,
    ContextLeakError,
    ContextWindowExceededError,
    Deps,
    FilePart,
    IdentityMissingError,
    ImagePart,
    InvalidContentError,
    LLMConfigError,
    ModelProfile,
    OrphanToolCallError,
    ProviderTimeoutError,
    Role,
    TextPart,
    ToolDeclaration,
    ToolsUnsupportedError,
    UnsupportedModelError,
)
from harborage.llm.chain.safety import Leak, Safe, find_leak
from harborage.testing.clock import FakeClock, settle
from harborage.testing.events import EventRecorder
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
USER = ChatMessage(Role.USER, Content("hi"))
BAD = ChatMessage(Role.USER, Content())
ORPHAN = ChatMessage(Role.TOOL, Content("1"), tool_call_id="a")
THRESHOLD = 200
HEAVY_TEXT = ChatMessage(Role.USER, Content("x" * THRESHOLD))
IMAGE = ImagePart(data_url="data:image/png;base64," + base64.b64encode(b"\x89PNG" + bytes(THRESHOLD)).decode())
HEAVY_IMAGE = ChatMessage(Role.USER, Content(parts=[IMAGE]))
TOOL = ToolDeclaration("echo", schema={"type": "object"})


class Driver:
    """A driver that keeps what reaches it, and answers when it is let go."""

    def __init__(self) -> None:
        self.requests: list[CompleteRequest] = []
        self.gate: asyncio.Event | None = None
        self.cancelled = 0

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self.requests.append(request)
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return CompleteResponse("answer")

    async def close(self) -> None:
        """Nothing is held."""


class Bench:
    """A safe client over a driver, its events and its stored artifacts."""

    def __init__(self, *, timeout_s: float | None = None, reserve: float | None = None, **profile) -> None:
        self.driver, self.store, self.clock = Driver(), MemoryArtifactStore(), FakeClock()
        bus = MemoryEventBus()
        self.published = EventRecorder(bus)
        cfg = ConfigSnapshot(
            provider="acme",
            model="m",
            heavy_output_threshold=THRESHOLD,
            timeout_s=timeout_s,
            context_window_reserve=reserve,
            profiles={"m": ModelProfile(**{"context_window_tokens": 100_000, **profile})},
        )
        self.client = Safe(self.driver, cfg, Deps(artifacts=self.store, bus=bus, clock=self.clock))

    async def ask(self, *messages: ChatMessage, **fields) -> CompleteResponse:
        """The answer for a bound caller."""
        with bound(WHO):
            return await self.client.complete(CompleteRequest(messages=messages or (USER,), **fields))

    async def stored(self) -> int:
        """How many artifacts there are."""
        return len(await self.store.list(ArtifactScope("", "", "")))


# --- the order of the checks --------------------------------------------------------------------------------------


async def test_a_sound_request_arrives() -> None:
    """It is passed on with the configured model filled in, and the caller's own is left as it was."""
    bench = Bench()
    request = CompleteRequest(messages=[USER])
    with bound(WHO):
        assert (await bench.client.complete(request)).content == "answer"
    assert [(sent.model, sent.messages) for sent in bench.driver.requests] == [("m", (USER,))]
    assert request.model == ""


async def test_a_complete_request_is_not_copied() -> None:
    """What needs no change is passed on as it is."""
    bench = Bench()
    request = CompleteRequest(model="m", messages=[USER])
    with bound(WHO):
        await bench.client.complete(request)
    assert bench.driver.requests[0] is request


@each_row(
    "request_, error",
    [
        (CompleteRequest(model="?", messages=[BAD, ORPHAN, HEAVY_IMAGE]), InvalidContentError),
        (CompleteRequest(model="?", messages=[ORPHAN, HEAVY_IMAGE]), OrphanToolCallError),
        (CompleteRequest(model="?", messages=[HEAVY_IMAGE], tools=[TOOL]), UnsupportedModelError),
        (CompleteRequest(messages=[HEAVY_IMAGE], tools=[TOOL]), ToolsUnsupportedError),
        (CompleteRequest(messages=[HEAVY_TEXT, ChatMessage(Role.USER, Content("x" * 100))] * 9), ContextLeakError),
        (CompleteRequest(messages=[USER] * 20), ContextWindowExceededError),
    ],
)
async def test_the_first_failing_check_is_the_one_reported(request_: CompleteRequest, error: type[Exception]) -> None:
    """Structure, pairing, profile, tools, leaks, window: in this order, and nothing reaches the driver or the store."""
    bench = Bench(context_window_tokens=100, supports_tools=False)
    with bound(WHO), pytest.raises(error):
        await bench.client.complete(request_)
    assert not bench.driver.requests
    assert not await bench.stored()


async def test_closed_comes_before_identity_and_identity_before_content() -> None:
    """A closed client says so first; then who is asking; then what."""
    bench = Bench()
    with pytest.raises(IdentityMissingError):
        await bench.client.complete(CompleteRequest(messages=[BAD]))
    await bench.client.close()
    with pytest.raises(ClientClosedError):
        await bench.client.complete(CompleteRequest(messages=[BAD]))


async def test_an_identity_without_a_run_is_enough() -> None:
    """Calls outside of runs need tenant, user and session."""
    bench = Bench()
    with bound(Identity("t", "u", "s")):
        await bench.client.complete(CompleteRequest(messages=[HEAVY_IMAGE]))
    assert await bench.store.list(ArtifactScope("t", "u", "s", ""))


async def test_no_model_at_all() -> None:
    """Neither the request nor the configuration names one."""
    client = Safe(Driver(), ConfigSnapshot(), Deps(artifacts=None, bus=None))
    with bound(WHO), pytest.raises(LLMConfigError, match=r"set llm\.model"):
        await client.complete(CompleteRequest(messages=[USER]))


async def test_an_unknown_model_names_the_profile_to_add() -> None:
    """The lookup is by the exact name."""
    with pytest.raises(UnsupportedModelError, match=r"add llm\.profiles\['M'\] with its context_window_tokens"):
        await Bench().ask(model="M")


async def test_a_model_without_tools_gets_none() -> None:
    """The error names the model and the setting; without tools the same model answers."""
    bench = Bench(supports_tools=False)
    with pytest.raises(
        ToolsUnsupportedError, match=r"m takes no tools.*llm\.profiles\['m'\]\.supports_tools"
    ) as caught:
        await bench.ask(tools=[TOOL])
    assert (caught.value.provider, caught.value.model) == ("acme", "m")
    assert (await bench.ask()).content == "answer"


# --- heavy content ------------------------------------------------------------------------------------------------


async def test_heavy_media_travel_as_a_stub() -> None:
    """The driver sees a stub; the caller's message, used again, still has its image."""
    bench = Bench()
    for _ in range(2):
        await bench.ask(HEAVY_IMAGE)
    assert HEAVY_IMAGE.content.parts == (IMAGE,)
    parts = [sent.messages[0].content.parts[0] for sent in bench.driver.requests]
    assert [(part.data_url, bool(part.artifact)) for part in parts] == [("", True)] * 2
    assert await bench.stored() == 1


async def test_a_vision_model_sees_the_image() -> None:
    """Up to the model's own limit media stay inline, above the threshold or not."""
    bench = Bench(inline_limit_bytes=1000)
    await bench.ask(HEAVY_IMAGE)
    assert bench.driver.requests[0].messages[0] is HEAVY_IMAGE


async def test_a_leak_is_reported_and_stops_the_call() -> None:
    """One event with site, size and threshold; the error has the same."""
    bench = Bench()
    with pytest.raises(ContextLeakError) as caught:
        await bench.ask(USER, HEAVY_TEXT)
    (payload,) = bench.published.payloads(LLMContextLeakPayload)
    assert (payload.identity, payload.model, payload.occurred_at) == (WHO, "m", bench.clock.now())
    site = "Messages[1].Content.Text"
    assert (payload.leak_site, payload.size_bytes, payload.threshold) == (site, THRESHOLD, THRESHOLD)
    assert (caught.value.site, caught.value.size_bytes, caught.value.threshold) == (site, THRESHOLD, THRESHOLD)
    assert not bench.driver.requests


async def test_an_inline_copy_beside_an_artifact_leaks() -> None:
    """A part that is stored already is not touched, so a heavy data URL left in it is found."""
    stub = (await stubbed()).messages[0].content.parts[0].artifact
    part = ImagePart(data_url=IMAGE.data_url, artifact=stub)
    with pytest.raises(ContextLeakError, match=r"Image\.DataURL"):
        await Bench().ask(ChatMessage(Role.USER, Content(parts=[part])))


async def stubbed() -> CompleteRequest:
    """What the driver gets for a heavy image."""
    bench = Bench()
    await bench.ask(HEAVY_IMAGE)
    return bench.driver.requests[0]


# --- the window ---------------------------------------------------------------------------------------------------


def tokens(count: int) -> ChatMessage:
    """A message that is estimated at `count` tokens."""
    return ChatMessage(Role.USER, Content("x" * (4 * (count - 5))))


async def test_a_full_window_stops_the_call() -> None:
    """Of 50 tokens a reserve of 10 % leaves 45: an estimate of 44 passes, one of 45 is refused with an event."""
    bench = Bench(context_window_tokens=50, reserve=0.1)
    await bench.ask(tokens(44))
    with pytest.raises(ContextWindowExceededError) as caught:
        await bench.ask(tokens(45))
    error = caught.value
    assert (error.estimate, error.window, error.reserve, error.effective) == (45, 50, 0.1, 45)
    (payload,) = bench.published.payloads(LLMContextWindowExceededPayload)
    assert (payload.identity, payload.model, payload.occurred_at) == (WHO, "m", bench.clock.now())
    assert (payload.estimated_tokens, payload.context_window_tokens, payload.context_window_reserve) == (
        45,
        50,
        0.1,
    )
    assert len(bench.driver.requests) == 1


async def test_the_usual_reserve_is_a_twentieth() -> None:
    """Unset it is 5 %; an explicit 0 keeps nothing back."""
    with pytest.raises(ContextWindowExceededError):
        await Bench(context_window_tokens=40).ask(tokens(38))
    await Bench(context_window_tokens=40, reserve=0.0).ask(tokens(39))


async def test_texts_of_other_scripts_count_their_bytes() -> None:
    """A text is refused for what it really takes, not for what it might."""
    bench = Bench(context_window_tokens=50, reserve=0.0)
    await bench.ask(ChatMessage(Role.USER, Content("é" * 88)))
    with pytest.raises(ContextWindowExceededError):
        await bench.ask(ChatMessage(Role.USER, Content("é" * 90)))


async def test_tools_count() -> None:
    """What is declared is sent with every call."""
    bench = Bench(context_window_tokens=50)
    with pytest.raises(ContextWindowExceededError):
        await bench.ask(tools=[ToolDeclaration("echo", "x" * 200)])


async def test_the_answers_length_is_the_profiles_when_unset() -> None:
    """A request's own limit wins, 0 included."""
    bench = Bench(default_max_tokens=7)
    for limit in (None, 3, 0):
        await bench.ask(max_tokens=limit)
    assert [sent.max_tokens for sent in bench.driver.requests] == [7, 3, 0]


# --- time ---------------------------------------------------------------------------------------------------------


async def waiting(bench: Bench, **fields) -> asyncio.Task[CompleteResponse]:
    """A call that is open in the driver."""
    bench.driver.gate = asyncio.Event()
    call = asyncio.ensure_future(bench.ask(**fields))
    await settle()
    assert bench.driver.requests
    return call


@pytest.mark.parametrize(("timeout_s", "expected"), [(None, 300.0), (7.0, 7.0)])
async def test_a_call_is_bounded_by_the_clients_timeout(timeout_s: float | None, expected: float) -> None:
    """Without a deadline of the caller the call is cut after `timeout_s`, or after five minutes."""
    bench = Bench(timeout_s=timeout_s)
    call = await waiting(bench)
    await bench.clock.run_for(expected - 0.001)
    assert not call.done()
    await bench.clock.run_for(0.001)
    with pytest.raises(ProviderTimeoutError, match=rf"acme: no answer of m within {expected:g} s; llm\.timeout_s"):
        await call
    assert bench.driver.cancelled == 1


@pytest.mark.parametrize("seconds", [1.0, 1000.0])
async def test_a_callers_deadline_is_kept(seconds: float) -> None:
    """Longer or shorter than the client's timeout, the caller's deadline is the one that counts."""
    bench = Bench(timeout_s=60.0)
    call = await waiting(bench, deadline=bench.clock.now() + timedelta(seconds=seconds))
    await bench.clock.run_for(seconds - 0.001)
    assert not call.done()
    await bench.clock.run_for(0.001)
    with pytest.raises(ProviderTimeoutError, match="by the caller's deadline of 2026-01-01"):
        await call


async def test_a_deadline_that_has_passed_costs_nothing() -> None:
    """The driver is not asked."""
    bench = Bench()
    with pytest.raises(ProviderTimeoutError):
        await bench.ask(deadline=bench.clock.now())
    assert not bench.driver.requests


async def test_an_answer_in_time_leaves_no_timer() -> None:
    """Nothing is left of a call that has ended."""
    bench = Bench()
    await bench.ask()
    assert bench.clock.armed == 0


async def test_a_cancelled_caller_is_not_timed_out() -> None:
    """Cancellation passes through as what it is, and reaches the driver."""
    bench = Bench()
    call = await waiting(bench)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert bench.driver.cancelled == 1
    assert bench.clock.armed == 0


async def test_a_caller_that_was_asked_to_stop_spends_nothing() -> None:
    """A cancellation that has not arrived yet stops the call before the driver."""
    bench = Bench()

    async def stop_and_ask() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await bench.ask()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(stop_and_ask())
    assert not bench.driver.requests


async def test_one_cancelled_call_leaves_its_siblings() -> None:
    """Calls share the client and nothing else."""
    bench = Bench()
    first = await waiting(bench)
    gate = bench.driver.gate
    second = asyncio.ensure_future(bench.ask())
    await settle()
    first.cancel()
    await settle()
    assert gate is not None
    gate.set()
    assert (await second).content == "answer"
    assert first.cancelled()


LEAKS_THRESHOLD = 100
LIGHT = ChatMessage(Role.USER, Content("light"))


def data_url(size: int) -> str:
    """A data URL of `size` bytes, decoded."""
    return f"data:image/png;base64,{base64.b64encode(bytes(size)).decode()}"


def found(*messages: ChatMessage, inline_limit: int = LEAKS_THRESHOLD) -> Leak | None:
    """The first leak."""
    return find_leak(messages, LEAKS_THRESHOLD, inline_limit)


@each_row(
    "content, site",
    [
        (Content("x" * LEAKS_THRESHOLD), "Messages[1].Content.Text"),
        (Content("é" * (LEAKS_THRESHOLD // 2)), "Messages[1].Content.Text"),
        (Content(parts=[TextPart("a"), TextPart("x" * LEAKS_THRESHOLD)]), "Messages[1].Parts[1].Text"),
        (Content(parts=[ImagePart(data_url=data_url(LEAKS_THRESHOLD))]), "Messages[1].Parts[0].Image.DataURL"),
        (Content(parts=[AudioPart(data_url=data_url(LEAKS_THRESHOLD))]), "Messages[1].Parts[0].Audio.DataURL"),
        (Content(parts=[FilePart(data_url=data_url(LEAKS_THRESHOLD))]), "Messages[1].Parts[0].File.DataURL"),
    ],
)
def test_a_leak_is_named(content: Content, site: str) -> None:
    """Exactly at the threshold content leaks, in bytes; the site names its place."""
    assert found(LIGHT, ChatMessage(Role.USER, content)) == Leak(site, LEAKS_THRESHOLD, LEAKS_THRESHOLD)


@each_row(
    "content",
    [
        Content("x" * (LEAKS_THRESHOLD - 1)),
        Content("é" * (LEAKS_THRESHOLD // 2 - 1) + "x"),
        Content(parts=[TextPart("x" * (LEAKS_THRESHOLD - 1))]),
        Content(parts=[ImagePart(data_url=data_url(LEAKS_THRESHOLD - 1))]),
        Content(parts=[FilePart(url="https://x/" + "y" * LEAKS_THRESHOLD)]),
        Content(),
    ],
)
def test_one_byte_below_the_threshold_passes(content: Content) -> None:
    """Decoded sizes count: an encoded URL may be longer than the threshold while its content is below it."""
    assert found(ChatMessage(Role.USER, content)) is None


@each_row("role", list(Role))
def test_every_role_is_looked_at(role: Role) -> None:
    """System messages are no exception."""
    assert found(ChatMessage(role, Content("x" * LEAKS_THRESHOLD))) is not None


def test_the_first_leak_counts() -> None:
    """Messages and parts are looked at in order."""
    heavy = ChatMessage(Role.USER, Content(parts=[TextPart("x" * LEAKS_THRESHOLD), TextPart("x" * 500)]))
    assert found(LIGHT, heavy, heavy) == Leak("Messages[1].Parts[0].Text", LEAKS_THRESHOLD, LEAKS_THRESHOLD)


def test_media_have_a_limit_of_their_own() -> None:
    """A model that takes more inline gets more; its texts stay under the threshold."""
    image = ChatMessage(Role.USER, Content(parts=[ImagePart(data_url=data_url(500))]))
    assert found(image, inline_limit=501) is None
    assert found(image, inline_limit=500) == Leak("Messages[0].Parts[0].Image.DataURL", 500, 500)
    assert found(ChatMessage(Role.USER, Content("x" * 500)), inline_limit=501) is not None


def test_only_the_places_given_are_looked_at() -> None:
    """Whoever knows where a leak may be spares the rest."""
    heavy = ChatMessage(Role.USER, Content("x" * LEAKS_THRESHOLD))
    assert find_leak([heavy, LIGHT, heavy], LEAKS_THRESHOLD, LEAKS_THRESHOLD, where=[1, 2]) == Leak(
        "Messages[2].Content.Text", LEAKS_THRESHOLD, LEAKS_THRESHOLD
    )
    assert find_leak([heavy], LEAKS_THRESHOLD, LEAKS_THRESHOLD, where=()) is None
