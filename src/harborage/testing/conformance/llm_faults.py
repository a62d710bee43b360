"""What a provider's driver makes of every way in which a call fails. Part of the suite in `llm`.

After each fault the same holds: the error is typed and says whether the call may be repeated, the listener was told
`done` once, no connection is kept busy, and the driver goes on to serve.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any
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
from harborage.testing.conformance.checks import ConformanceError, expect, expect_equal
from harborage.testing.conformance.llm_bench import KEY, Ability, Heard, ProviderBench, asking
from harborage.testing.conformance.llm_script import Answer, Break, Failure, Line, Refusal, Silence

__all__ = ["FAULTS"]

TEXT = "The sum of two and three is five, as everybody knows."


async def failing(
    bench: ProviderBench, request: CompleteRequest, kinds: tuple[type[LLMError], ...], what: str, **more: Any
) -> LLMError:
    """The error of a call that must fail in one of these ways, without a trace of the key."""
    try:
        answer = await bench.complete(request, **more)
    except kinds as error:
        expect(KEY not in f"{error}{error!r}{error.__dict__}", f"{what}: the error does not show the key")
        return error
    except Exception as error:
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise ConformanceError(f"{what}: raised {type(error).__name__} ({error}), wanted {wanted}") from error
    raise ConformanceError(f"{what}: gave {answer!r}")


async def a_fault(
    bench: ProviderBench, line: Line, *kinds: type[LLMError], retry: Retry | None = None, stream: bool = True
) -> tuple[LLMError, Heard]:
    """Let one call fail by `line`, see that everything is in order behind it, and that the next call is answered."""
    heard = Heard()
    bench.server.script(line)
    what = f"stream={stream}"
    error = await failing(bench, asking(stream=stream, on_content=heard), kinds, what)
    if retry is not None:
        expect_equal(getattr(error, "retry", Retry.NEVER), retry, "whether the call may be repeated")
    expect_equal((heard.done, heard.late), (1, 0) if stream else (0, 0), "how often done was told, and pieces behind")
    await bench.settled()
    bench.server.script("It works.")
    expect_equal((await bench.complete(asking(stream=stream))).content, "It works.", "the next call")
    return error, heard


async def refused(bench: ProviderBench, refusal: Refusal, kind: type[LLMError], retry: Retry) -> LLMError:
    """The error for a refusal, which is the same for a streamed and for a plain call."""
    await a_fault(bench, refusal, kind, retry=retry, stream=False)
    error, heard = await a_fault(bench, refusal, kind, retry=retry)
    expect_equal(heard.pieces, [], "what is heard of a refused call")
    return error


async def too_many_calls(bench: ProviderBench) -> None:
    """A rate limit may be waited out, for as long as the provider says."""
    refusal = Refusal(failure=Failure.RATE_LIMITED, retry_after="7")
    error = await refused(bench, refusal, RateLimitedError, Retry.SAFE)
    expect_equal((getattr(error, "status", 0), getattr(error, "retry_after_s", 0)), (429, 7.0), "status and wait")


async def the_server_fails(bench: ProviderBench) -> None:
    """A failure on the provider's side may be tried again."""
    for failure in (Failure.SERVER_ERROR, Failure.OVERLOADED):
        await refused(bench, Refusal(failure=failure), ProviderUnavailableError, Retry.SAFE)


async def the_key_is_refused(bench: ProviderBench) -> None:
    """A refused key is no reason to try again, and its text is not repeated, even if the server does."""
    refusal = Refusal(failure=Failure.BAD_KEY, says=f"You sent {KEY}.")
    await refused(bench, refusal, AuthenticationFailedError, Retry.NEVER)
    expect(all(KEY in str(asked.headers) for asked in bench.server.requests), "the key reaches the server")


async def the_model_is_unknown(bench: ProviderBench) -> None:
    """A model that the provider does not know is named in the error."""
    error = await refused(bench, Refusal(failure=Failure.UNKNOWN_MODEL), ModelNotFoundError, Retry.NEVER)
    expect(bench.config.model in str(error), "the error names the model")


