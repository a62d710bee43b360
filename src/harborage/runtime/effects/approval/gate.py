"""The gate in front of a tool: a call that needs approval waits here until a person, or its deadline, decides.

The gate opens pauses on the coordinator; a resolved pause wakes its call. No tool runs here.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

import msgspec
from msgspec import UNSET, UnsetType

from harborage import codec
from harborage.clock import SYSTEM_CLOCK, Timers
from harborage.errors import InvalidOptionError
from harborage.events import (
    Event,
    EventBus,
    EventType,
    Payload,
    Redactor,
    ToolApprovalRequestedPayload,
    ToolApprovedPayload,
    ToolRejectedPayload,
    Triple,
    shown_value,
)
from harborage.identity import Identity, Quadruple, require_triple
from harborage.planner.decisions import PauseReason
from harborage.runtime.durable.pauses.errors import AlreadyResumedError
from harborage.runtime.effects.approval.answering import RECHECK_S, WaitingCall, check_answer, check_decision
from harborage.runtime.effects.approval.errors import (
    ApprovalCancelledError,
    ApprovalMismatchError,
    ApprovalNotFoundError,
    ApprovalUnrecordedError,
    BusRequiredError,
    CoordinatorRequiredError,
    GateClosedError,
    InvalidApprovalError,
    PolicyFailedError,
    PolicyRequiredError,
    RedactorRequiredError,
)
from harborage.runtime.effects.approval.model import (
    ApprovalDecision,
    ApprovalRequest,
    Granted,
    Refused,
    answer_payload,
    fingerprint_of,
    judge,
    patched_args,
    request_payload,
)
from harborage.runtime.effects.user_code import bounded
from harborage.runtime.loop.pauses import Pause, PauseDecision, PauseRequest
from harborage.tools.errors import ToolRejectedError

if TYPE_CHECKING:
    from harborage.events.bus import RunWriter
    from harborage.runtime.durable.pauses.coordinator import Coordinator
    from harborage.runtime.effects.approval.grants import Grants
    from harborage.runtime.effects.approval.model import ApprovalPolicy, PolicyAnswer
    from harborage.runtime.loop.controls import Remember

_log = logging.getLogger(__name__)

DEFAULT_TIMEOUT = timedelta(days=7)
POLICY_TIMEOUT_S = 60.0
"""Seconds that a policy gets to decide whether a call needs approval; one that takes longer has failed."""


class ApprovalGate:
    """Approval for the calls of one tool, or of several. Safe for many calls and answers on one event loop.

    `timeout` is how long a call waits before `default` decides; None waits without end. Every
    `recheck_s` seconds a waiting call checks whether another process has resolved its pause. `grants` are the approvals
    that hold beyond their call; without them none can be remembered.

    Raises:
        PolicyRequiredError, CoordinatorRequiredError, BusRequiredError, RedactorRequiredError: that part is None.
        InvalidOptionError, ApprovalDecisionError: `policy` or `timeout`, or `default`, has an invalid value.
    """

    def __init__(
        self,
        policy: ApprovalPolicy | None,
        coordinator: Coordinator | None,
        bus: EventBus | None,
        redactor: Redactor | None,
        *,
        timeout: timedelta | None = DEFAULT_TIMEOUT,
        default: ApprovalDecision = ApprovalDecision.REJECT,
        clock: Timers = SYSTEM_CLOCK,
        recheck_s: float = RECHECK_S,
        grants: Grants | None = None,
    ) -> None:
        if policy is None:
            raise PolicyRequiredError()
        if coordinator is None:
            raise CoordinatorRequiredError()
        if bus is None:
            raise BusRequiredError()
        if redactor is None:
            raise RedactorRequiredError()
        if not callable(policy):
            raise InvalidOptionError("policy", policy, "a callable that returns whether a request needs approval")
        if timeout is not None and timeout < timedelta():
            raise InvalidOptionError("timeout", timeout, "a time to wait, or None for one without end")
        self._policy = policy
        self._coordinator = coordinator
        self._bus = bus
        self._redactor = redactor
        self._timeout = timeout
        self._default = PauseDecision(check_decision(default))
        self._clock = clock
        self._grants = grants
        self._recheck_s = recheck_s if recheck_s > 0 else RECHECK_S
        self._waiting: dict[str, WaitingCall] = {}
        self._granted: list[str] = []
        self._is_closed = False

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator on which its pauses are opened."""
        return self._coordinator

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens under which calls wait, oldest first."""
        return tuple(self._waiting)

    def owner(self, token: str) -> Quadruple | None:
        """Return the identity whose call waits here under this token; None if there is none."""
        call = self._waiting.get(token)
        return None if call is None or call.is_being_answered else call.request.identity

    def idle_pause(self, key: str) -> Pause | None:
        """Return the pause for which the call with this key waits; None while it does anything else."""
        calls = (call for call in self._waiting.values() if call.request.key == key)
        return next((call.pause for call in calls if call.is_idle and not call.is_being_answered), None)

    async def run_guarded(
        self,
        request: ApprovalRequest,
        *,
        on_waiting: Callable[[], None] | None = None,
        objection: Callable[[bytes], str] | None = None,
        write: RunWriter | None = None,
        is_repeated: bool = False,
    ) -> bytes:
        """Return the arguments that the call may run with: its own, or those of its approver.

        `on_waiting` is called once the call can be answered here. `objection` returns why the tool does not take an
        approver's arguments: such an answer is refused, and the call keeps waiting. A cancellation while waiting is
        passed on, with `ApprovalCancelledError` as its cause; the pause stays open. `write` is how the run of the call
        commits, and `is_repeated` says that it may have opened the pause of this call before.

        Raises:
            GateClosedError, InvalidApprovalError, IdentityRequiredError, PolicyFailedError: in this order.
            RedactionFailedError: the arguments or the reason of the policy cannot be shown; no approval was requested.
            ToolRejectedError: the call may not run.
            InvalidApprovalError: a call under the same key waits here already.
            ApprovalMismatchError: the same key belongs to another call.
            ApprovalUnrecordedError: approved, but that could not be announced.
        """
        self._check(request)
        if self._granted and self._takes_grant(request):
            return request.args
        is_required, reason = await self._ask_policy(request)
        if not is_required:
            return request.args
        # A call that may have asked already waits for its answer.
        if self._grants is not None and not is_repeated and await self._grants.find(request) is not None:
            return request.args
        reason = str(self._redactor.redact(reason))  # it is stored with the pause, and shown to the approver
        summary = self._redactor.redact({"args": _shown(request.args), "tool": request.tool})
        pause = await self._open(request, reason, summary, write=write, is_repeated=is_repeated)
        with self._register(request, pause) as call:
            call.objection = objection
            try:
                if pause.is_paused and not self._commits_events(write):
                    await self._bus.publish(self._requested(request, reason, summary, pause.token))
                if on_waiting is not None:
                    on_waiting()
                resolved = await call.wait()
            except asyncio.CancelledError as cancelled:
                # The same exception is raised: asyncio.timeout and TaskGroup know only the class itself.
                raise cancelled from ApprovalCancelledError(pause.token, request.tool)
        return await self._conclude(request, resolved)

    @contextmanager
    def granted(self, request: ApprovalRequest) -> Iterator[None]:
        """Let the call of `request`, which this gate has approved, pass it once more without another approval.

        For a loop that uses the gate before it passes a decision to an executor that may use it, too. A grant that is
        not used inside the block is void after it.
        """
        fingerprint = _fingerprint(request)
        self._granted.append(fingerprint)
        try:
            yield
        finally:
            if fingerprint in self._granted:
                self._granted.remove(fingerprint)

    def _takes_grant(self, request: ApprovalRequest) -> bool:
        fingerprint = _fingerprint(request)
        if fingerprint not in self._granted:
            return False
        self._granted.remove(fingerprint)
        return True

    async def resolve_approval(
        self,
        token: str,
        decision: ApprovalDecision,
        reason: str = "",
        *,
        args: bytes | None = None,
        args_patch: dict[str, Any] | None = None,
        remember: Remember | None = None,
        who: Identity | Quadruple | None = None,
        by: Identity | UnsetType | None = UNSET,
        event_id: str = "",
        scopes: frozenset[str] | None = None,
        write: RunWriter | None = None,
    ) -> Pause:
        """Answer a waiting call, once; return the resolved pause. With `args` an approval replaces the arguments, with
        `args_patch`, a JSON merge patch, it changes some of them; with `remember` it holds for calls like it, too.

        `who` answers, by default the ambient identity, with `scopes`, by default the ambient ones. `by` sent the
        answer, by default `who`, under `event_id`.

        Raises:
            GateClosedError, ApprovalDecisionError, InvalidApprovalError, ApprovalScopeRequiredError,
            ApprovalNotFoundError: in this order.
            InvalidApprovalError: the tool does not take the changed arguments, or nothing can be remembered here; the
                call keeps waiting.
            PauseScopeMismatchError: the call belongs to another identity; it keeps waiting.
            ApprovalMismatchError: the pause was opened for another call; this one is refused.
        """
        self._check_open()
        chosen, held = check_answer(decision, args, scopes)
        redacted = str(self._redactor.redact(reason))
        call = self._waiting.get(token)
        if call is None or call.is_being_answered:
            raise ApprovalNotFoundError(token)
        if remember is not None and (self._grants is None or chosen is not ApprovalDecision.APPROVE):
            raise InvalidApprovalError("only an approval is remembered, and only by a runtime that keeps grants")
        if args_patch is not None:
            if args is not None or chosen is not ApprovalDecision.APPROVE:
                raise InvalidApprovalError("a patch of the arguments comes with an approval, and without others")
            args = patched_args(call.request.args, args_patch)
        if args is not None and call.objection is not None and (reason_against := call.objection(args)):
            raise InvalidApprovalError(f"{call.request.tool!r} does not take these arguments: {reason_against}")
        resume = partial(self._coordinator.resume, who=who, by=by, event_id=event_id, scopes=held, write=write)
        resolved = await self._resolve(call, chosen, redacted, args, remember, resume)
        if (resolved.payload or {}).get("fingerprint") != _fingerprint(call.request):
            raise ApprovalMismatchError(token, call.request.tool)
        return resolved.shown()

    async def aclose(self) -> None:
        """End the waiting calls with GateClosedError and accept no more. Closing twice does nothing."""
        self._is_closed = True
        for call in tuple(self._waiting.values()):
            call.abort()

    def _check_open(self) -> None:
        if self._is_closed:
            raise GateClosedError()

    def _check(self, request: ApprovalRequest) -> None:
        self._check_open()
        if not request.tool:
            raise InvalidApprovalError("a call needs the name of its tool")
        require_triple(request.identity, "approval")

    async def _ask_policy(self, request: ApprovalRequest) -> tuple[bool, str]:
        try:
            asked = self._policy(request)
            answer = await self._awaited(asked, request) if inspect.isawaitable(asked) else asked
            if isinstance(answer, bool):
                return answer, "policy: approval required" if answer else ""
            is_required, reason = answer
            return bool(is_required), str(reason)
        except Exception as error:
            raise PolicyFailedError(request.tool) from error

    async def _awaited(self, asked: Awaitable[PolicyAnswer], request: ApprovalRequest) -> PolicyAnswer:
        def left(_: BaseException | None) -> None:
            _log.warning("the approval policy of %r was abandoned: it ignored its cancellation", request.tool)

        return await bounded(asked, POLICY_TIMEOUT_S, clock=self._clock, on_left=left)

    async def _open(
        self, request: ApprovalRequest, reason: str, summary: Any, *, write: RunWriter | None, is_repeated: bool
    ) -> Pause:
        """Return the pause of this call: a new one, or the one that was opened under its key."""
        fingerprint = _fingerprint(request)
        pause = await self._coordinator.request(
            PauseRequest(
                identity=request.identity,
                reason=PauseReason.APPROVAL_REQUIRED,
                payload=request_payload(request, reason, summary, fingerprint),
                deadline=self._deadline(request),
                default=self._default,
                key=request.key and f"approval:{request.key}",
                step=request.step,
                call_id=request.call_id,
                is_masked=shown_value(self._redactor, request.args).masked is True,
            ),
            write=write,
            is_repeated=is_repeated,
            announce=partial(self._requested, request, reason, summary) if self._commits_events(write) else None,
        )
        if (pause.payload or {}).get("fingerprint") != fingerprint:
            raise ApprovalMismatchError(pause.token, request.tool)
        return pause

    def _deadline(self, request: ApprovalRequest) -> datetime | None:
        """Return the deadline of an answer. The run's deadline counts too, but never approves a call by default."""
        own = None if self._timeout is None else self._clock.now() + self._timeout
        if request.deadline is None or self._default is not PauseDecision.REJECT:
            return own
        return request.deadline if own is None else min(own, request.deadline)

    @contextmanager
    def _register(self, request: ApprovalRequest, pause: Pause) -> Iterator[WaitingCall]:
        """Register a waiting call for the duration of the block."""
        self._check_open()
        if pause.token in self._waiting:
            raise InvalidApprovalError(f"a call of {request.tool!r} waits under this key already")
        call = WaitingCall(request, pause, self._coordinator, self._clock, recheck_s=self._recheck_s)
        self._waiting[pause.token] = call
        try:
            yield call
        finally:
            del self._waiting[pause.token]
            call.close()

    def _commits_events(self, write: RunWriter | None) -> bool:
        """Whether the run commits the announcement of an approval with its pause."""
        return write is not None and self._coordinator.record_bus is self._bus

    async def _resolve(
        self,
        call: WaitingCall,
        decision: ApprovalDecision,
        reason: str,
        args: bytes | None,
        remember: Remember | None,
        resume: Callable[..., Awaitable[Pause]],
    ) -> Pause:
        """Resolve the pause of a call; if that fails, the call keeps waiting."""
        approved = call.request.args if args is None else args
        fingerprint = fingerprint_of(call.request.tool, approved, call.request.identity)
        payload = answer_payload(decision, reason, fingerprint, is_edited=args is not None, remember=remember)
        call.is_being_answered = True
        try:
            return await resume(call.token, PauseDecision(decision), payload, sealed=args, can_wait=True)
        except AlreadyResumedError as error:
            raise ApprovalNotFoundError(call.token) from error
        except BaseException:
            call.is_being_answered = False
            raise

    async def _conclude(self, request: ApprovalRequest, resolved: Pause) -> bytes:
        verdict = judge(resolved, request)
        match verdict:
            case Granted(args, reason, remember):
                if remember is not None and self._grants is not None:
                    allowed = msgspec.structs.replace(request, args=args)
                    shown = self._redactor.redact(_shown(args))
                    await self._grants.add(allowed, remember, shown=shown, by=resolved.answered_by)
                approved = ToolApprovedPayload(
                    tool=request.tool,
                    pause_token=resolved.token,
                    approver_reason=reason,
                    step=request.step or UNSET,
                    call_id=request.call_id or UNSET,
                    edited=args != request.args,
                    **_answered(resolved),
                )
                try:
                    await self._publish(EventType.TOOL_APPROVED, request, approved)
                except Exception as error:
                    raise ApprovalUnrecordedError(resolved.token, request.tool, args) from error
                return args
            case Refused(reason):
                rejected = ToolRejectedPayload(
                    tool=request.tool,
                    pause_token=resolved.token,
                    reason=reason,
                    step=request.step or UNSET,
                    call_id=request.call_id or UNSET,
                    **_answered(resolved),
                )
                refusal = ToolRejectedError(request.tool, reason, request.identity)
                try:
                    await self._publish(EventType.TOOL_REJECTED, request, rejected)
                except Exception as error:
                    raise refusal from error
                raise refusal
            case _ as unreachable:
                assert_never(unreachable)

    def _requested(self, request: ApprovalRequest, reason: str, summary: Any, token: str) -> Event:
        """Return the event that announces an approval to those who may give it."""
        shown = shown_value(self._redactor, request.args)
        payload = ToolApprovalRequestedPayload(
            tool=request.tool,
            pause_token=token,
            reason=reason,
            tags=request.tags,
            args_summary=summary,
            step=request.step or UNSET,
            call_id=request.call_id or UNSET,
            args=shown.json,
            args_cut=shown.cut,
            masked=shown.masked,
        )
        return Event(type=EventType.TOOL_APPROVAL_REQUESTED, identity=request.identity, payload=payload)

    async def _publish(self, type: EventType, request: ApprovalRequest, payload: Payload) -> None:
        """Publish an event; if that fails, the call fails, since approvers act on it."""
        await self._bus.publish(Event(type=type, identity=request.identity, payload=payload))


def _answered(resolved: Pause) -> dict[str, Any]:
    """Return who answered, and under which event id; nothing where a deadline did, or the end of the run."""
    if resolved.answered_by is None:
        return {}
    return {"by": Triple.of(resolved.answered_by), "event_id": resolved.answering or UNSET}


def _fingerprint(request: ApprovalRequest) -> str:
    return fingerprint_of(request.tool, request.args, request.identity)


def _shown(args: bytes) -> Any:
    """Return the arguments for an approver, before redaction: decoded, or only their length if they are no JSON."""
    try:
        return codec.decode(args)
    except msgspec.DecodeError:
        return {"_nonjson_length": len(args)}
