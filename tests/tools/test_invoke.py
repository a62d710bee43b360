"""One call of a tool: checks, attempts, waits, cancellation, and the events that tell of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from harborage.concurrency import CancelScope
from harborage.events import Event, EventType, Filter, MemoryEventBus, PatternRedactor, ShownValue
from harborage.events.filters import Cursor
from harborage.identity import Quadruple
from harborage.testing.clock import FakeClock, settle
from harborage.tools import (
    CallContext,
    ErrorClass,
    Invoker,
    OfRun,
    SideEffect,
    Tool,
    ToolCrashedError,
    ToolDescriptor,
    ToolInvalidArgsError,
    ToolNotFoundError,
    ToolPolicy,
    ToolPolicyExhaustedError,
    ToolResult,
    ToolTimeoutError,
    Transport,
    ValidateMode,
    describe_tool,
    run_with_policy,
    tool,
)
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
CALL = CallContext(WHO, "c1")
NOW = ToolPolicy(backoff_base_ms=0)


class Attempts:
    """An attempt that fails with each of `errors` in turn, then gives `value`; counts and times its calls."""

    def __init__(self, *errors: BaseException, value: Any = "done", clock: FakeClock | None = None) -> None:
        self.errors = list(errors)
        self.value = value
        self.count = 0
        self.clock = clock
        self.at: list[float] = []

    async def __call__(self, *_: Any) -> Any:
        self.count += 1
        if self.clock:
            self.at.append(self.clock.monotonic())
        if self.errors:
            raise self.errors.pop(0)
        return self.value


class Seen:
    """An observer of attempts."""

    def __init__(self) -> None:
        self.observed: list[tuple[int, str]] = []

    def __call__(self, index: int, error: Exception | None) -> None:
        self.observed.append((index, type(error).__name__ if error else ""))


async def hang(*_: Any) -> Any:
    """An attempt that never ends by itself."""
    await asyncio.Event().wait()


def failing(*errors: BaseException, **fields: Any) -> tuple[ToolDescriptor, Attempts]:
    """A tool that fails with each error in turn, then succeeds."""
    attempts = Attempts(*errors, value=ToolResult("done"))
    return ToolDescriptor(
        Tool("flaky", **{"policy": NOW, "side_effects": SideEffect.READ, **fields}), attempts
    ), attempts


async def failure_of(call: Awaitable[Any]) -> BaseException:
    """What a call fails with."""
    try:
        await call
    except BaseException as error:
        return error
    raise AssertionError("the call succeeded")


class TestRunWithPolicy:
    """`run_with_policy`."""

    async def test_a_tool_that_always_fails_is_tried_four_times(self) -> None:
        """With defaults there are four attempts, about 200, 400 and 800 ms apart, and the last error is chained."""
        clock, seen = FakeClock(), Seen()
        errors = [RuntimeError(str(n)) for n in range(9)]
        attempts = Attempts(*errors, clock=clock)
        async with asyncio.TaskGroup() as group:
            run = run_with_policy(None, attempts, clock=clock, random=lambda: 0.5, on_attempt=seen)
            call = group.create_task(failure_of(run))
            await clock.run_for(60)
        error = call.result()
        assert isinstance(error, ToolPolicyExhaustedError)
        assert (error.attempts, error.last_class, error.__cause__) == (4, "transient", errors[3])
        assert seen.observed == [(n, "RuntimeError") for n in range(4)]
        assert attempts.at == pytest.approx([0, 0.205, 0.610, 1.415])
        assert clock.armed == 0

    async def test_a_tool_that_recovers_gives_its_result(self) -> None:
        """Success on the third attempt is success."""
        seen, attempts = Seen(), Attempts(RuntimeError(), RuntimeError())
        assert await run_with_policy(NOW, attempts, on_attempt=seen) == "done"
        assert attempts.count == 3
        assert seen.observed == [(0, "RuntimeError"), (1, "RuntimeError"), (2, "")]

    async def test_zero_retries_means_one_attempt(self) -> None:
        """`max_retries=0` can be said and is kept."""
        attempts = Attempts(RuntimeError(), RuntimeError())
        error = await failure_of(run_with_policy(ToolPolicy(max_retries=0), attempts))
        assert isinstance(error, ToolPolicyExhaustedError)
        assert (error.attempts, attempts.count) == (1, 1)

    async def test_a_slow_attempt_ends_at_its_deadline_and_is_not_retried_unasked(self) -> None:
        """The timeout is one attempt and arrives as it is when only transient errors are retried."""
        clock, seen = FakeClock(), Seen()
        policy = ToolPolicy(timeout_ms=50, retry_on=(ErrorClass.TRANSIENT,))
        async with asyncio.TaskGroup() as group:
            call = group.create_task(failure_of(run_with_policy(policy, hang, clock=clock, on_attempt=seen)))
            await clock.run_for(0.049)
            assert not call.done()
            await clock.run_for(0.001)
        error = call.result()
        assert isinstance(error, ToolTimeoutError)
        assert error.timeout_ms == 50
        assert seen.observed == [(0, "ToolTimeoutError")]

    async def test_each_attempt_has_its_own_deadline(self) -> None:
        """A timeout is retried by default, and every attempt gets the full time."""
        clock = FakeClock()
        policy = ToolPolicy(timeout_ms=1000, max_retries=2, backoff_base_ms=0)
        async with asyncio.TaskGroup() as group:
            call = group.create_task(failure_of(run_with_policy(policy, hang, clock=clock)))
            await clock.run_for(2.9)
            assert not call.done()
            await clock.run_for(0.2)
        error = call.result()
        assert isinstance(error, ToolPolicyExhaustedError)
        assert (error.attempts, error.last_class) == (3, "timeout")
        assert isinstance(error.__cause__, ToolTimeoutError)

    async def test_without_a_deadline_an_attempt_may_take_for_ever(self) -> None:
        """`timeout_ms=0` arms no timer."""
        clock = FakeClock()
        async with asyncio.TaskGroup() as group:
            call = group.create_task(run_with_policy(ToolPolicy(timeout_ms=0), hang, clock=clock))
            await clock.run_for(1e6)
            assert not call.done()
            assert clock.armed == 0
            call.cancel()

    async def test_an_interruption_in_disguise_is_still_a_timeout(self) -> None:
        """A tool that turns its interruption into an error of its own is late all the same."""
        clock = FakeClock()

        async def disguised() -> None:
            try:
                await hang()
            except asyncio.CancelledError:
                raise ValueError("interrupted") from None

        policy = ToolPolicy(timeout_ms=50, retry_on=())
        async with asyncio.TaskGroup() as group:
            call = group.create_task(failure_of(run_with_policy(policy, disguised, clock=clock)))
            await clock.run_for(1)
        assert isinstance(call.result(), ToolTimeoutError)
        assert isinstance(call.result().__cause__, ValueError)

    async def test_a_deadline_error_without_a_deadline_is_not_retried(self) -> None:
        """Somebody else's deadline is final."""
        attempts = Attempts(TimeoutError())
        policy = ToolPolicy(timeout_ms=0, backoff_base_ms=0)
        assert isinstance(await failure_of(run_with_policy(policy, attempts)), TimeoutError)
        assert attempts.count == 1

    @each_row(
        "error, count",
        [
            (RuntimeError("upstream returned status 503"), 2),
            (RuntimeError("upstream returned status 404"), 1),
            (TimeoutError(), 1),
            (ToolInvalidArgsError("no"), 1),
            (ToolNotFoundError("x"), 1),
        ],
    )
    async def test_only_the_classes_asked_for_are_retried(self, error: Exception, count: int) -> None:
        """A class that is not in `retry_on` arrives unchanged after one attempt."""
        attempts = Attempts(error)
        policy = ToolPolicy(retry_on=(ErrorClass.SERVER, ErrorClass.PERMANENT), backoff_base_ms=0)
        if count == 2:
            assert await run_with_policy(policy, attempts) == "done"
        else:
            assert await failure_of(run_with_policy(policy, attempts)) is error
        assert attempts.count == count

    async def test_an_explicitly_empty_retry_list_retries_nothing(self) -> None:
        """Empty is a value, not a default."""
        error, attempts = RuntimeError(), Attempts(RuntimeError())
        attempts.errors = [error]
        assert await failure_of(run_with_policy(ToolPolicy(retry_on=()), attempts)) is error

    @each_row("error", [ValueError(), TimeoutError(), RuntimeError("status 500")])
    async def test_a_guarded_call_in_doubt_is_not_repeated(self, error: Exception) -> None:
        """Under the guard an attempt that may have acted is the last, and its error arrives unchanged."""
        attempts = Attempts(error)
        assert await failure_of(run_with_policy(NOW, attempts, is_guarded=True)) is error
        assert attempts.count == 1

    async def test_a_guarded_call_that_surely_did_nothing_is_repeated(self) -> None:
        """A refused connection cannot have acted."""
        attempts = Attempts(ConnectionRefusedError())
        assert await run_with_policy(NOW, attempts, is_guarded=True) == "done"

    async def test_bad_input_costs_no_attempt(self) -> None:
        """Input is checked once, before anything is tried."""
        seen, attempts = Seen(), Attempts()

        def refuse() -> None:
            raise ToolInvalidArgsError("no", "$.x")

        with pytest.raises(ToolInvalidArgsError, match=r"^no - at `\$\.x`$"):
            await run_with_policy(None, attempts, validate_in=refuse, on_attempt=seen)
        assert (attempts.count, seen.observed) == (0, [])

    async def test_bad_output_is_not_tried_again(self) -> None:
        """The successful attempt counts, and the error begins with `output:`."""
        seen, attempts = Seen(), Attempts()

        def refuse(value: Any) -> None:
            raise ToolInvalidArgsError(f"no {value}", "$.x")

        with pytest.raises(ToolInvalidArgsError, match=r"^output: no done") as caught:
            await run_with_policy(None, attempts, validate_out=refuse, on_attempt=seen)
        assert caught.value.path == "$.x"
        assert (attempts.count, seen.observed) == (1, [(0, "")])

    @each_row(
        "mode, checked",
        [
            (ValidateMode.BOTH, ["in", "out"]),
            (ValidateMode.IN, ["in"]),
            (ValidateMode.OUT, ["out"]),
            (ValidateMode.NONE, []),
        ],
    )
    async def test_the_mode_says_what_is_checked(self, mode: ValidateMode, checked: list[str]) -> None:
        """Each side is checked only when the policy says so."""
        done: list[str] = []
        await run_with_policy(
            ToolPolicy(validate=mode),
            Attempts(),
            validate_in=lambda: done.append("in"),
            validate_out=lambda _: done.append("out"),
        )
        assert done == checked

    async def test_a_tool_cannot_end_the_process(self) -> None:
        """`sys.exit()` inside a tool is an ordinary error, with a deadline or without."""
        for policy in (NOW, ToolPolicy(timeout_ms=0)):
            error = await failure_of(run_with_policy(policy, Attempts(SystemExit(3))))
            assert isinstance(error, ToolCrashedError)
            assert isinstance(error.__cause__, SystemExit)

    @pytest.mark.parametrize("timeout_ms", [0, 1000])
    async def test_what_python_does_not_count_as_an_error_is_one(self, timeout_ms: int) -> None:
        """A tool that raises a bare BaseException, as test frameworks do, fails its call and nothing else."""

        class Halt(BaseException):
            pass

        error = await failure_of(run_with_policy(ToolPolicy(timeout_ms=timeout_ms), Attempts(Halt("enough"))))
        assert isinstance(error, ToolCrashedError)
        assert isinstance(error.__cause__, Halt)
        assert "Halt: enough" in str(error)

    async def test_an_error_of_an_observer_is_raised(self) -> None:
        """What the observer raises reaches the caller."""

        def broken(index: int, error: Exception | None) -> None:
            raise LookupError("observer")

        with pytest.raises(LookupError):
            await run_with_policy(NOW, Attempts(), on_attempt=broken)


