"""Call a tool as its policy says, and publish the events of the call.

`run_with_policy` is the sequence of one call: validate, attempt, back off, attempt again. `Invoker` runs a descriptor
through it and publishes `tool.*` events. Neither holds state between calls, so one Invoker serves every run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from harborage.clock import SYSTEM_CLOCK, SharedTimers, Timers, dice, sleep
from harborage.concurrency import CANCEL_GRACE_S, CancelScope, leavable
from harborage.crashes import is_order_to_stop
from harborage.errors import error_reason, error_summary
from harborage.events import (
    NOT_SHOWN,
    Event,
    EventBus,
    EventType,
    Payload,
    Redactor,
    ShownValue,
    ToolCompletedPayload,
    ToolFailedPayload,
    ToolInvalidArgsPayload,
    ToolInvokedPayload,
    ToolPolicyExhaustedPayload,
    safe_excerpt,
    shown_value,
)
from harborage.tools.enums import ErrorClass
from harborage.tools.errors import (
    ToolCrashedError,
    ToolInvalidArgsError,
    ToolPolicyExhaustedError,
    ToolTimeoutError,
    failure_reason,
)
from harborage.tools.policy import EffectivePolicy, ToolPolicy, backoff_ms, classify, may_repeat, resolve_policy

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.tools.model import CallContext, CallServices, Tool, ToolBody, ToolDescriptor, ToolResult

T = TypeVar("T")

OnBegin = Callable[["AttemptScope | None"], None]
"""Called when an attempt begins, with the scope that limits its time, if one does."""

OnAttempt = Callable[[int, Exception | None], None]
"""Called after every attempt with its index from 0 and its error or None."""

BetweenAttempts = Callable[[float], AbstractContextManager[object]]
"""Entered while a call only waits for its next attempt, with how many seconds the peer asked for; 0 if it did not."""

ShowResult = Callable[["ToolResult"], Awaitable[ShownValue]]
"""Returns what the event of a completed call shows of its result."""

MAX_MESSAGE_CHARS = 1024

_log = logging.getLogger(__name__)


class OfRun(NamedTuple):
    """What the run that makes a call adds to it.

    `between` is entered while the call only waits for its next attempt. `step` and `call_id` are what its events have;
    0 and "" where they are not known. `before` is awaited between the event of the call and its first attempt.
    """

    between: BetweenAttempts = nullcontext
    step: int = 0
    call_id: str = ""
    before: Callable[[], Awaitable[None]] | None = None


class AttemptScope(CancelScope):
    """The scope of an attempt, of which parts may not count; `renewed_at` is when its time began anew behind one."""

    __slots__ = ("_holds", "renewed_at")

    def __init__(self, clock: Timers, seconds: float, owner: asyncio.Task[Any] | None) -> None:
        super().__init__(clock, seconds, owner=owner)
        self._holds = 0
        self.renewed_at: float | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """A part of the attempt whose time does not count; behind it the whole time begins anew."""
        self._holds += 1
        if self._timer is not None:
            self._timer.cancel()
        try:
            yield
        finally:
            self._holds -= 1
            if not self._holds and self._task is not None and self._clock is not None and self._seconds is not None:
                self.renewed_at = self._clock.monotonic()
                self._timer = self._clock.call_later(self._seconds, self.cancel)


async def run_with_policy(
    policy: ToolPolicy | EffectivePolicy | None,
    attempt: Callable[[], Awaitable[T]],
    *,
    validate_in: Callable[[], None] | None = None,
    validate_out: Callable[[T], None] | None = None,
    clock: Timers = SYSTEM_CLOCK,
    random: Callable[[], float] = dice,
    on_attempt: OnAttempt | None = None,
    is_guarded: bool = False,
    name: str = "attempt",
    between: BetweenAttempts = nullcontext,
    on_begin: OnBegin | None = None,
) -> T:
    """Return the result of `attempt`, made as often as `policy` allows, each time under the policy's deadline.

    An attempt that ignores its cancellation is ended after a short grace, which is logged under `name`. `between` is
    entered for each wait before another attempt, which is as long as the peer asked for if its error says so.

    Input is validated once before, the output once after the successful attempt. `is_guarded` forbids another attempt
    when the last one may have acted. Never: swallows a cancellation; one that arrives ends the call at once.

    Raises:
        ToolInvalidArgsError: a check refused; without attempts for input, not tried again for output (`output: …`).
        ToolPolicyExhaustedError: the last attempt allowed failed; chained to its error.
        Exception: the attempt's own error, unchanged, when its class is permanent or not to be retried.
    """
    effective = policy if isinstance(policy, EffectivePolicy) else resolve_policy(policy)
    if validate_in is not None and effective.validates_in:
        validate_in()
    index = 0
    while True:
        try:
            result = await _attempt(attempt, effective.timeout_s, clock, name, on_begin)
        except Exception as error:
            if on_attempt is not None:
                on_attempt(index, error)
            if not _is_retried(error, effective, is_guarded):
                raise
            if index >= effective.max_retries:
                if is_guarded and index == 0:
                    raise  # the policy allows no second attempt
                last_class = classify(error, has_deadline=effective.timeout_s is not None)
                raise ToolPolicyExhaustedError(index + 1, last_class, failure_reason(error)) from error
            asked_s = getattr(error, "retry_after_s", None) or 0.0  # the peer said when
        else:
            if on_attempt is not None:
                on_attempt(index, None)
            if validate_out is not None and effective.validates_out:
                _check_output(validate_out, result)
            return result
        index += 1
        delay_s = max(backoff_ms(effective, index, random()) / 1000, asked_s)
        with between(asked_s):
            await sleep(clock, delay_s)


async def _attempt(
    attempt: Callable[[], Awaitable[T]],
    timeout_s: float | None,
    clock: Timers,
    name: str,
    on_begin: OnBegin | None,
) -> T:
    """Make one attempt under its deadline; what would end the process becomes an ordinary error."""
    task, began = asyncio.current_task(), clock.monotonic()
    left = partial(_log_left_behind, name)
    scope: CancelScope | None = None
    if on_begin is not None:
        on_begin(scope := None if timeout_s is None else AttemptScope(clock, timeout_s, task))
    elif timeout_s is not None:
        scope = CancelScope(clock, timeout_s, owner=task)
    try:
        if scope is None:
            return await leavable(attempt(), clock=clock, on_left=left, owner=task)
        with scope:
            return await leavable(attempt(), clock=clock, on_left=left, owner=task, is_limited=True)
    except BaseException as error:
        if isinstance(scope, AttemptScope) and scope.renewed_at is not None:
            began = scope.renewed_at
        # A tool may turn the interruption into an error of its own; it is late all the same.
        if isinstance(error, Exception) and timeout_s is not None and clock.monotonic() - began >= timeout_s:
            raise ToolTimeoutError(timeout_s * 1000) from error
        if isinstance(error, Exception) or is_order_to_stop(error, task):
            raise
        what = "tried to end the process" if isinstance(error, SystemExit) else f"raised {error_summary(error)}"
        raise ToolCrashedError(f"the tool {what}") from error
    assert timeout_s is not None  # only a scope ends without a result
    raise ToolTimeoutError(timeout_s * 1000) from TimeoutError()


def _log_left_behind(name: str, problem: BaseException | None) -> None:
    why = "" if problem is None else f", and could not be closed: {error_reason(problem)}"
    _log.warning("%s was abandoned: it ignored its cancellation for %g s%s", name, CANCEL_GRACE_S, why)


def _is_retried(error: Exception, policy: EffectivePolicy, is_guarded: bool) -> bool:
    error_class = classify(error, has_deadline=policy.timeout_s is not None)
    if error_class is ErrorClass.PERMANENT or error_class not in policy.retry_on:
        return False
    return may_repeat(error, is_guarded=is_guarded)


def _check_output(validate_out: Callable[[T], None], result: T) -> None:
    try:
        validate_out(result)
    except ToolInvalidArgsError as error:
        raise ToolInvalidArgsError(f"output: {error.reason}", error.path) from error


class _Attempts:
    """Makes and counts the attempts of one call, and stores the last error."""

    __slots__ = ("_args", "_body", "_call", "attempts", "error")

    def __init__(self, body: ToolBody, args: bytes, call: CallContext) -> None:
        self._body = body
        self._args = args
        self._call = call
        self.attempts = 0
        self.error: Exception | None = None

    def attempt(self) -> Awaitable[ToolResult]:
        self.attempts += 1
        return self._body(self._args, self._call)

    def record(self, _index: int, error: Exception | None) -> None:
        self.error = error


class Invoker:
    """Calls tools of every transport: policy around the body, events around the policy.

    Events go where the call's `emit` sends them, else on `bus`; without either, or without a complete identity, there
    are none. A failed publication is logged and never fails the call. With a `redactor`, error texts in events pass
    through it, and so do arguments: without one, events have none.
    """

    def __init__(
        self,
        *,
        bus: EventBus | None = None,
        clock: Timers = SYSTEM_CLOCK,
        random: Callable[[], float] = dice,
        redactor: Redactor | None = None,
    ) -> None:
        self._publish: Callable[[Event], object] | None = None if bus is None else bus.publish_nowait
        self._clock = SharedTimers(clock)
        self._random = random
        self._redactor = redactor

    def invoke(
        self,
        descriptor: ToolDescriptor,
        args: bytes,
        call: CallContext,
        of_run: OfRun = OfRun(),  # noqa: B008 - a frozen value
        *,
        show: ShowResult | None = None,
    ) -> Awaitable[ToolResult]:
        """Return the tool's result for `args`, the argument bytes exactly as they came.

        `show` is awaited between a result and the event that says so, and its error is the call's; it is not called
        where there are no events.

        Raises:
            ToolInvalidArgsError, ToolPolicyExhaustedError, ToolTimeoutError: as for `run_with_policy`.
            Exception: the tool's own error, unchanged, when its class is permanent or not to be retried.
        """
        emit = call.emit or self._publish
        who = call.who
        if emit is None or not (who.tenant_id and who.user_id and who.session_id):
            body = partial(descriptor.body, args, call)
            run = partial(self._run, descriptor, args, body, None, of_run.between, call.services)
            return run() if of_run.before is None else _behind(of_run.before, run)
        return self._run_published(descriptor, args, call, emit, of_run, show=show)

    def _run(
        self,
        descriptor: ToolDescriptor,
        args: bytes,
        attempt: Callable[[], Awaitable[ToolResult]],
        on_attempt: OnAttempt | None,
        between: BetweenAttempts,
        services: CallServices | None,
    ) -> Awaitable[ToolResult]:
        check_args, check_result = descriptor.validate_args, descriptor.validate_result
        return run_with_policy(
            descriptor.policy,
            attempt,
            validate_in=None if check_args is None or descriptor.body_validates else partial(check_args, args),
            validate_out=None if check_result is None else partial(_check_value, check_result),
            clock=self._clock,
            random=self._random,
            on_attempt=on_attempt,
            is_guarded=descriptor.is_guarded,
            name=f"call of {descriptor.tool.name}",
            between=between,
            on_begin=None if services is None else services.begin,
        )

    async def _run_published(
        self,
        descriptor: ToolDescriptor,
        args: bytes,
        call: CallContext,
        emit: Callable[[Event], object],
        of_run: OfRun,
        *,
        show: ShowResult | None,
    ) -> ToolResult:
        tool, who = descriptor.tool, call.who
        step, call_id = of_run.step or UNSET, of_run.call_id or UNSET
        started_at = self._clock.now()
        asked = NOT_SHOWN if self._redactor is None else shown_value(self._redactor, args)
        begun = ToolInvokedPayload(
            who, tool.name, tool.transport, started_at, step, call_id, asked.json, asked.cut, asked.masked
        )
        self._emit(emit, EventType.TOOL_INVOKED, who, begun, started_at)
        attempts = _Attempts(descriptor.body, args, call)
        try:
            if of_run.before is not None:
                await of_run.before()
            began = self._clock.monotonic()
            attempt, record, between = attempts.attempt, attempts.record, of_run.between
            result = await self._run(descriptor, args, attempt, record, between, call.services)
        except BaseException as error:
            kind, who, payload = self._failure_event(tool, who, error, attempts, descriptor.policy)
            self._emit(emit, kind, who, replace(payload, step=step, call_id=call_id))
            raise
        took_ms = int((self._clock.monotonic() - began) * 1000)
        shown = NOT_SHOWN
        try:
            shown = NOT_SHOWN if show is None else await show(result)
        finally:  # the tool has completed, whatever comes of its result
            done = ToolCompletedPayload(
                who, tool.name, tool.transport, attempts.attempts, took_ms,
                step, call_id, shown.json, shown.cut, shown.masked,
            )  # fmt: skip
            self._emit(emit, EventType.TOOL_COMPLETED, who, done)
        return result

    def _failure_event(
        self, tool: Tool, who: Quadruple, error: BaseException, attempts: _Attempts, policy: EffectivePolicy
    ) -> tuple[EventType, Quadruple, Payload]:
        """Return the event of a failed call; an exhausted policy inside the body is an ordinary failure."""
        if isinstance(error, ToolInvalidArgsError):
            text = self._render_error(error)
            return EventType.TOOL_INVALID_ARGS, who, ToolInvalidArgsPayload(who, tool.name, tool.transport, text)
        if isinstance(error, ToolPolicyExhaustedError) and error is not attempts.error:
            last = self._render_error(error.__cause__ or error)
            exhausted = ToolPolicyExhaustedPayload(
                who, tool.name, tool.transport, error.attempts, error.last_class, last
            )
            return EventType.TOOL_POLICY_EXHAUSTED, who, exhausted
        error_class = classify(error, has_deadline=policy.timeout_s is not None)
        failed = ToolFailedPayload(
            who, tool.name, tool.transport, attempts.attempts, error_class, self._render_error(error)
        )
        return EventType.TOOL_FAILED, who, failed

    def _render_error(self, error: BaseException) -> str:
        text = error_reason(error)
        if self._redactor is None:
            return text if len(text) <= MAX_MESSAGE_CHARS else safe_excerpt(text, MAX_MESSAGE_CHARS)
        try:
            return str(self._redactor.redact(text))[
                :MAX_MESSAGE_CHARS
            ]  # cut after: a secret that is cut may no longer be recognised
        except Exception:  # noqa: BLE001 - a redactor that fails must not leak its input
            _log.warning("the text of a tool's error could not be redacted and is left out", exc_info=True)
            return type(error).__name__

    def _emit(
        self,
        emit: Callable[[Event], object],
        type: EventType,
        who: Quadruple,
        payload: Payload,
        at: datetime | None = None,
    ) -> None:
        try:
            emit(Event(type, who, payload, at))
        except Exception:  # noqa: BLE001 - publishing is best effort: the call's own outcome counts
            _log.warning("%s of a tool could not be published", type, exc_info=True)


async def _behind(before: Callable[[], Awaitable[None]], run: Callable[[], Awaitable[T]]) -> T:
    await before()
    return await run()


def _check_value(check: Callable[[Any], None], result: ToolResult) -> None:
    check(result.value)
