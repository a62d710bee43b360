"""`RunLoop`: the run loop as an object that an embedder builds once, for many runs.

It composes the loop's parts in one process and keeps no journal: a run lives as long as the call. The assembled
runtime runs the same loop on a durable host instead.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from harborage.callables import require_async, require_sync
from harborage.clock import SYSTEM_CLOCK, Clock, timers_of
from harborage.concurrency import CLOSE_GRACE_S, Crew
from harborage.errors import InvalidOptionError, error_reason, one_of
from harborage.identity import Identity, bound, require_quadruple
from harborage.ids import new_id
from harborage.planner import Budget, Finish, RunContext, Trajectory, check_planner, ends_at_step_limit
from harborage.runtime.durable.mailbox import Mailbox
from harborage.runtime.durable.recorder import Recorder
from harborage.runtime.effects.approval.gate import ApprovalGate
from harborage.runtime.effects.completion import withdraw_unanswered
from harborage.runtime.effects.control_history import MAX_CONTROL_HISTORY, ControlHistory
from harborage.runtime.effects.executor import catalog_executor, known_tools
from harborage.runtime.effects.gates import Gates
from harborage.runtime.effects.ledger import RunLedger
from harborage.runtime.effects.run_resources import LiveRun
from harborage.runtime.effects.services import AgentServices
from harborage.runtime.effects.table import AgentEffects
from harborage.runtime.effects.user_code import PlannerLimit
from harborage.runtime.loop.dispatch import Acting, dispatch, dispatch_by_executor
from harborage.runtime.loop.errors import InboxNotFoundError, NoPlannerError, RunLoopMisconfiguredError
from harborage.runtime.loop.limits import Caps, Spent
from harborage.runtime.loop.loop import Dispatch, run_loop
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome
from harborage.runtime.loop.run_spec import DEFAULT_MAX_STEPS, RunSpec
from harborage.runtime.loop.state import ControlErrors, RunState

if TYPE_CHECKING:
    from harborage.events import EventBus
    from harborage.runtime.durable.inbox import Inbox, InboxRegistry
    from harborage.runtime.durable.pauses.coordinator import Coordinator
    from harborage.runtime.loop.controls import AppliedControl
    from harborage.runtime.loop.seam import Durable
    from harborage.tasks import TaskRegistry

T = TypeVar("T")

_RECHECK = timedelta(seconds=30)
_PLANNER_TIMEOUT = timedelta(hours=1)


class RunLoop:
    """Drives planners to their finish, steered through the inboxes of `registry`; shared by any number of runs.

    Without `task_registry` a PRIORITIZE fails; without `bus` no events are published. `approval_gates` are the gates in
    front of tools, by tool name, or one gate in front of all tools, whenever they are registered: a call of such a tool
    passes its gate before any executor gets it. `control_errors` is what a control that cannot be applied does: `fail`
    ends the run, `reject` records the control as failed, and the run continues. `planner_timeout` is how long a planner
    may take for one decision; then its run fails.

    Raises:
        RunLoopMisconfiguredError: no registry or no coordinator, or a gate that could never be asked or answered.
        InvalidOptionError: `planner_timeout` is no duration above 0.
        CallbackKindError: the hook is not async.
    """

    def __init__(
        self,
        registry: InboxRegistry | None,
        coordinator: Coordinator | None,
        *,
        task_registry: TaskRegistry | None = None,
        bus: EventBus | None = None,
        hard_cancel_hook: Callable[[str], Awaitable[None]] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        max_control_history: int = MAX_CONTROL_HISTORY,
        approval_gates: ApprovalGate | Mapping[str, ApprovalGate] | None = None,
        pause_status_recheck_interval: timedelta = _RECHECK,
        control_errors: ControlErrors | str = ControlErrors.FAIL,
        planner_timeout: timedelta = _PLANNER_TIMEOUT,
        logger: logging.Logger | None = None,
    ) -> None:
        require_async(hard_cancel_hook, "hard_cancel_hook")
        self._planner_timeout_s = _timeout_s(planner_timeout)
        self._registry = _required(registry, "an inbox registry")
        self._history = ControlHistory(max_control_history)
        self._logger = logging.getLogger(__name__) if logger is None else logger
        self._recheck = pause_status_recheck_interval if pause_status_recheck_interval > timedelta() else _RECHECK
        self._services = AgentServices(
            pauses=_required(coordinator, "a pause coordinator"),
            bus=bus,
            tasks=task_registry,
            history=self._history,
            gates=_gates(approval_gates, coordinator),
            clock=timers_of(clock),
            stamp=clock,
            control_errors=one_of(ControlErrors, control_errors, "control_errors"),
            hard_cancel_hook=hard_cancel_hook,
            stragglers=Crew(lambda name, error: self._logger.info("%s ended late: %s", name, error_reason(error))),
            logger=self._logger,
        )

    def control_history(self, session_id: str, *, who: Identity | None = None) -> list[AppliedControl]:
        """Return the controls applied to the session's runs, oldest first, failed ones too; by default the newest 256.

        Raises:
            IdentityRequiredError: without `who` or an ambient identity, when several owners have such a session.
        """
        return self._history.of(session_id, who=who)

    async def run(self, spec: RunSpec) -> Finish:
        """Drive one run to its finish. Its inbox is open meanwhile and is always retired, on errors too.

        Raises:
            InvalidOptionError: the spec is none, or a field of it has a value of another type.
            NoPlannerError: the spec has no planner.
            RunLoopMisconfiguredError: the deadline of the base context has no time zone.
            IdentityRequiredError: the base context's quadruple is incomplete.
            RunLoopMisconfiguredError: a gated tool is not in the catalog that the run's tools come from.
            InvalidConfigError: the planner is none, such as one whose `next` is not async.
            CallbackKindError: a callback of the spec or of its base context is async and must not be, or must be.
            InboxExistsError: this run is running already.
            MaxStepsExceededError: the planner used up its steps.
            Exception: what the planner, or a control under `control_errors="fail"`, raised.
        """
        if not isinstance(spec, RunSpec):
            raise InvalidOptionError("RunLoop.run: spec", spec, "a RunSpec(planner=…, base=…)")
        spec.check()  # its fields may have been set since
        if spec.planner is None:
            raise NoPlannerError()
        require_quadruple(None if spec.base is None else spec.base.quadruple, "run")
        assert spec.base is not None
        _check_callbacks(spec, spec.base)
        self._check_gates(spec)
        _check_deadline(spec.base.budget)
        inbox = self._registry.open(spec.base.quadruple)
        try:
            with bound(spec.base.quadruple):
                return await self._execute(spec, spec.base, inbox)
        finally:
            self._retire(inbox)

    def _check_gates(self, spec: RunSpec) -> None:
        """Refuse a run whose catalog lacks a gated tool: a gate under a misspelt name would guard nothing.

        The catalog is that of the executor, be it wrapped in one of an embedder.
        """
        names = known_tools(spec.tool_executor)
        if names is None:
            return  # only an embedder's executor knows the names of its tools
        unknown = [name for name in self._services.gates.names if name not in names]
        if unknown:
            known = ", ".join(names) or "none"
            raise RunLoopMisconfiguredError(
                f"approval_gates name tools that the run's catalog does not hold: {', '.join(sorted(unknown))}; "
                f"it holds: {known}. Correct the name, or give runs over another catalog a RunLoop of their own"
            )

    def _retire(self, inbox: Inbox) -> None:
        """End the run's inbox, unless it was ended already: then another run of this identity may have one by now."""
        try:
            is_ours = self._registry.lookup(inbox.identity) is inbox
        except InboxNotFoundError:
            is_ours = False
        if is_ours:
            self._registry.retire(inbox.identity)

    def _ledger(self, base: RunContext) -> RunLedger | None:
        """Return the run's ledger: the limits of its base context, with what was spent before."""
        budget = base.budget
        caps = Caps(
            steps=budget.hop_budget if budget.hop_budget >= 0 else None,
            calls=budget.call_cap if budget.call_cap > 0 else None,
            tokens=budget.token_cap if budget.token_cap > 0 else None,
            cost=budget.cost_cap if budget.cost_cap > 0 else None,
        )
        if caps.is_open:
            return None
        spent = Spent(calls=budget.calls_made, tokens=budget.tokens_spent, cost=budget.cost_spent)
        return RunLedger(base.quadruple, caps, clock=self._services.clock, spent=spent, logger=self._logger)

    def _first_state(self, spec: RunSpec, base: RunContext) -> RunState:
        return RunState(
            who=base.quadruple,
            goal=base.goal,
            trajectory=base.trajectory if base.trajectory is not None else Trajectory(query=base.query),
            task_id=spec.task_id,
            max_steps=spec.max_steps if spec.max_steps > 0 else DEFAULT_MAX_STEPS,
            has_last_word=ends_at_step_limit(spec.planner),
            signals=base.control,
            pending=tuple(base.pending_tool_calls),
            gated_tools=self._services.gates.current(),
        )

    async def _execute(self, spec: RunSpec, base: RunContext, inbox: Inbox) -> Finish:
        crew = Crew(
            lambda name, error: self._logger.error("%s of run %s: %s", name, base.quadruple.run_id, error_reason(error))
        )
        clock = self._services.clock
        limit = PlannerLimit(self._planner_timeout_s, clock, option="RunLoop(planner_timeout=…)")
        effects = AgentEffects(msgspec.structs.replace(self._services, planner_limit=limit))
        mailbox = Mailbox(
            inbox,
            self._services.pauses,
            crew,
            clock=clock,
            deadline=base.budget.deadline,
            recheck_s=self._recheck.total_seconds(),
        )
        live = LiveRun(
            base=base,
            planner=spec.planner,  # type: ignore[arg-type]
            mailbox=mailbox,
            crew=crew,
            tool_executor=spec.tool_executor,
            compression=spec.compression,
            on_dispatched=spec.on_tool_dispatched,
            nonce=new_id(),
            ledger=self._ledger(base),
        )
        state = self._first_state(spec, base)
        carry_out: Dispatch = dispatch_by_executor
        if catalog_executor(spec.tool_executor) is not None:
            carry_out = partial(_over_catalog, services=self._services, hook=spec.on_tool_dispatched)
        recorder = Recorder(base.quadruple.run_id, effects.table(), None, mailbox, clock=clock, crew=crew)
        effects.admit(live)
        effects.connect(live)
        try:
            finish = await run_loop(state, recorder, carry_out)
            await mailbox.wait_for_answers()
            if live.hard_cancel is not None and live.hard_cancel.is_fired:
                await live.hard_cancel.wait()
            await withdraw_unanswered(self._services, live)
            return finish
        except BaseException:
            # After a cancellation too: without a journal no worker can resume the run from this pause.
            if state.pause is not None:
                await recorder.step("pause.abandon", state.pause)
            await withdraw_unanswered(self._services, live)
            raise
        finally:
            await limit.aclose()
            mailbox.close()
            left = await crew.aclose(clock=clock, grace_s=CLOSE_GRACE_S)
            if left:
                self._logger.warning("abandoned, ignoring their cancellation: %s", ", ".join(left))


