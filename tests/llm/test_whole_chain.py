"""The whole chain at once: many callers, each with an identity, an answer and a stream of their own."""

from __future__ import annotations

import asyncio
import threading

import pytest

from harborage.artifacts import ArtifactScope, MemoryArtifactStore
from harborage.drivers import DriverTable
from harborage.events import (
    BusConfig,
    LLMCostRecordedPayload,
    LLMModeDowngradedPayload,
    LLMRetryWithFeedbackPayload,
    MemoryEventBus,
)
from harborage.identity import Quadruple, bound, effective_quadruple
from harborage.llm import (
    ChatMessage,
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Content,
    ContextLeakError,
    ContextWindowExceededError,
    CorrectionsProfile,
    Deps,
    ImagePart,
    InvalidJSONSchemaError,
    LLMClient,
    ModelProfile,
    ProviderUnavailableError,
    ResponseFormat,
    ResponseFormatKind,
    Role,
    TextPart,
    open_llm,
)
from harborage.testing.clock import FakeClock, settle
from harborage.testing.events import EventRecorder

pytestmark = pytest.mark.anyio

MANY = 128
SCHEMA = ResponseFormat(ResponseFormatKind.JSON_SCHEMA, b'{"type":"object"}')
IMAGE = ImagePart(data_url="data:image/png;base64,iVBORw0KGgo" + "A" * 400 + "=")


class Driver:
    """Answers each caller with its own run and text, in two pieces, after all other calls have begun."""

    def __init__(self, *, fails: tuple[Exception, ...] = ()) -> None:
        self.seen: list[tuple[Quadruple, CompleteRequest]] = []
        self._fails = list(fails)
        self.gate: asyncio.Event | None = None

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        who = effective_quadruple()
        assert who is not None
        self.seen.append((who, request))
        if self._fails:
            raise self._fails.pop(0)
        if self.gate is not None:
            await self.gate.wait()
        pieces = [f"{who.run_id}:", text_of(request.messages[-1])]
        for piece in pieces:
            if request.stream and request.on_content:
                request.on_content(piece, False)
            await asyncio.sleep(0)
        if request.stream and request.on_content:
            request.on_content("", True)
        return CompleteResponse("".join(pieces), finish_reason="stop")

    async def close(self) -> None:
        """Nothing is held."""


def text_of(message: ChatMessage) -> str:
    """The text of a message, its first part's when it has parts."""
    if message.content.text is not None:
        return message.content.text
    return next(part.text for part in message.content.parts or () if isinstance(part, TextPart))


class Bench:
    """A client over a driver, its events, and its stored artifacts."""

    def __init__(self, driver: Driver | None = None, **profile) -> None:
        self.driver = driver or Driver()
        self.clock, self.store = FakeClock(), MemoryArtifactStore()
        self.bus = MemoryEventBus(config=BusConfig(subscriber_buffer_size=10_000))
        self.published = EventRecorder(self.bus)
        self._profile = ModelProfile(**{"context_window_tokens": 10_000, "output_mode": "native", **profile})

    async def open(self) -> LLMClient:
        """The client."""
        cfg = ConfigSnapshot(driver="test", model="m", heavy_output_threshold=200, profiles={"m": self._profile})
        table = DriverTable("llm", {"test": lambda cfg, deps: self.driver})
        deps = Deps(artifacts=self.store, bus=self.bus, clock=self.clock, random=lambda: 0.0)
        return await open_llm(cfg, deps, drivers=table)


def who(at: int) -> Quadruple:
    """The identity of the caller at this place."""
    return Quadruple(f"t{at % 4}", f"u{at}", f"s{at}", f"r{at}")


def asks(text: str, **fields) -> CompleteRequest:
    """A request for one text."""
    return CompleteRequest(messages=[ChatMessage(Role.USER, Content(text))], **fields)


async def call(client: LLMClient, at: int, request: CompleteRequest) -> CompleteResponse:
    """One caller's call."""
    with bound(who(at)):
        return await client.complete(request)


async def test_many_callers_at_once() -> None:
    """Each driver call sees its own identity, each caller gets its own answer and chunks, each event its own caller."""
    bench = Bench()
    client = await bench.open()
    bench.driver.gate = asyncio.Event()
    received: list[list[str]] = [[] for _ in range(MANY)]
    tasks_before = len(asyncio.all_tasks())
    calls = [
        asyncio.ensure_future(
            call(client, at, asks(f"text {at}", stream=True, on_content=lambda d, done, at=at: received[at].append(d)))
        )
        for at in range(MANY)
    ]
    while len(bench.driver.seen) < MANY:
        await settle()
    bench.driver.gate.set()
    answers = await asyncio.gather(*calls)
    assert [answer.content for answer in answers] == [f"r{at}:text {at}" for at in range(MANY)]
    assert received == [[f"r{at}:", f"text {at}", ""] for at in range(MANY)]
    assert {seen: text_of(request.messages[0]) for seen, request in bench.driver.seen} == {
        who(at): f"text {at}" for at in range(MANY)
    }
    recorded = bench.published.payloads(LLMCostRecordedPayload)
    assert sorted(one.identity.run_id for one in recorded) == sorted(f"r{at}" for at in range(MANY))
    assert all(event.identity == event.payload.identity for event in bench.published.events)
    await client.close()
    assert len(asyncio.all_tasks()) == tasks_before
    assert bench.clock.armed == 0


