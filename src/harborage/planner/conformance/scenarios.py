"""The scenarios that need a planner and a context, each of which states one promise."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from harborage import codec
from harborage.concurrency import together
from harborage.errors import HarborageError
from harborage.identity import Quadruple
from harborage.planner.conformance.harness import Canned, Capabilities
from harborage.planner.conformance.payload import (
    MAX_PAYLOAD_BYTES,
    MAX_PAYLOAD_DEPTH,
    MAX_PAYLOAD_KEYS,
    payload_depth,
    payload_keys,
)
from harborage.planner.conformance.report import PromiseBrokenError, expect
from harborage.planner.context import Budget, ControlSignals, Planner, RunContext, resolve_wake_mode
from harborage.planner.decisions import (
    DECISION_KINDS,
    CallParallel,
    Finish,
    RequestPause,
    check_decision,
    decision_kind,
)
from harborage.planner.enums import FinishReason, JoinKind, PauseReason, WakeMode

if TYPE_CHECKING:
    from harborage.planner.conformance.bench import Bench

__all__ = [
    "an_overdue_run_gets_an_answer",
    "cancelled_runs_finish_as_cancelled",
    "canned_answers_become_decisions",
    "garbage_is_survived",
    "next_returns_a_decision",
    "one_instance_serves_many_runs",
    "parallel_calls_are_whole",
    "pause_payloads_keep_their_bounds",
    "the_decision_is_one_of_six",
    "the_wake_mode_is_declared",
]

_CONCURRENT_RUNS = 64
_TURNS = 8
_PAST = timedelta(hours=-1)
_WANTED = {
    Canned.CALL_TOOL: ("CallTool",),
    Canned.FINISH: ("Finish",),
    # A planner may make calls one at a time: the first of them is a decision too.
    Canned.CALL_PARALLEL: ("CallParallel", "CallTool"),
}


async def next_returns_a_decision(bench: Bench) -> None:
    """A fresh run gets a decision, and no error."""
    decision = await _asked(await bench.planner(), await bench.context())
    expect(decision is not None, "next returned None; return a decision, or raise")
    if decision_kind(decision) in DECISION_KINDS:
        check_decision(decision)


async def the_wake_mode_is_declared(bench: Bench) -> None:
    """The planner's wake mode is one of the three, and the one that the harness says."""
    mode = resolve_wake_mode(await bench.planner())
    expect(mode in WakeMode, f"wake_mode {mode!r} is unknown; use one of {', '.join(WakeMode)}")
    expect(mode == bench.harness.wake_mode, f"wake_mode is {mode}, the harness says {bench.harness.wake_mode}")


async def the_decision_is_one_of_six(bench: Bench) -> None:
    """A decision is one of the six, and nothing else."""
    decision = await _asked(await bench.planner(), await bench.context())
    kind = type(decision).__name__
    expect(decision_kind(decision) in DECISION_KINDS, f"next returned a {kind}, not one of {', '.join(DECISION_KINDS)}")


async def canned_answers_become_decisions(bench: Bench) -> None:
    """What a model answers when it calls a tool, finishes, or calls several tools becomes the decision it means."""
    for name, wanted in _WANTED.items():
        decision = await _asked(await bench.canned(name), await bench.context())
        kind = decision_kind(decision)
        expect(kind in wanted, f"the canned answer {name} became {kind}, not {' or '.join(wanted)}")
        check_decision(decision)


async def garbage_is_survived(bench: Bench) -> None:
    """A model that answers garbage leads to a decision or to a planner's own error, never to a crash or to nothing."""
    bench.require(Capabilities.LLM_DRIVEN)
    planner, context = await bench.canned(Canned.MALFORMED), await bench.context()
    try:
        decision = await planner.next(context)
    except HarborageError:
        return
    except Exception as error:
        raise PromiseBrokenError(f"garbage crashed the planner: {type(error).__name__}: {error}") from error
    expect(decision_kind(decision) in DECISION_KINDS, f"garbage led to {decision!r}, neither a decision nor an error")


