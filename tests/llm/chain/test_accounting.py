"""Calls are reserved before they are sent and settled afterwards, and a governor may refuse them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from harborage.artifacts.memory import MemoryArtifactStore
from harborage.events.memory_bus import MemoryEventBus
from harborage.llm import (
    CallEstimate,
    ChatMessage,
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Content,
    Cost,
    Deps,
    Governor,
    LimitReachedError,
    ModelProfile,
    Role,
    Usage,
    accounting,
    current_account,
)
from harborage.llm.chain.accounting import Accounted, Governed
from harborage.llm.client import reported_usage, sum_of_counts
from harborage.llm.errors import BadRequestError, IncompleteAnswerError, ProviderUnavailableError
from harborage.llm.opening import count_calls

pytestmark = pytest.mark.anyio

DEPS = Deps(artifacts=MemoryArtifactStore(), bus=MemoryEventBus())
ASK = CompleteRequest(model="m", messages=[ChatMessage(Role.USER, Content(text="x" * 400))])
ANSWER = CompleteResponse("a", usage=Usage(prompt_tokens=100, completion_tokens=5), cost=Cost(total_cost=0.5))


class Model:
    """Answers, or raises, what it is given; remembers the account that it was called under."""

    def __init__(self, answer: CompleteResponse | BaseException = ANSWER) -> None:
        self.answer = answer
        self.accounts: list[Any] = []

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self.accounts.append(current_account())
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        return None


class Book:
    """An account that writes down what it is asked."""

    needs_price = False

    def __init__(self, refusal: Exception | None = None) -> None:
        self.events: list[Any] = []
        self._refusal = refusal

    async def reserve(self, estimate: Callable[[], CallEstimate]) -> str:
        self.events.append(estimate())
        if self._refusal is not None:
            raise self._refusal
        return "k"

    async def settle(self, key: str, *, tokens: int, cost: float) -> None:
        self.events.append((key, tokens, cost))

    def keep(self, key: str) -> None:
        self.events.append(key)


def layer(model: Model, **settings: Any) -> Accounted:
    return Accounted(
        model, ConfigSnapshot(**settings), DEPS, price_of=lambda _, usage: Cost(total_cost=usage.total_tokens)
    )


async def test_a_call_is_reserved_before_and_settled_after() -> None:
    """By the prompt and the longest answer before, by what the answer says after; without an account not at all."""
    book, model = Book(), Model()
    with accounting(book):
        assert await layer(model).complete(ASK) is ANSWER
    estimate, settled = book.events
    assert (estimate.model, settled) == ("m", ("k", 105, 0.5))
    assert 100 + 4096 <= estimate.tokens <= 120 + 4096
    assert estimate.cost == estimate.tokens
    await layer(model).complete(ASK)
    assert len(book.events) == 2


async def test_the_longest_answer_is_that_of_the_request_then_of_the_profile() -> None:
    """What limits the answer limits the estimate."""
    profiles = {"m": ModelProfile(context_window_tokens=8_000, default_max_tokens=50)}
    for request, settings, longest in (
        (CompleteRequest(model="m", max_tokens=7), {}, 7),
        (CompleteRequest(model="m"), {"profiles": profiles}, 50),
        (CompleteRequest(model="m"), {}, 4096),
    ):
        book = Book()
        with accounting(book):
            await layer(Model(), **settings).complete(request)
        assert book.events[0].tokens == longest


async def test_what_failed_took_nothing_unless_its_provider_may_charge_for_it() -> None:
    """A refusal is free; an answer that broke off and a call that was cut short count as they were reserved."""
    for error, events in (
        (BadRequestError("no"), ("k", 0, 0.0)),
        (ProviderUnavailableError("down"), ("k", 0, 0.0)),
        (IncompleteAnswerError("broke off"), "k"),
        (asyncio.CancelledError(), "k"),
    ):
        book = Book()
        with accounting(book), pytest.raises(type(error)):
            await layer(Model(error)).complete(ASK)
        assert book.events[1:] == [events], error


async def test_a_call_that_is_refused_is_not_made() -> None:
    """The account's error is raised, and the model is not called."""
    model = Model()
    with accounting(Book(LimitReachedError("cost"))), pytest.raises(LimitReachedError):
        await layer(model).complete(ASK)
    assert model.accounts == []


async def test_a_call_through_two_layers_is_counted_once() -> None:
    """What is inside does not draw on the account again, and a client that counts already is not wrapped."""
    book, model = Book(), Model()
    inside = layer(model)
    with accounting(book):
        await layer(inside).complete(ASK)  # type: ignore[arg-type]
    assert len(book.events) == 2
    assert model.accounts == [None]
    once = count_calls(Model(), DEPS)
    assert count_calls(once, DEPS) is once