async def the_prompt_is_too_long(bench: ProviderBench) -> None:
    """A prompt that does not fit the window is an error of its own."""
    await refused(bench, Refusal(failure=Failure.CONTEXT_OVERFLOW), ContextOverflowError, Retry.NEVER)


async def there_is_no_credit(bench: ProviderBench) -> None:
    """An empty account is no rate limit: waiting does not help."""
    await refused(bench, Refusal(failure=Failure.NO_CREDIT), QuotaExceededError, Retry.NEVER)


async def a_schema_is_refused(bench: ProviderBench) -> None:
    """A schema that the provider does not take lets a weaker mode be tried."""
    if bench.can(Ability.STRUCTURED):
        await refused(bench, Refusal(failure=Failure.BAD_SCHEMA), InvalidJSONSchemaError, Retry.NEVER)


async def the_request_is_refused(bench: ProviderBench) -> None:
    """Anything else that the provider does not take is told in its own words."""
    refusal = Refusal(failure=Failure.BAD_REQUEST, says="because-of-the-weather")
    error = await refused(bench, refusal, ProviderError, Retry.NEVER)
    expect("because-of-the-weather" in str(error), "the provider's words are told")


async def a_stream_ends_too_soon(bench: ProviderBench) -> None:
    """A stream that ends properly, but before the model has finished, is a failed call."""
    line = Answer(content=TEXT, broken=Break.TRUNCATED)
    _, heard = await a_fault(bench, line, IncompleteAnswerError, retry=Retry.SAFE)
    expect(TEXT.startswith(heard.text) and heard.text != TEXT, "what was streamed of it was heard")


async def a_stream_ends_before_it_begins(bench: ProviderBench) -> None:
    """A stream without a word is a failed call, not an empty answer."""
    await a_fault(bench, Answer(content=TEXT, broken=Break.TRUNCATED, after=0), IncompleteAnswerError, retry=Retry.SAFE)


async def the_connection_breaks(bench: ProviderBench) -> None:
    """A connection that breaks in the middle of an answer is a failed call, streamed or not."""
    line = Answer(content=TEXT, broken=Break.DROPPED)
    for stream in (True, False):
        await a_fault(bench, line, ConnectionFailedError, IncompleteAnswerError, retry=Retry.SAFE, stream=stream)


async def a_piece_is_no_json(bench: ProviderBench) -> None:
    """A piece that cannot be read ends the call, rather than being left out of the answer."""
    for stream in (True, False):
        line = Answer(content=TEXT, broken=Break.MALFORMED)
        await a_fault(bench, line, MalformedAnswerError, retry=Retry.SAFE, stream=stream)


async def the_server_fails_in_the_middle(bench: ProviderBench) -> None:
    """A failure that the provider tells inside an answer that began well is an error like any other."""
    if bench.can(Ability.ERROR_IN_STREAM):
        line = Answer(content=TEXT, broken=Break.FAILED)
        await a_fault(bench, line, ProviderUnavailableError, retry=Retry.SAFE)


async def the_answer_does_not_begin(bench: ProviderBench) -> None:
    """A server that takes a call and says nothing is given up when it was to have begun."""
    for stream in (True, False):
        await _timed_out(bench, Silence(), bench.config.transport.first_byte_timeout_s, stream=stream)


async def the_answer_does_not_go_on(bench: ProviderBench) -> None:
    """A stream that stands still is given up, and not before a pause of that length."""
    await _timed_out(
        bench, Answer(content=TEXT, broken=Break.STALLED), bench.config.transport.idle_timeout_s, has_begun=True
    )


