"""What every driver of a model provider must do. Pass a function that opens a bench:

    async def open_bench():
        return await ProviderBench.open(make, MyServer(), lambda url: ConfigSnapshot(base_url=url, api_key=KEY, …))

    await run_conformance(open_bench)

or one test a scenario: `@pytest.mark.parametrize("scenario", SCENARIOS)` and `await check(scenario, open_bench)`.
`MyServer` is a `ModelServer`: it speaks the provider's protocol on loopback and does what its script says. After each
fault the same holds: the error is typed and says whether the call may be repeated, the callback got `done` once, no
connection is kept busy, and the driver serves the next call.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from harborage.llm import (
    AuthenticationFailedError,
    CompleteRequest,
    ConnectionFailedError,
    ContextOverflowError,
    IncompleteAnswerError,
    InvalidJSONSchemaError,
    LLMClient,
    LLMError,
    MalformedAnswerError,
    ModelNotFoundError,
    ProviderError,
    ProviderTimeoutError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitedError,
    Retry,
)
from harborage.testing.conformance.checks import ConformanceError, check_scenario, expect, expect_equal, run_scenarios
from harborage.testing.conformance.llm_answers import ANSWERS
from harborage.testing.conformance.llm_bench import (
    KEY,
    Ability,
    Answer,
    Break,
    DeltaRecorder,
    Failure,
    Line,
    ProviderBench,
    Refusal,
    Silence,
    make_request,
)
from harborage.testing.conformance.llm_bench import ModelServer as ModelServer

TEXT = "The sum of two and three is five, as children know."


async def expect_error(
    bench: ProviderBench, request: CompleteRequest, kinds: tuple[type[LLMError], ...], what: str, **more: Any
) -> LLMError:
    """Return the error of a call that must fail with one of these types; its text must not show the key."""
    try:
        answer = await bench.complete(request, **more)
    except kinds as error:
        expect(KEY not in f"{error}{error!r}{error.__dict__}", f"{what}: the error does not show the key")
        return error
    except Exception as error:
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise ConformanceError(f"{what}: raised {type(error).__name__} ({error}), expected {wanted}") from error
    raise ConformanceError(f"{what}: returned {answer!r}, expected an error")


async def check_fault(
    bench: ProviderBench, line: Line, *kinds: type[LLMError], retry: Retry | None = None, stream: bool = True
) -> tuple[LLMError, DeltaRecorder]:
    """Let one call fail by `line`, check all that holds after a fault, and that the next call is answered."""
    deltas = DeltaRecorder()
    bench.server.script(line)
    what = f"stream={stream}"
    error = await expect_error(bench, make_request(stream=stream, on_content=deltas), kinds, what)
    if retry is not None:
        expect_equal(getattr(error, "retry", Retry.NEVER), retry, "whether the call may be repeated")
    expect_equal((deltas.done, deltas.late), (1, 0) if stream else (0, 0), "calls with done, and pieces after it")
    await bench.wait_until_idle()
    bench.server.script("It works.")
    expect_equal((await bench.complete(make_request(stream=stream))).content, "It works.", "the next call")
    return error, deltas


async def check_refusal(bench: ProviderBench, refusal: Refusal, kind: type[LLMError], retry: Retry) -> LLMError:
    """Return the error for a refusal, which is the same for a streamed and for a plain call."""
    await check_fault(bench, refusal, kind, retry=retry, stream=False)
    error, deltas = await check_fault(bench, refusal, kind, retry=retry)
    expect_equal(deltas.pieces, [], "the streamed text of a refused call")
    return error


async def too_many_calls(bench: ProviderBench) -> None:
    """A rate limit may be waited out, for as long as the provider says."""
    refusal = Refusal(failure=Failure.RATE_LIMITED, retry_after="7")
    error = await check_refusal(bench, refusal, RateLimitedError, Retry.SAFE)
    expect_equal((getattr(error, "status", 0), getattr(error, "retry_after_s", 0)), (429, 7.0), "status and wait")


async def the_server_fails(bench: ProviderBench) -> None:
    """A failure on the provider's side may be tried again."""
    for failure in (Failure.SERVER_ERROR, Failure.OVERLOADED):
        await check_refusal(bench, Refusal(failure=failure), ProviderUnavailableError, Retry.SAFE)


async def the_key_is_refused(bench: ProviderBench) -> None:
    """A refused key is no reason to try again, and its text is not repeated, even if the server does."""
    refusal = Refusal(failure=Failure.BAD_KEY, says=f"You sent {KEY}.")
    await check_refusal(bench, refusal, AuthenticationFailedError, Retry.NEVER)
    expect(all(KEY in str(request.headers) for request in bench.server.requests), "the key reaches the server")


