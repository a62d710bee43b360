"""The suite for model providers catches the faults it is there for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from harborage.llm import (
    CompleteRequest,
    CompleteResponse,
    ConfigSnapshot,
    Deps,
    IncompleteAnswerError,
    LLMClient,
    LLMError,
    MalformedAnswerError,
    ProviderError,
    ProviderUnavailableError,
    RateLimitedError,
)
from harborage.llm.openai_compat import make
from harborage.testing.clock import settle
from harborage.testing.conformance import llm as suite
from tests.kit.llm_dialects.chat import ChatDialect
from tests.kit.llm_server import LLMServer

pytestmark = pytest.mark.anyio


class Wrong:
    """A driver that does everything right, for a subclass to do one thing wrong."""

    def __init__(self, inner: LLMClient) -> None:
        self.inner = inner

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        return await self.inner.complete(request)

    async def close(self) -> None:
        await self.inner.close()


class TakesHalfAnAnswer(Wrong):
    """Takes what came of a broken stream for the answer."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        try:
            return await self.inner.complete(request)
        except IncompleteAnswerError:
            return CompleteResponse("half", finish_reason="stop")


class SkipsWhatItCannotRead(Wrong):
    """Leaves a broken piece out of the answer."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        try:
            return await self.inner.complete(request)
        except MalformedAnswerError:
            return CompleteResponse("some", finish_reason="stop")


class ForgetsTheEnd(Wrong):
    """Does not tell that nothing more comes."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        listen = request.on_content
        if listen is not None:
            request = msgspec.structs.replace(request, on_content=lambda delta, done: done or listen(delta, done))
        return await self.inner.complete(request)


class TellsTheEndTwice(Wrong):
    """Tells the end once more when the call has failed."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        try:
            return await self.inner.complete(request)
        except LLMError:
            if request.stream and request.on_content is not None:
                request.on_content("", True)
            raise


class DoesNotHangUp(Wrong):
    """Lets a cancelled call read on."""

    def __init__(self, inner: LLMClient) -> None:
        super().__init__(inner)
        self.calls: list[asyncio.Future[CompleteResponse]] = []

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        call = asyncio.ensure_future(self.inner.complete(request))
        self.calls.append(call)
        return await asyncio.shield(call)

    async def close(self) -> None:
        await self.inner.close()
        await asyncio.gather(*self.calls, return_exceptions=True)


class ShowsTheKey(Wrong):
    """Tells the whole request in its errors."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        try:
            return await self.inner.complete(request)
        except ProviderError as error:
            raise type(error)(f"{error} (Bearer {suite.KEY})", status=error.status) from None


class TakesEveryFailureForTheSame(Wrong):
    """Has one error for everything."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        try:
            return await self.inner.complete(request)
        except ProviderError as error:
            raise ProviderUnavailableError(str(error)) from error


class ForgetsTheWait(Wrong):
    """Does not say how long to wait."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        try:
            return await self.inner.complete(request)
        except RateLimitedError as error:
            raise RateLimitedError(str(error), status=429) from error


class SwallowsItsListener(Wrong):
    """Goes on when a listener raises."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        def listen(delta: str, done: bool) -> None:
            try:
                assert request.on_content is not None
                request.on_content(delta, done)
            except Exception:
                pass

        return await self.inner.complete(msgspec.structs.replace(request, on_content=listen))


class DoesNotStream(Wrong):
    """Tells the whole text at the end."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        answer = await self.inner.complete(msgspec.structs.replace(request, stream=False))
        if request.stream and request.on_content is not None:
            request.on_content(answer.content, False)
            request.on_content("", True)
        return answer


class MixesCallers(Wrong):
    """Remembers the last answer for everybody."""

    last: CompleteResponse | None = None

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        answer = await self.inner.complete(request)
        self.last, answer = answer, self.last or answer
        return answer


class ForgetsTheTools(Wrong):
    """Does not declare the tools."""

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        return await self.inner.complete(msgspec.structs.replace(request, tools=()))


class NeverCloses(Wrong):
    """Keeps its connections when it is closed."""

    async def close(self) -> None:
        self.inner._is_closed = True  # type: ignore[attr-defined]


CAUGHT = {
    TakesHalfAnAnswer: "a_stream_ends_too_soon",
    SkipsWhatItCannotRead: "a_piece_is_no_json",
    ForgetsTheEnd: "text_comes_in_pieces",
    TellsTheEndTwice: "the_server_fails",
    DoesNotHangUp: "a_cancelled_call_hangs_up",
    ShowsTheKey: "the_key_is_refused",
    TakesEveryFailureForTheSame: "the_prompt_is_too_long",
    ForgetsTheWait: "too_many_calls",
    SwallowsItsListener: "a_callback_that_raises",
    DoesNotStream: "text_comes_in_pieces",
    MixesCallers: "many_calls_at_once_stay_apart",
    ForgetsTheTools: "a_tool_is_called",
    NeverCloses: "text_comes_whole",
}


def opening(wrong: type[Wrong], left: list[Any]) -> Callable[[], Any]:
    def make_wrong(cfg: ConfigSnapshot, deps: Deps) -> LLMClient:
        inner = make(cfg, deps)
        left.append(inner)
        return wrong(inner)

    async def open_bench() -> suite.ProviderBench:
        def config(url: str) -> ConfigSnapshot:
            return ConfigSnapshot(provider="acme", model="acme/test-model", api_key=suite.KEY, base_url=url)

        return await suite.ProviderBench.open(make_wrong, LLMServer(ChatDialect()), config)

    return open_bench


@pytest.mark.parametrize(("wrong", "scenario"), CAUGHT.items(), ids=lambda one: getattr(one, "__name__", one))
async def test_a_wrong_driver_is_caught(wrong, scenario, monkeypatch):
    """A driver with one fault fails the scenario that is about it, and the right driver passes it."""
    named = {one.__name__: one for one in suite.SCENARIOS}
    left: list[Any] = []
    try:
        await suite.check(named[scenario], opening(Wrong, left))
        monkeypatch.setattr("tests.kit.llm_server._PATIENCE_S", 0.2)
        monkeypatch.setattr("harborage.testing.conformance.llm_bench._PATIENCE_S", 1.0)
        with pytest.raises(AssertionError):
            await suite.check(named[scenario], opening(wrong, left))
    finally:
        for driver in left:
            await driver._connection.close()
        await settle()  # the many connections of a driver are closed in the loop's next turns


async def test_the_whole_suite_reports_every_broken_promise():
    """Run as a whole, the suite names each scenario that failed."""
    left: list[Any] = []
    with pytest.raises(ExceptionGroup) as caught:
        await suite.run_conformance(opening(ForgetsTheTools, left))
    notes = "".join(note for error in caught.value.exceptions for note in error.__notes__)
    assert "a_tool_is_called" in notes