def _check_deadline(budget: Budget) -> None:
    if budget.deadline is not None and budget.deadline.tzinfo is None:
        raise RunLoopMisconfiguredError("RunLoop: budget.deadline needs a time zone")


_BASE_CALLBACKS = ("clock", "emit", "on_chunk", "on_reasoning", "on_assistant_content", "on_pending_tool_calls")


def _check_callbacks(spec: RunSpec, base: RunContext) -> None:
    check_planner(spec.planner)
    require_async(spec.on_tool_dispatched, "on_tool_dispatched")
    if spec.tool_executor is not None:
        require_async(spec.tool_executor.execute_decision, "tool_executor.execute_decision")
    for name in _BASE_CALLBACKS:
        require_sync(getattr(base, name), f"base.{name}")


def _timeout_s(given: object) -> float:
    if not isinstance(given, timedelta) or given <= timedelta():
        raise InvalidOptionError("RunLoop: planner_timeout", given, "a duration above 0")
    return given.total_seconds()


def _required(part: T | None, name: str) -> T:
    if part is None:
        raise RunLoopMisconfiguredError(f"RunLoop needs {name}")
    return part


def _gates(gates: ApprovalGate | Mapping[str, ApprovalGate] | None, coordinator: Coordinator | None) -> Gates:
    """Return the gates of the tools, whose calls are answered through the loop."""
    if isinstance(gates, ApprovalGate):
        _check_coordinator(gates, coordinator, "approval_gates")
        return Gates(for_all=gates)
    if gates is not None and not isinstance(gates, Mapping):
        raise RunLoopMisconfiguredError(
            f"approval_gates is {type(gates).__name__}; pass one ApprovalGate for all tools, or a mapping by tool name"
        )
    kept: dict[str, ApprovalGate] = {}
    for name, gate in ({} if gates is None else gates).items():
        if not name:
            raise RunLoopMisconfiguredError(f"approval_gates: {name!r} names no tool, so its gate would never be asked")
        if not isinstance(gate, ApprovalGate):
            raise RunLoopMisconfiguredError(
                f"approval_gates[{name!r}] is {type(gate).__name__}, not an ApprovalGate, and would never be asked; "
                "pass ApprovalGate(policy, coordinator, bus, redactor), or leave a tool out that needs no approval"
            )
        _check_coordinator(gate, coordinator, f"approval_gates[{name!r}]")
        kept[name] = gate
    return Gates(kept)


def _check_coordinator(gate: ApprovalGate, coordinator: Coordinator | None, where: str) -> None:
    if gate.coordinator is not coordinator:
        raise RunLoopMisconfiguredError(
            f"{where} opens its pauses at another coordinator than the loop's, which would show and resolve none of "
            "them; pass the same coordinator to both"
        )


async def _over_catalog(
    decision: Acting, run: RunState, io: Durable, *, services: AgentServices, hook: Callable[[], Awaitable[None]] | None
) -> ToolOutcome:
    """Execute a decision as the assembled runtime does, and call `hook` after it."""
    outcome = await dispatch(decision, run, io)
    if hook is not None and outcome.status is OutcomeStatus.DONE:
        await services.leavable(hook(), "on_tool_dispatched", run.who)
    return outcome