class TestCancellation:
    """A cancellation always arrives."""

    async def test_a_cancellation_during_the_wait_ends_the_call_at_once(self) -> None:
        """No caller waits for a backoff that it does not want."""
        clock, attempts = FakeClock(), Attempts(*[RuntimeError()] * 9)
        call = asyncio.ensure_future(run_with_policy(None, attempts, clock=clock))
        await clock.run_for(0.1)
        call.cancel()
        assert isinstance(await failure_of(call), asyncio.CancelledError)
        assert attempts.count == 1
        assert clock.armed == 0

    async def test_a_cancellation_during_an_attempt_is_not_a_timeout(self) -> None:
        """The attempt is interrupted once and not repeated."""
        clock, seen = FakeClock(), Seen()
        call = asyncio.ensure_future(run_with_policy(None, hang, clock=clock, on_attempt=seen))
        await settle()
        call.cancel()
        assert isinstance(await failure_of(call), asyncio.CancelledError)
        assert seen.observed == []
        assert clock.armed == 0

    async def test_a_cancellation_wins_over_a_deadline_at_the_same_moment(self) -> None:
        """When both come, the caller's request is the one that counts."""
        clock = FakeClock()
        call = asyncio.ensure_future(run_with_policy(ToolPolicy(timeout_ms=50), hang, clock=clock))
        await settle()
        clock.advance(0.05)
        call.cancel()
        assert isinstance(await failure_of(call), asyncio.CancelledError)

    async def test_an_outer_scope_interrupts_the_call_and_nothing_else(self) -> None:
        """A hard cancel by scope ends the call; the task around it goes on."""

        async def run() -> str:
            with CancelScope() as scope:
                asyncio.get_running_loop().call_soon(scope.cancel)
                await Invoker().invoke(ToolDescriptor(Tool("x"), hang), b"{}", CALL)
            await asyncio.sleep(0)
            return "went on" if scope.was_cancelled else "finished"

        assert await asyncio.create_task(run()) == "went on"

    async def test_a_tool_that_cancels_itself_is_not_retried(self) -> None:
        """A cancellation that the tool raised passes through unchanged."""
        error = asyncio.CancelledError()
        attempts = Attempts(error)
        assert await failure_of(run_with_policy(NOW, attempts)) is error
        assert attempts.count == 1