async def the_model_is_unknown(bench: ProviderBench) -> None:
    """A model that the provider does not know is named in the error."""
    error = await check_refusal(bench, Refusal(failure=Failure.UNKNOWN_MODEL), ModelNotFoundError, Retry.NEVER)
    expect(bench.config.model in str(error), "the error names the model")


async def the_prompt_is_too_long(bench: ProviderBench) -> None:
    """A prompt that does not fit the window is an error of its own."""
    await check_refusal(bench, Refusal(failure=Failure.CONTEXT_OVERFLOW), ContextOverflowError, Retry.NEVER)


async def there_is_no_credit(bench: ProviderBench) -> None:
    """An empty account is no rate limit: waiting does not help."""
    await check_refusal(bench, Refusal(failure=Failure.NO_CREDIT), QuotaExceededError, Retry.NEVER)


async def a_schema_is_refused(bench: ProviderBench) -> None:
    """A schema that the provider does not take lets a weaker mode be tried."""
    if bench.can(Ability.STRUCTURED):
        await check_refusal(bench, Refusal(failure=Failure.BAD_SCHEMA), InvalidJSONSchemaError, Retry.NEVER)


async def the_request_is_refused(bench: ProviderBench) -> None:
    """The error for any other refusal has the provider's own text."""
    refusal = Refusal(failure=Failure.BAD_REQUEST, says="because-of-the-weather")
    error = await check_refusal(bench, refusal, ProviderError, Retry.NEVER)
    expect("because-of-the-weather" in str(error), "the error has the provider's text")


async def a_stream_ends_too_soon(bench: ProviderBench) -> None:
    """A stream that ends properly, but before the model has finished, is a failed call."""
    line = Answer(content=TEXT, broken=Break.TRUNCATED)
    _, deltas = await check_fault(bench, line, IncompleteAnswerError, retry=Retry.SAFE)
    expect(TEXT.startswith(deltas.text) and deltas.text != TEXT, "the streamed text is the beginning")


async def a_stream_ends_before_it_begins(bench: ProviderBench) -> None:
    """A stream without any text is a failed call, not an empty answer."""
    await check_fault(
        bench, Answer(content=TEXT, broken=Break.TRUNCATED, after=0), IncompleteAnswerError, retry=Retry.SAFE
    )


async def the_connection_breaks(bench: ProviderBench) -> None:
    """A connection that breaks in the middle of an answer is a failed call, streamed or not."""
    line = Answer(content=TEXT, broken=Break.DROPPED)
    for stream in (True, False):
        await check_fault(bench, line, ConnectionFailedError, IncompleteAnswerError, retry=Retry.SAFE, stream=stream)


async def a_piece_is_no_json(bench: ProviderBench) -> None:
    """A piece that cannot be read ends the call, rather than being left out of the answer."""
    for stream in (True, False):
        line = Answer(content=TEXT, broken=Break.MALFORMED)
        await check_fault(bench, line, MalformedAnswerError, retry=Retry.SAFE, stream=stream)


async def the_server_fails_in_the_middle(bench: ProviderBench) -> None:
    """A failure that the provider reports inside an answer is an error like any other."""
    if bench.can(Ability.ERROR_IN_STREAM):
        line = Answer(content=TEXT, broken=Break.FAILED)
        await check_fault(bench, line, ProviderUnavailableError, retry=Retry.SAFE)


async def the_answer_does_not_begin(bench: ProviderBench) -> None:
    """A server that accepts a call and does not answer is given up after the first-byte timeout."""
    for stream in (True, False):
        await _timed_out(bench, Silence(), bench.config.transport.first_byte_timeout_s, stream=stream)


async def the_answer_does_not_go_on(bench: ProviderBench) -> None:
    """A stream that stalls is given up after the idle timeout, and not before."""
    await _timed_out(
        bench, Answer(content=TEXT, broken=Break.STALLED), bench.config.transport.idle_timeout_s, has_begun=True
    )


async def _timed_out(
    bench: ProviderBench, line: Line, seconds: float, *, stream: bool = True, has_begun: bool = False
) -> None:
    deltas = DeltaRecorder()
    bench.server.script(line)
    number = len(bench.server.requests) + 1
    call = bench.begin(make_request(stream=stream, on_content=deltas))
    await _arrived(bench, number)
    if has_begun:
        await deltas.first.wait()
    await bench.clock.run_for(seconds * 0.9)
    expect(not call.done(), f"the call waits for {seconds * 0.9:g} s")
    await bench.pass_time(seconds, call)
    error = (await asyncio.gather(call, return_exceptions=True))[0]
    expect(isinstance(error, ProviderTimeoutError), f"a call that takes too long ends in {error!r}")
    expect_equal(getattr(error, "retry", None), Retry.SAFE, "whether the call may be repeated")
    expect_equal(deltas.done, 1 if stream else 0, "calls with done")
    await bench.wait_until_idle()