async def test_usage_that_says_nothing_counts_as_it_was_reserved() -> None:
    """A provider that reports no usage, or one that cannot be, spends the estimate: no limit stays open for it."""
    for usage, cost, tokens, price in (
        (Usage(), 0.0, None, None),
        (Usage(prompt_tokens=-100, completion_tokens=-5, total_tokens=-105), 0.0, None, None),
        (Usage(prompt_tokens=100, completion_tokens=-5), -1.0, None, None),
        (Usage(), 1e9, None, 1e9),
        (Usage(prompt_tokens=100, completion_tokens=5, total_tokens=1), 0.5, 105, 0.5),
        (Usage(prompt_tokens=100, completion_tokens=5, total_tokens=300), 0.5, 300, 0.5),
        (Usage(total_tokens=7), float("nan"), 7, 7.0),
        (Usage(total_tokens=7), -3.0, 7, 7.0),
    ):
        book = Book()
        with accounting(book):
            await layer(Model(CompleteResponse("a", usage=usage, cost=Cost(total_cost=cost)))).complete(ASK)
        estimate, settled = book.events
        wanted = ("k", estimate.tokens if tokens is None else tokens, estimate.cost if price is None else price)
        assert settled == wanted, (usage, cost)


def test_a_usage_report_with_an_impossible_count_counts_nothing() -> None:
    """Negative counts, texts, lists, truth values and endless numbers void the report; what is left out is nothing."""
    for bad in (-1, "4000", [1], True, float("nan"), float("inf"), 10**30, {}):
        assert reported_usage(prompt=bad, completion=1) == Usage(), bad
        assert reported_usage(prompt=1, completion=1, total=bad) == Usage(), bad
        assert reported_usage(prompt=sum_of_counts(5, bad), completion=1) == Usage(), bad
    assert reported_usage(prompt=None, completion=3) == Usage(completion_tokens=3, total_tokens=3)
    assert reported_usage(prompt=sum_of_counts(4, None, 2), completion=3, total=1).total_tokens == 9


REQUEST = CompleteRequest(model="m", messages=[ChatMessage(Role.USER, Content("hi"))])
GOVERNANCE_ANSWER = CompleteResponse("inside")


class OverBudgetError(Exception):
    """No money left."""


class Books:
    """A governor that keeps its calls, and fails where the test says so."""

    def __init__(self, *, before: Exception | None = None, after: Exception | None = None) -> None:
        self.received: list[object] = []
        self._before, self._after = before, after

    async def pre_call(self, request: CompleteRequest) -> None:
        self.received.append(request)
        if self._before:
            raise self._before

    async def post_call(self, request: CompleteRequest, response: CompleteResponse) -> None:
        self.received.append(response)
        if self._after:
            raise self._after


class Inside:
    """A client that answers, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls = 0
        self._error = error

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        self.calls += 1
        if self._error:
            raise self._error
        return GOVERNANCE_ANSWER

    async def close(self) -> None:
        """Nothing is held."""


def governed(inside: Inside, governor: Governor | None) -> Governed:
    """A client under `governor`."""
    return Governed(inside, ConfigSnapshot(), Deps(artifacts=None, bus=None, governance=governor))


async def test_a_governor_is_called_for_every_call() -> None:
    """It is called before with the request, and after with the request and the answer."""
    books = Books()
    assert isinstance(books, Governor)
    assert await governed(Inside(), books).complete(REQUEST) is GOVERNANCE_ANSWER
    assert books.received == [REQUEST, GOVERNANCE_ANSWER]


async def test_a_refusal_stops_the_call() -> None:
    """What the governor raises before is raised as it is, and the client inside is not asked."""
    inside, error = Inside(), OverBudgetError("spent")
    with pytest.raises(OverBudgetError) as caught:
        await governed(inside, Books(before=error)).complete(REQUEST)
    assert caught.value is error
    assert inside.calls == 0


async def test_a_governor_that_fails_afterwards_costs_nothing(caplog) -> None:
    """The answer is given all the same, and the failure is logged."""
    assert await governed(Inside(), Books(after=OverBudgetError("spent"))).complete(REQUEST) is GOVERNANCE_ANSWER
    assert "the governor failed after a call of m: spent" in caplog.text


async def test_a_failed_call_is_not_reported() -> None:
    """The governor learns only of calls that succeeded; the failure passes untouched."""
    books = Books()
    with pytest.raises(ValueError, match="broken"):
        await governed(Inside(ValueError("broken")), books).complete(REQUEST)
    assert books.received == [REQUEST]


async def test_without_a_governor_every_call_passes() -> None:
    """The layer is empty then."""
    assert await governed(Inside(), None).complete(REQUEST) is GOVERNANCE_ANSWER