async def test_many_callers_with_images_of_their_own() -> None:
    """Each heavy image is stored in its caller's scope, and in no other."""
    bench = Bench()
    client = await bench.open()
    message = ChatMessage(Role.USER, Content(parts=[TextPart("see"), IMAGE]))
    await asyncio.gather(*(call(client, at, CompleteRequest(messages=[message])) for at in range(MANY)))
    for at in range(MANY):
        assert len(await bench.store.list(ArtifactScope(who(at).tenant_id, f"u{at}", f"s{at}", f"r{at}"))) == 1
    assert message.content.parts == (TextPart("see"), IMAGE)


async def test_one_cancelled_call_leaves_the_others() -> None:
    """Every other call ends as if nothing had happened; the cancelled one surfaces as a cancellation."""
    bench = Bench()
    client = await bench.open()
    bench.driver.gate = asyncio.Event()
    calls = [asyncio.ensure_future(call(client, at, asks("x"))) for at in range(8)]
    while len(bench.driver.seen) < 8:
        await settle()
    calls[3].cancel()
    await settle()
    bench.driver.gate.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results[3], asyncio.CancelledError)
    assert [one.content for at, one in enumerate(results) if at != 3] == [f"r{at}:x" for at in range(8) if at != 3]


async def test_no_thread_is_left() -> None:
    """Calls and closing start no threads that stay busy."""
    bench = Bench()
    client = await bench.open()
    await call(client, 0, asks("x"))
    before = threading.active_count()
    await asyncio.gather(*(call(client, at, asks("x")) for at in range(MANY)))
    assert threading.active_count() <= before
    await client.close()


async def test_a_retry_runs_a_whole_ladder() -> None:
    """A validator that refuses twice over a driver that refuses schemas: each attempt steps down anew."""
    refused = InvalidJSONSchemaError("invalid schema")
    bench = Bench(Driver(fails=(refused,)), max_retries=1)
    client = await bench.open()
    answers: list[str] = []

    def only_second(response: CompleteResponse) -> None:
        answers.append(response.content)
        if len(answers) < 2:
            raise ValueError("not yet")

    request = asks("x", response_format=SCHEMA, validator=only_second)
    await call(client, 1, request)
    assert len(request.messages) == 1
    assert len(bench.driver.seen) == 3
    assert [one.to_mode for one in bench.published.payloads(LLMModeDowngradedPayload)] == ["prompted"]
    assert [one.attempt for one in bench.published.payloads(LLMRetryWithFeedbackPayload)] == [1]
    kinds = [seen.response_format.kind for _, seen in bench.driver.seen if seen.response_format]
    assert kinds == [ResponseFormatKind.JSON_SCHEMA, ResponseFormatKind.JSON_OBJECT, ResponseFormatKind.JSON_SCHEMA]


@pytest.mark.parametrize(
    ("text", "error"), [("x" * 200, ContextLeakError), ("y" * 190, ContextWindowExceededError)], ids=["leak", "window"]
)
async def test_what_safety_refuses_crosses_retry_and_downgrade(text: str, error: type[Exception]) -> None:
    """It is neither retried nor stepped down from, and nothing reaches the driver."""
    bench = Bench(context_window_tokens=40, corrections=CorrectionsProfile())
    client = await bench.open()
    with pytest.raises(error):
        await call(client, 1, asks(text, response_format=SCHEMA, validator=lambda response: None))
    assert not bench.driver.seen
    assert not bench.published.payloads(LLMModeDowngradedPayload)
    assert not bench.published.payloads(LLMRetryWithFeedbackPayload)


async def test_a_broken_connection_is_tried_again_inside() -> None:
    """The transport's retry is the driver's neighbour: one price, one answer, and no other layer notices."""
    bench = Bench(Driver(fails=(ProviderUnavailableError("overloaded"),)))
    client = await bench.open()
    waiting = asyncio.ensure_future(call(client, 1, asks("x")))
    await bench.clock.run_for(10)
    assert (await waiting).content == "r1:x"
    assert len(bench.driver.seen) == 2
    assert len(bench.published.payloads(LLMCostRecordedPayload)) == 1