class TestInvoker:
    """`Invoker`."""

    async def test_arguments_reach_the_body_byte_for_byte(self) -> None:
        """Nobody re-encodes what the planner wrote."""
        got: list[tuple[bytes, CallContext]] = []

        async def body(args: bytes, call: CallContext) -> ToolResult:
            got.append((args, call))
            return ToolResult(1, {"k": "v"})

        descriptor = describe_tool(Tool("x", args_schema={"type": "object"}), body)
        assert await Invoker().invoke(descriptor, b' {"b":1, "a":2}', CALL) == ToolResult(1, {"k": "v"})
        assert got == [(b' {"b":1, "a":2}', CALL)]

    async def test_only_a_call_that_may_be_repeated_is_made_again(self) -> None:
        """A function that says nothing about itself is called once; one that reads, or acts once a key, four times."""
        for declared, times in (
            ({}, 1),
            ({"side_effects": "write"}, 1),
            ({"side_effects": "external"}, 1),
            ({"side_effects": "read"}, 4),
            ({"side_effects": "pure"}, 4),
            ({"side_effects": "external", "idempotent": True}, 4),
        ):
            for error in (TimeoutError("slow"), ConnectionResetError(), RuntimeError("status 503"), ValueError("no")):
                clock, keys = FakeClock(), []

                async def broken(call: CallContext, error: Exception = error, keys: list[str] = keys) -> None:
                    keys.append(call.idempotency_key)
                    raise error

                descriptor = ToolDescriptor(Tool("broken", **declared), lambda _, call, fn=broken: fn(call))
                call = asyncio.create_task(failure_of(Invoker(clock=clock).invoke(descriptor, b"{}", CALL)))
                await clock.run_for(10)
                expected = 1 if isinstance(error, ValueError) else times
                assert len(keys) == expected, (declared, error)
                assert len(set(keys)) == 1
                assert isinstance(await call, ToolPolicyExhaustedError if expected > 1 else type(error))

    @pytest.mark.parametrize("side_effects", [SideEffect.WRITE, SideEffect.EXTERNAL])
    async def test_a_declared_writer_is_not_called_twice_in_doubt(self, side_effects: SideEffect) -> None:
        """A tool that declares a side effect is repeated only when it is idempotent."""
        descriptor, attempts = failing(RuntimeError("status 503"), side_effects=side_effects)
        assert isinstance(await failure_of(Invoker().invoke(descriptor, b"{}", CALL)), RuntimeError)
        assert attempts.count == 1
        keyed, again = failing(RuntimeError("status 503"), side_effects=side_effects, idempotent=True)
        assert (await Invoker().invoke(keyed, b"{}", CALL)).value == "done"
        assert again.count == 2

    async def test_invalid_foreign_arguments_never_reach_the_body(self) -> None:
        """A schema that somebody else wrote is checked before the first attempt, and the result after it."""
        attempts = Attempts(value=ToolResult(7))
        described = describe_tool(
            Tool("x", args_schema={"type": "object", "required": ["n"]}, out_schema={"type": "string"}), attempts
        )
        with pytest.raises(ToolInvalidArgsError) as caught:
            await Invoker().invoke(described, b"{}", CALL)
        assert (caught.value.path, attempts.count) == ("$.n", 0)
        with pytest.raises(ToolInvalidArgsError, match=r"^output: "):
            await Invoker().invoke(described, b'{"n":1}', CALL)
        assert attempts.count == 1

    async def test_a_call_without_identity_works_and_publishes_nothing(self) -> None:
        """Without a complete identity there is nobody to tell."""
        observed: list[Event] = []
        call = CallContext(Quadruple("t", "u", "", "r"), emit=observed.append)
        assert (await Invoker().invoke(failing()[0], b"{}", call)).value == "done"
        assert observed == []


