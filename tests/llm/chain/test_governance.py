"""A governor may refuse a call, and hears of those that succeeded."""

from __future__ import annotations

import pytest

from harborage.llm import ChatMessage, CompleteRequest, CompleteResponse, ConfigSnapshot, Content, Deps, Governor, Role
from harborage.llm.chain.governance import Governed

pytestmark = pytest.mark.anyio

REQUEST = CompleteRequest(model="m", messages=[ChatMessage(Role.USER, Content("hi"))])
ANSWER = CompleteResponse("inside")


class OverBudgetError(Exception):
    """No money left."""


class Books:
    """A governor that writes down what it hears, and fails where it is told to."""

    def __init__(self, *, before: Exception | None = None, after: Exception | None = None) -> None:
        self.heard: list[object] = []
        self._before, self._after = before, after

    async def pre_call(self, request: CompleteRequest) -> None:
        self.heard.append(request)
        if self._before:
            raise self._before

    async def post_call(self, request: CompleteRequest, response: CompleteResponse) -> None:
        self.heard.append(response)
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
        return ANSWER

    async def close(self) -> None:
        """Nothing is held."""


def governed(inside: Inside, governor: Governor | None) -> Governed:
    """A client under `governor`."""
    return Governed(inside, ConfigSnapshot(), Deps(artifacts=None, bus=None, governance=governor))


async def test_a_governor_hears_of_every_call() -> None:
    """It is asked before and told after, with the request and the answer."""
    books = Books()
    assert isinstance(books, Governor)
    assert await governed(Inside(), books).complete(REQUEST) is ANSWER
    assert books.heard == [REQUEST, ANSWER]


async def test_a_refusal_stops_the_call() -> None:
    """What the governor raises before is raised as it is, and the client inside is not asked."""
    inside, error = Inside(), OverBudgetError("spent")
    with pytest.raises(OverBudgetError) as caught:
        await governed(inside, Books(before=error)).complete(REQUEST)
    assert caught.value is error
    assert inside.calls == 0


async def test_a_governor_that_fails_afterwards_costs_nothing(caplog) -> None:
    """The answer is given all the same, and the failure is logged."""
    assert await governed(Inside(), Books(after=OverBudgetError("spent"))).complete(REQUEST) is ANSWER
    assert "the governor failed after a call of m: spent" in caplog.text


async def test_a_failed_call_is_not_told() -> None:
    """The governor hears only of calls that succeeded; the failure passes untouched."""
    books = Books()
    with pytest.raises(ValueError, match="broken"):
        await governed(Inside(ValueError("broken")), books).complete(REQUEST)
    assert books.heard == [REQUEST]


async def test_without_a_governor_every_call_passes() -> None:
    """The layer is empty then."""
    assert await governed(Inside(), None).complete(REQUEST) is ANSWER
