"""Every answer gets its time, its tokens and its price, estimated where nothing is reported."""

from __future__ import annotations

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from harborage.events import LLMCost, LLMCostRecordedPayload, LLMUsage, MemoryEventBus
from harborage.identity import Quadruple, bound
from harborage.llm import (
    ChatMessage,
    ClientClosedError,
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Content,
    CorrectionsProfile,
    Cost,
    CostOverrides,
    Deps,
    ImagePart,
    LLMConfigError,
    ModelProfile,
    RateLimitedError,
    Role,
    TextPart,
    ToolCallStructured,
    ToolDeclaration,
    Usage,
    accounting,
)
from harborage.llm.chain.accounting import Metered, backfill_usage, cost_from_overrides
from harborage.llm.chain.corrections import Correcting
from harborage.llm.prices import Prices
from harborage.testing.clock import FakeClock, settle
from harborage.testing.events import EventRecorder
from harborage.testing.llm import ScriptedLLM
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
USAGE = Usage(prompt_tokens=1000, completion_tokens=500, total_tokens=1500)
REPORTED = Cost(input_cost=0.1, output_cost=0.2, total_cost=0.3, currency="EUR")
OVERRIDES = CostOverrides(input_per_million=1000.0, output_per_million=2000.0, currency="CHF")


class Bench:
    """A metered client over a script, and its events."""

    def __init__(self, *script, profile: ModelProfile | None = None, prices: Prices | None = None, **settings) -> None:
        self.clock = FakeClock()
        self.inner = ScriptedLLM(script)
        self.bus = MemoryEventBus()
        self.published = EventRecorder(self.bus)
        profiles = {} if profile is None else {"gpt-4o": profile}
        cfg = ConfigSnapshot(**{"provider": "openai", "model": "gpt-4o", "profiles": profiles, **settings})
        self.deps = Deps(artifacts=None, bus=self.bus, clock=self.clock)
        self.cfg = cfg
        self.client = Metered(self.inner, cfg, self.deps, prices=prices)

    async def ask(self, **fields) -> CompleteResponse:
        """A call."""
        with bound(WHO):
            return await self.client.complete(CompleteRequest(**fields))

    @property
    def events(self) -> list[LLMCostRecordedPayload]:
        return self.published.payloads(LLMCostRecordedPayload)


def profile(**fields) -> ModelProfile:
    """A profile of a small model."""
    return ModelProfile(context_window_tokens=4096, **fields)


async def test_a_call_is_priced_by_the_table():
    """An answer gets the listed price of its tokens, and the event says the same."""
    bench = Bench(CompleteResponse("hi", usage=USAGE), profile=profile())
    answer = await bench.ask()
    assert answer.content == "hi"
    assert answer.cost.total_cost == pytest.approx(0.0075)
    [event] = bench.events
    assert (event.identity, event.model, event.context_window_tokens) == (WHO, "gpt-4o", 4096)
    assert event.cost.total_cost == answer.cost.total_cost
    assert event.cost.currency == "USD"
    assert event.usage == LLMUsage(prompt_tokens=1000, completion_tokens=500, total_tokens=1500)
    assert event.occurred_at == bench.clock.now()


async def test_the_model_of_the_request_counts():
    """A request that names a model is priced as that one."""
    bench = Bench(CompleteResponse("hi", usage=USAGE), CompleteResponse("hi", usage=USAGE))
    cheap = await bench.ask(model="gpt-4o-mini")
    dear = await bench.ask()
    assert 0 < cheap.cost.total_cost < dear.cost.total_cost
    assert [event.model for event in bench.events] == ["gpt-4o-mini", "gpt-4o"]


async def test_what_the_provider_reports_wins():
    """A cost that came with the answer is neither recomputed nor converted."""
    bench = Bench(CompleteResponse("hi", usage=USAGE, cost=REPORTED), profile=profile(cost_overrides=OVERRIDES))
    assert (await bench.ask()).cost is REPORTED
    assert bench.events[0].cost == LLMCost(
        input_tokens_cost=0.1, output_tokens_cost=0.2, total_cost=0.3, currency="EUR"
    )


async def test_the_operators_prices_win_over_the_table():
    """Overrides in the profile decide what a listed model costs."""
    bench = Bench(CompleteResponse("hi", usage=USAGE), profile=profile(cost_overrides=OVERRIDES))
    assert (await bench.ask()).cost == Cost(input_cost=1.0, output_cost=1.0, total_cost=2.0, currency="CHF")