async def _timed_out(
    bench: ProviderBench, line: Line, seconds: float, *, stream: bool = True, has_begun: bool = False
) -> None:
    heard = Heard()
    bench.server.script(line)
    number = len(bench.server.requests) + 1
    call = bench.begin(asking(stream=stream, on_content=heard))
    await _arrived(bench, number)
    if has_begun:
        await heard.first.wait()
    await bench.clock.run_for(seconds * 0.9)
    expect(not call.done(), f"the call waits for {seconds * 0.9:g} s")
    await bench.pass_time(seconds, call)
    error = (await asyncio.gather(call, return_exceptions=True))[0]
    expect(isinstance(error, ProviderTimeoutError), f"a call that takes too long ends in {error!r}")
    expect_equal(getattr(error, "retry", None), Retry.SAFE, "whether the call may be repeated")
    expect_equal(heard.done, 1 if stream else 0, "how often done was told")
    await bench.settled()


async def _arrived(bench: ProviderBench, number: int) -> None:
    await bench.server.until(lambda server: len(server.requests) >= number, "the call reaches the server")


async def nobody_is_there(bench: ProviderBench) -> None:
    """A server that does not run is told apart from one that fails, with its address and what to look at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets the port, and it refuses
        port = taken.getsockname()[1]
        address = urlsplit(bench.server.base_url())._replace(netloc=f"127.0.0.1:{port}")
        driver: LLMClient = bench.elsewhere(address.geturl())
        try:
            for stream in (True, False):
                heard = Heard()
                request = asking(stream=stream, on_content=heard)
                error = await failing(bench, request, (ConnectionFailedError,), "nobody there", driver=driver)
                expect_equal(getattr(error, "retry", None), Retry.SAFE, "whether the call may be repeated")
                expect_equal(heard.done, 1 if stream else 0, "how often done was told")
        finally:
            await driver.close()


async def a_cancelled_call_hangs_up(bench: ProviderBench) -> None:
    """Cancelling a call closes its connection at once, wherever it stands, and tells the listener the end."""
    for line in (Answer(content=TEXT, broken=Break.STALLED), Silence()):
        heard = Heard()
        bench.server.script(line)
        number, before = len(bench.server.requests) + 1, bench.server.given_up
        call = bench.begin(asking(stream=True, on_content=heard))
        await _arrived(bench, number)
        if not isinstance(line, Silence):
            await heard.first.wait()
        call.cancel()
        await asyncio.wait([call])
        expect(call.cancelled(), "a cancelled call ends as cancelled")
        await bench.settled()
        expect_equal(bench.server.given_up - before, 1, "hang-ups that the server saw")
        expect_equal(heard.done, 1, "how often done was told")


async def one_cancelled_call_of_many(bench: ProviderBench) -> None:
    """Cancelling one call leaves those beside it alone."""
    bench.server.script(Answer(content=TEXT, broken=Break.STALLED))
    heard = Heard()
    doomed = bench.begin(asking(stream=True, on_content=heard))
    await heard.first.wait()
    bench.server.otherwise = Answer(content=TEXT)
    others = [bench.begin(asking(stream=True)) for _ in range(8)]
    doomed.cancel()
    answers = await asyncio.gather(*others)
    expect_equal([answer.content for answer in answers], [TEXT] * 8, "the calls beside it")
    await asyncio.wait([doomed])
    await bench.settled()


class _ListenerError(Exception):
    pass


async def a_listener_that_raises(bench: ProviderBench) -> None:
    """What a listener raises ends the call and comes out as it is; the connection is not leaked."""
    bench.server.script(Answer(content=TEXT, broken=Break.STALLED))
    heard: list[bool] = []

    def listen(delta: str, done: bool) -> None:
        heard.append(done)
        if not done:
            raise _ListenerError(delta)

    try:
        await bench.complete(asking(stream=True, on_content=listen))
    except _ListenerError:
        pass
    except Exception as error:
        raise ConformanceError(f"a listener's error comes out as {type(error).__name__}") from error
    else:
        raise ConformanceError("a listener's error is lost")
    expect_equal(heard, [False, True], "what the listener was told")
    await bench.settled()


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
    nobody_is_there,
    a_cancelled_call_hangs_up,
    one_cancelled_call_of_many,
    a_listener_that_raises,
)