async def _arrived(bench: ProviderBench, number: int) -> None:
    await bench.server.until(lambda server: len(server.requests) >= number, "the call reaches the server")


async def no_server_is_there(bench: ProviderBench) -> None:
    """A server that does not run gives an error of its own."""
    with socket.socket() as taken:
        # Bound and not listening: no other process gets the port, and it refuses connections.
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        address = urlsplit(bench.server.base_url())._replace(netloc=f"127.0.0.1:{port}")
        driver: LLMClient = bench.elsewhere(address.geturl())
        try:
            for stream in (True, False):
                deltas = DeltaRecorder()
                request = make_request(stream=stream, on_content=deltas)
                error = await expect_error(bench, request, (ConnectionFailedError,), "no server", driver=driver)
                expect_equal(getattr(error, "retry", None), Retry.SAFE, "whether the call may be repeated")
                expect_equal(deltas.done, 1 if stream else 0, "calls with done")
        finally:
            await driver.close()


async def a_cancelled_call_hangs_up(bench: ProviderBench) -> None:
    """Cancelling a call closes its connection at once, at any stage, and gives the callback `done`."""
    for line in (Answer(content=TEXT, broken=Break.STALLED), Silence()):
        deltas = DeltaRecorder()
        bench.server.script(line)
        number, before = len(bench.server.requests) + 1, bench.server.given_up
        call = bench.begin(make_request(stream=True, on_content=deltas))
        await _arrived(bench, number)
        if not isinstance(line, Silence):
            await deltas.first.wait()
        call.cancel()
        await asyncio.wait([call])
        expect(call.cancelled(), "a cancelled call ends as cancelled")
        await bench.wait_until_idle()
        expect_equal(bench.server.given_up - before, 1, "hang-ups that the server saw")
        expect_equal(deltas.done, 1, "calls with done")


async def one_cancelled_call_of_many(bench: ProviderBench) -> None:
    """Cancelling one call has no effect on the others."""
    bench.server.script(Answer(content=TEXT, broken=Break.STALLED))
    deltas = DeltaRecorder()
    doomed = bench.begin(make_request(stream=True, on_content=deltas))
    await deltas.first.wait()
    bench.server.otherwise = Answer(content=TEXT)
    others = [bench.begin(make_request(stream=True)) for _ in range(8)]
    doomed.cancel()
    answers = await asyncio.gather(*others)
    expect_equal([answer.content for answer in answers], [TEXT] * 8, "the calls beside it")
    await asyncio.wait([doomed])
    await bench.wait_until_idle()


class _CallbackError(Exception):
    pass


async def a_callback_that_raises(bench: ProviderBench) -> None:
    """An error of a callback ends the call and is raised unchanged; the connection is not leaked."""
    bench.server.script(Answer(content=TEXT, broken=Break.STALLED))
    deltas: list[bool] = []

    def listen(delta: str, done: bool) -> None:
        deltas.append(done)
        if not done:
            raise _CallbackError(delta)

    try:
        await bench.complete(make_request(stream=True, on_content=listen))
    except _CallbackError:
        pass
    except Exception as error:
        raise ConformanceError(f"a callback's error is raised as {type(error).__name__}") from error
    else:
        raise ConformanceError("a callback's error is lost")
    expect_equal(deltas, [False, True], "the flags that the callback got")
    await bench.wait_until_idle()


FAULTS = (
    too_many_calls,
    the_server_fails,
    the_key_is_refused,
    the_model_is_unknown,
    the_prompt_is_too_long,
    there_is_no_credit,
    a_schema_is_refused,
    the_request_is_refused,
    a_stream_ends_too_soon,
    a_stream_ends_before_it_begins,
    the_connection_breaks,
    a_piece_is_no_json,
    the_server_fails_in_the_middle,
    the_answer_does_not_begin,
    the_answer_does_not_go_on,
    no_server_is_there,
    a_cancelled_call_hangs_up,
    one_cancelled_call_of_many,
    a_callback_that_raises,
)


OpenBench: TypeAlias = Callable[[], Awaitable[ProviderBench]]
Scenario: TypeAlias = Callable[[ProviderBench], Awaitable[None]]

SCENARIOS: tuple[Scenario, ...] = (*ANSWERS, *FAULTS)


async def check(scenario: Scenario, open_bench: OpenBench) -> None:
    """Run one scenario on a fresh bench, close it, and check that no task and no connection is left.

    Raises:
        ConformanceError: the driver breaks a promise.
    """
    await check_scenario(scenario, open_bench)


async def run_conformance(open_bench: OpenBench) -> None:
    """Run every scenario, each on a fresh bench.

    Raises:
        ExceptionGroup: the broken promises, one error a scenario.
    """
    await run_scenarios(SCENARIOS, open_bench)