async def test_a_free_call_is_recorded():
    """An unknown model and a machine nearby cost nothing, and the event is there all the same."""
    for bench in (
        Bench(CompleteResponse("hi", usage=USAGE), model="unheard-of"),
        Bench(CompleteResponse("hi", usage=USAGE), base_url="http://127.0.0.1:1/v1"),
    ):
        assert (await bench.ask()).cost == Cost()
        assert bench.events[0].cost == LLMCost()


async def test_the_time_a_call_took():
    """Latency is measured on the injected clock, in milliseconds, and not taken from the driver."""
    bench: Bench

    def slowly(request: CompleteRequest) -> CompleteResponse:
        bench.clock.advance(1.25)
        return CompleteResponse("hi", usage=Usage(latency_ms=7))

    bench = Bench(slowly)
    assert (await bench.ask()).usage.latency_ms == 1250
    assert bench.events[0].usage.latency_ms == 1250


async def test_a_failed_call_is_not_recorded():
    """An error comes out as it is, and costs nothing that we know of."""
    error = RateLimitedError("slow")
    bench = Bench(error)
    with pytest.raises(RateLimitedError) as caught:
        await bench.ask()
    assert caught.value is error
    assert bench.events == []


async def test_what_else_the_provider_counts_is_recorded():
    """Extras are in the event as they came; none are left out rather than empty."""
    bench = Bench(CompleteResponse("hi", usage=Usage(provider_extras={"cached_tokens": 3})), CompleteResponse("hi"))
    await bench.ask()
    await bench.ask()
    assert [event.usage.provider_extras for event in bench.events] == [{"cached_tokens": 3}, None]


async def test_estimated_usage_is_recorded():
    """A provider that counts nothing is recorded with the estimate, which the layer of corrections leaves as it is."""
    known = profile(corrections=CorrectionsProfile(usage_backfill=True), cost_overrides=OVERRIDES)
    bench = Bench("y" * 40, profile=known)
    with bound(WHO):
        question = CompleteRequest(messages=[ChatMessage(Role.USER, Content("x" * 40))])
        answer = await Correcting(bench.client, bench.cfg, bench.deps).complete(question)
    [event] = bench.events
    assert (event.usage.prompt_tokens, event.usage.completion_tokens) == (11, 10)
    assert event.cost.total_cost == answer.cost.total_cost == pytest.approx(0.011 + 0.02)


@pytest.mark.parametrize("settings", [{"disable_corrections": True}, {}])
async def test_estimates_need_the_profiles_word(settings):
    """Nothing is estimated where corrections are switched off, or the profile does not ask for it."""
    wanted = CorrectionsProfile(usage_backfill=bool(settings))
    bench = Bench("y" * 40, profile=profile(corrections=wanted), **settings)
    assert (await bench.ask()).usage.prompt_tokens == 0


async def test_the_table_is_read_beside_the_first_calls():
    """The table is read once, in a thread, while the first calls are under way; all of them are priced."""
    threads: list[str] = []

    class Watched(Prices):
        def load(self) -> None:
            threads.append(threading.current_thread().name)
            super().load()

    bench = Bench(CompleteResponse("hi", usage=USAGE), prices=Watched("openai"))

    async def one(number: int) -> float:
        with bound(Quadruple("t", "u", "s", f"r-{number}")):
            return (await bench.client.complete(CompleteRequest())).cost.total_cost

    costs = await asyncio.gather(*map(one, range(128)))
    assert costs == pytest.approx([0.0075] * 128)
    assert len(threads) == 1
    assert threads[0] != threading.current_thread().name
    assert sorted(event.identity.run_id for event in bench.events) == sorted(f"r-{number}" for number in range(128))


async def test_a_cancelled_first_call():
    """A call that is cancelled while the table is read does not keep the others from it."""
    may_go_on = threading.Event()

    class Slow(Prices):
        def load(self) -> None:
            may_go_on.wait()
            super().load()

    bench = Bench(CompleteResponse("hi", usage=USAGE), CompleteResponse("hi", usage=USAGE), prices=Slow("openai"))
    first, second = asyncio.ensure_future(bench.ask()), asyncio.ensure_future(bench.ask())
    await settle()
    assert len(bench.inner.requests) == 2
    first.cancel()
    await asyncio.wait([first])
    may_go_on.set()
    assert (await second).cost.total_cost == pytest.approx(0.0075)
    assert first.cancelled()