async def parallel_calls_are_whole(bench: Bench) -> None:
    """A parallel call has branches, names every tool, and joins in a way that is known; other decisions may come."""
    planner = await bench.canned_or_own(Canned.CALL_PARALLEL)
    decision = await _asked(planner, await bench.context())
    if not isinstance(decision, CallParallel):
        return
    expect(bool(decision.branches), "the parallel call has no branches")
    for index, branch in enumerate(decision.branches):
        expect(bool(getattr(branch, "tool", "")), f"branch {index} of the parallel call names no tool")
    if decision.join is not None:
        expect(decision.join.kind in JoinKind, f"the parallel call's join {decision.join.kind!r} is unknown")


async def an_overdue_run_gets_an_answer(bench: Bench) -> None:
    """A run whose deadline passed an hour ago gets a decision or an error, never nothing."""
    planner, context = await bench.planner(), await bench.context()
    context.budget = Budget(deadline=context.now() + _PAST)
    try:
        decision = await planner.next(context)
    except Exception:  # noqa: BLE001 - an error is an answer; nothing is none
        return
    expect(decision_kind(decision) in DECISION_KINDS, f"the overdue run got {decision!r}")


async def pause_payloads_keep_their_bounds(bench: Bench) -> None:
    """A pause has a known reason, and a payload that is not too deep, too wide or too large."""
    bench.require(Capabilities.CAN_PAUSE)
    planner = await bench.canned_or_own(Canned.PAUSE)
    decision = await _asked(planner, await bench.context())
    if not isinstance(decision, RequestPause):
        raise PromiseBrokenError(f"the planner claims CAN_PAUSE and returned {decision_kind(decision)}")
    expect(decision.reason in PauseReason, f"the pause's reason {decision.reason!r} is unknown")
    payload = decision.payload
    # The depth comes first: measuring something endless would never end.
    _bound("levels", payload_depth(payload), MAX_PAYLOAD_DEPTH)
    _bound("keys", payload_keys(payload), MAX_PAYLOAD_KEYS)
    _bound("bytes of JSON", codec.canonical_size(payload, "payload"), MAX_PAYLOAD_BYTES)


async def cancelled_runs_finish_as_cancelled(bench: Bench) -> None:
    """A run that steering cancelled finishes as cancelled at its next step."""
    bench.require(Capabilities.HONOURS_CANCEL_CONTROL)
    planner, context = await bench.planner(), await bench.context()
    context.control = ControlSignals(cancelled=True)
    decision = await _asked(planner, context)
    is_cancelled = isinstance(decision, Finish) and decision.reason == FinishReason.CANCELLED
    expect(is_cancelled, f"a cancelled run got {decision!r}, not Finish(cancelled)")


async def one_instance_serves_many_runs(bench: Bench) -> None:
    """64 runs at once on one planner each get their own answer, and no task is left behind."""
    planner = await bench.planner()
    contexts = [await bench.context() for _ in range(_CONCURRENT_RUNS)]
    for number, context in enumerate(contexts):
        who = context.quadruple
        context.quadruple = Quadruple(who.tenant_id, who.user_id, who.session_id, f"{who.run_id}-{number}")
    before = asyncio.all_tasks()
    decisions = await together(*(_asked(planner, context) for context in contexts))
    for context, decision in zip(contexts, decisions, strict=True):
        _check_own(context, decision)
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    left = sorted(task.get_name() for task in asyncio.all_tasks() - before)
    expect(not left, f"the planner left tasks running: {', '.join(left)}")


async def _asked(planner: Planner, context: RunContext) -> object:
    """What the planner returned, whatever it is."""
    return await planner.next(context)


def _check_own(context: RunContext, decision: object) -> None:
    own = context.quadruple.run_id
    expect(decision is not None, f"run {own} got None")
    metadata = decision.metadata if isinstance(decision, Finish) else None
    told = (metadata or {}).get("run_id", own)
    expect(told == own, f"run {own} was told that it is {told}")


def _bound(what: str, found: int, limit: int) -> None:
    expect(found <= limit, f"the pause's payload has {found} {what}, at most {limit} are allowed")