class TestEvents:
    """What is published of a call."""

    async def observed(
        self, descriptor: ToolDescriptor, *, make: Callable[..., Invoker] = Invoker, cancel: bool = False
    ) -> list[Event]:
        """The events of one call, however it ends."""
        observed: list[Event] = []
        clock = FakeClock()
        call = asyncio.ensure_future(
            make(clock=clock).invoke(descriptor, b"{}", CallContext(WHO, emit=observed.append))
        )
        await clock.run_for(0.25)
        if cancel:
            call.cancel()
        await clock.run_for(60)
        await asyncio.gather(call, return_exceptions=True)
        return observed

    async def test_a_success_is_published_with_its_true_attempts(self) -> None:
        """Invoked, then completed, with the run's quadruple, the transport and the time it took."""
        descriptor, _ = failing(
            RuntimeError(), policy=ToolPolicy(backoff_base_ms=1000, backoff_mult=1), transport=Transport.MCP
        )
        invoked, completed = await self.observed(descriptor, make=lambda clock: Invoker(clock=clock, random=lambda: 0))
        assert (invoked.type, completed.type) == (EventType.TOOL_INVOKED, EventType.TOOL_COMPLETED)
        assert invoked.identity == completed.identity == WHO
        started: Any = invoked.payload
        done: Any = completed.payload
        assert (started.identity, started.tool_name, started.transport) == (WHO, "flaky", "mcp")
        assert started.started_at == FakeClock().now()
        assert (done.identity, done.tool_name, done.transport) == (WHO, "flaky", "mcp")
        assert (done.attempts, done.duration_ms) == (2, 1000)

    async def test_arguments_are_shown_only_after_a_redactor(self) -> None:
        """Without one the event has none; those that are no JSON are left out."""
        for redactor, args, shown, masked in (
            (None, b'{"n":1}', UNSET, UNSET),
            (PatternRedactor(), b'{"n":1}', msgspec.Raw(b'{"n":1}'), UNSET),
            (PatternRedactor(), b'{"token":"hunter2"}', msgspec.Raw(b'{"token":"***"}'), True),
            (PatternRedactor(), b"{", UNSET, UNSET),
        ):
            descriptor, _ = failing(transport=Transport.MCP)
            observed: list[Event] = []
            invoker = Invoker(clock=FakeClock(), redactor=redactor)
            await invoker.invoke(descriptor, args, CallContext(WHO, emit=observed.append), OfRun(step=3, call_id="3"))
            begun: Any = observed[0].payload
            assert (begun.args, begun.masked, begun.step, begun.call_id) == (shown, masked, 3, "3")

    async def test_a_result_is_shown_as_its_caller_says(self) -> None:
        """Once, of a call that completed; an error of showing it is the call's, and the event has no result."""

        async def show(result: ToolResult) -> ShownValue:
            if result.value == "bad":
                raise LookupError("no room")
            return ShownValue(json=msgspec.Raw(b'"shown"'), masked=True)

        for value, shown in (("done", msgspec.Raw(b'"shown"')), ("bad", UNSET)):
            descriptor, attempts = failing()
            attempts.value = ToolResult(value)
            observed: list[Event] = []
            call = CallContext(WHO, emit=observed.append)
            invoked = Invoker(clock=FakeClock()).invoke(descriptor, b"{}", call, show=show)
            if value == "bad":
                with pytest.raises(LookupError):
                    await invoked
            else:
                assert (await invoked).value == value
            assert [event.type for event in observed] == [EventType.TOOL_INVOKED, EventType.TOOL_COMPLETED]
            done: Any = observed[1].payload
            assert done.result == shown

    async def test_a_permanent_failure_is_published_with_its_class(self) -> None:
        """A failure that is neither exhaustion nor bad arguments is `tool.failed`."""
        for error, policy, expected in (
            (RuntimeError("status 503"), ToolPolicy(retry_on=()), "5xx"),
            (ToolNotFoundError("x"), NOW, "permanent"),
            (ConnectionResetError(), ToolPolicy(retry_on=()), "transient"),
        ):
            _, failed = await self.observed(failing(error, policy=policy)[0])
            payload: Any = failed.payload
            assert failed.type == EventType.TOOL_FAILED
            assert (payload.attempts, payload.error_class) == (1, expected)
            assert payload.error_message == (str(error) or type(error).__name__)

    async def test_a_timeout_is_published_as_a_timeout(self) -> None:
        """The class in the event is the one that decided."""
        descriptor = ToolDescriptor(Tool("slow", policy=ToolPolicy(timeout_ms=50, retry_on=())), hang)
        _, failed = await self.observed(descriptor)
        payload: Any = failed.payload
        assert (failed.type, payload.attempts, payload.error_class) == (EventType.TOOL_FAILED, 1, "timeout")

    async def test_exhaustion_is_published_with_the_last_error(self) -> None:
        """Attempts and class are those of the series, the text is the last error's."""
        errors = [RuntimeError("status 500"), RuntimeError("timeout")]
        _, exhausted = await self.observed(failing(*errors, policy=ToolPolicy(max_retries=1))[0])
        payload: Any = exhausted.payload
        assert exhausted.type == EventType.TOOL_POLICY_EXHAUSTED
        assert (payload.attempts, payload.last_class, payload.last_error) == (2, "timeout", "timeout")

    async def test_another_tools_exhaustion_inside_is_a_plain_failure(self) -> None:
        """A tool that calls a tool does not pass the other's attempts off as its own, nor multiply them."""
        descriptor, attempts = failing(ToolPolicyExhaustedError(4))
        _, failed = await self.observed(descriptor)
        payload: Any = failed.payload
        assert (failed.type, payload.attempts, attempts.count) == (EventType.TOOL_FAILED, 1, 1)

    async def test_bad_arguments_and_bad_results_are_published_as_such(self) -> None:
        """Both sides of validation share one event."""

        @tool
        async def needs(n: int) -> None: ...

        @tool
        async def lies() -> int:
            return "x"  # type: ignore[return-value]

        for descriptor, text in ((needs, "$.n"), (lies, "output: ")):
            _, invalid = await self.observed(descriptor)
            payload: Any = invalid.payload
            assert invalid.type == EventType.TOOL_INVALID_ARGS
            assert text in payload.validation_error

    @pytest.mark.parametrize(("body", "attempts"), [(hang, 1), (Attempts(*[RuntimeError()] * 9), 2)])
    async def test_a_cancelled_call_is_published_with_its_begun_attempts(self, body: Any, attempts: int) -> None:
        """Every call that was invoked gets its one outcome, a cancelled one too."""
        _, failed = await self.observed(ToolDescriptor(Tool("x", side_effects=SideEffect.READ), body), cancel=True)
        payload: Any = failed.payload
        assert (failed.type, payload.attempts, payload.error_class) == (EventType.TOOL_FAILED, attempts, "permanent")
        assert payload.error_message == "CancelledError"

    async def test_a_long_error_text_is_cut(self) -> None:
        """An event stays small whatever a tool says."""
        _, failed = await self.observed(failing(RuntimeError("x" * 5000), policy=ToolPolicy(retry_on=()))[0])
        payload: Any = failed.payload
        assert len(payload.error_message) == 1024

    async def test_error_texts_pass_through_the_redactor(self, caplog: pytest.LogCaptureFixture) -> None:
        """A secret in an error does not reach the event; a redactor that fails leaves only the kind of error."""

        class Masking:
            def redact(self, value: Any) -> Any:
                return value.replace("hunter2", "***")

        class Broken:
            def redact(self, value: Any) -> Any:
                raise OSError

        for redactor, text in ((Masking(), "wrong password ***"), (Broken(), "PermissionError")):
            error = PermissionError("wrong password hunter2")
            descriptor, _ = failing(error, policy=ToolPolicy(retry_on=()))

            def make(clock: FakeClock, redactor: Any = redactor) -> Invoker:
                return Invoker(clock=clock, redactor=redactor)

            _, failed = await self.observed(descriptor, make=make)
            payload: Any = failed.payload
            assert payload.error_message == text

    async def test_a_publication_that_fails_does_not_fail_the_call(self, caplog: pytest.LogCaptureFixture) -> None:
        """Publishing is best effort: the result arrives, and a warning says what was not published."""

        def refuse(event: Event) -> None:
            raise OSError("bus is gone")

        with caplog.at_level(logging.WARNING):
            result = await Invoker().invoke(failing()[0], b"{}", CallContext(WHO, emit=refuse))
        assert result.value == "done"
        assert [record.getMessage() for record in caplog.records] == [
            "tool.invoked of a tool could not be published",
            "tool.completed of a tool could not be published",
        ]

    async def test_the_bus_gets_the_events_when_the_call_has_no_emitter(self) -> None:
        """Events reach the Invoker's bus in order; a call's own `emit` takes its place, so nothing is published
        twice."""
        bus = MemoryEventBus()
        observed: list[Event] = []
        invoker = Invoker(bus=bus)
        await invoker.invoke(failing()[0], b"{}", CALL)
        await invoker.invoke(failing()[0], b"{}", CallContext(WHO, emit=observed.append))
        published = await bus.replay(Cursor(), Filter.of(WHO))
        assert [event.type for event in published] == ["tool.invoked", "tool.completed"]
        assert [event.type for event in observed] == ["tool.invoked", "tool.completed"]
        await bus.aclose()

    async def test_one_invoker_serves_many_runs_at_once(self) -> None:
        """128 calls at once: each call's events carry its own run and its own attempts."""
        observed: list[Event] = []
        invoker = Invoker()

        async def one(n: int) -> None:
            descriptor, _ = failing(*[RuntimeError()] * (n % 4))
            await invoker.invoke(
                descriptor, b"{}", CallContext(Quadruple("t", "u", "s", f"r{n}"), emit=observed.append)
            )

        await asyncio.gather(*map(one, range(128)))
        done: list[Any] = [event.payload for event in observed if event.type == EventType.TOOL_COMPLETED]
        assert {payload.identity.run_id: payload.attempts for payload in done} == {
            f"r{n}": n % 4 + 1 for n in range(128)
        }