async def test_closing():
    """Closing closes the client inside, and nothing is asked afterwards; a layer around nothing is refused."""
    bench = Bench("ok")
    await bench.client.close()
    assert bench.inner.is_closed
    with pytest.raises(ClientClosedError):
        await bench.ask()
    with pytest.raises(LLMConfigError):
        Metered(None, ConfigSnapshot(), Deps(artifacts=None, bus=None))


BACKFILL_OVERRIDES = CostOverrides(input_per_million=2.0, output_per_million=10.0, currency="EUR")


def asked(*contents: Content) -> CompleteRequest:
    """A request of user messages with these contents."""
    return CompleteRequest(messages=[ChatMessage(Role.USER, content) for content in contents])


@each_row("usage", [Usage(1), Usage(completion_tokens=1), Usage(total_tokens=1)])
def test_what_was_reported_stays(usage):
    """A single count above zero means that the provider counts, so nothing is estimated."""
    answer = CompleteResponse("hello", usage=usage)
    assert backfill_usage(asked(Content("question")), answer, BACKFILL_OVERRIDES) is answer


def test_the_estimate():
    """A message counts 1 and a quarter of its bytes, an answer a quarter of its bytes; the total is their sum."""
    answer = backfill_usage(asked(Content("x" * 10), Content("ä" * 10)), CompleteResponse("y" * 9), None)
    assert answer.usage == Usage(prompt_tokens=(1 + 2) + (1 + 5), completion_tokens=2, total_tokens=11)


def test_parts():
    """A text part counts like a text, every other part 16."""
    parts = Content(parts=[TextPart("x" * 8), ImagePart(url="u"), TextPart("")])
    assert backfill_usage(asked(parts), CompleteResponse(), None).usage.prompt_tokens == 3 + 16 + 1


def test_tools_count():
    """Declared tools and calls of tools are part of what is sent and written."""
    call = ToolCallStructured("c", "echo", b'{"a":1}')
    messages = [ChatMessage(Role.ASSISTANT, tool_calls=[call])]
    request = CompleteRequest(messages=messages, tools=[ToolDeclaration("echo", "says it", {"type": "object"})])
    without = CompleteRequest(messages=[ChatMessage(Role.ASSISTANT, Content(""))])
    answer = backfill_usage(request, CompleteResponse(tool_calls=[call]), None)
    assert answer.usage.prompt_tokens > backfill_usage(without, CompleteResponse(), None).usage.prompt_tokens
    assert answer.usage.completion_tokens == len('echo{"a":1}') // 4


def test_the_price_of_an_estimate():
    """An estimate is priced with the operator's prices, where there are any and no price was reported."""
    request, answer = asked(Content("x" * 400)), CompleteResponse("y" * 400)
    assert backfill_usage(request, answer, None).cost == Cost()
    assert backfill_usage(request, answer, BACKFILL_OVERRIDES).cost == Cost(
        input_cost=101 * 2e-6, output_cost=100 * 1e-5, total_cost=101 * 2e-6 + 100 * 1e-5, currency="EUR"
    )
    reported = Cost(total_cost=0.5, currency="USD")
    assert backfill_usage(request, CompleteResponse("y", cost=reported), BACKFILL_OVERRIDES).cost is reported


def test_the_currency():
    """Overrides without a currency are in US dollars."""
    assert cost_from_overrides(Usage(1, 1), CostOverrides(currency="")).currency == "USD"


def test_other_counts_are_kept():
    """Latency and the provider's other counts stay beside the estimate."""
    answer = CompleteResponse("x", usage=Usage(latency_ms=7, provider_extras={"a": 1}))
    usage = backfill_usage(asked(), answer, None).usage
    assert (usage.latency_ms, usage.provider_extras) == (7, {"a": 1})


@given(st.lists(st.text(), max_size=5), st.text())
def test_the_sum_holds(texts, content):
    """For every conversation the total is the sum, and no message counts less than one."""
    usage = backfill_usage(asked(*map(Content, texts)), CompleteResponse(content), None).usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens >= len(texts)


async def test_a_call_names_the_step_of_the_run_that_makes_it():
    """Of no other run, and none where the step is not known."""
    bench = Bench(*(CompleteResponse("hi", usage=USAGE) for _ in range(4)))
    await bench.ask()
    with accounting(None, (WHO.run_id, 3)):
        await bench.ask()
        with accounting(None):
            await bench.ask()
    with accounting(None, ("another-run", 3)):
        await bench.ask()
    assert [event.step for event in bench.events] == [UNSET, 3, 3, UNSET]
