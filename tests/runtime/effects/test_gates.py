"""Which calls of an assembled runtime wait for approval, and what becomes of them whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from harborage.clock import SYSTEM_CLOCK
from harborage.events import MemoryEventBus, PatternRedactor
from harborage.identity import Identity
from harborage.planner import CallParallel, CallTool, Finish, FinishReason, JoinKind, JoinSpec, RunContext
from harborage.runtime.approval import AlwaysApprove, AlwaysDeny, ApprovalRequest, BySideEffect, Tagged
from harborage.runtime.effects.gates import approval_gates
from harborage.runtime.host import Runtime
from harborage.runtime.pauses import Coordinator, PauseFilter, PauseState
from harborage.state.storage import Storage
from harborage.testing.clock import FakeClock, settle
from harborage.testing.planners import ScriptedPlanner
from harborage.tools import Loading, SideEffect, ToolCatalog, tool
from harborage.tools.errors import ToolNotFoundError
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

ME = Identity("t", "u", "s")
WRITE = CallTool("write", b'{"text":"a"}')
READ = CallTool("read", b'{"text":"b"}')
Runtimes = Callable[..., Awaitable[Any]]


@tool(effects=SideEffect.READ)
async def read(text: str) -> str:
    """Read."""
    return f"read {text}"


@tool(effects=SideEffect.WRITE, tags=("costly",))
async def write(text: str) -> str:
    """Write."""
    return f"wrote {text}"


@tool(loading=Loading.DEFERRED)
async def late(text: str) -> str:
    """Late."""
    return text


@tool(effects="write", approval="always")
async def pay(text: str) -> str:
    """Pay."""
    return f"paid {text}"


@tool(effects="write", approval=lambda call: call.arguments["text"] == "much")
async def refund(text: str) -> str:
    """Refund."""
    return f"refunded {text}"


def everything(run: RunContext) -> Finish:
    """Finish with all observations."""
    return Finish(FinishReason.GOAL, [step.observation for step in run.trajectory.steps])


async def custom(request: ApprovalRequest) -> tuple[bool, str]:
    """A policy of one's own, which is asked about each call."""
    return request.args == b'{"text":"a"}', "it says a"


class Careful(AlwaysApprove):
    """Derived from a policy that never asks; it asks about calls with certain arguments."""

    def __call__(self, request: ApprovalRequest) -> tuple[bool, str]:
        return b"a" in request.args, "it has an a"


class CarefulTagged(Tagged):
    """Derived from a policy that goes by the tags; it looks at the caller, too."""

    def __call__(self, request: ApprovalRequest) -> tuple[bool, str]:
        return (True, "a guest") if request.identity.user_id == ME.user_id else super().__call__(request)


def broken(request: ApprovalRequest) -> bool:
    raise LookupError("no rules")


@each_row(
    "policy, gated",
    [
        (None, []),
        (AlwaysApprove(), []),
        (AlwaysDeny(), ["late", "read", "write"]),
        (BySideEffect([SideEffect.WRITE]), ["write"]),
        (BySideEffect([SideEffect.READ, SideEffect.STATEFUL]), ["late", "read"]),
        (Tagged(["costly"]), ["write"]),
        (custom, ["late", "read", "write"]),
        ({"write": AlwaysDeny()}, ["write"]),
        ({"write": AlwaysApprove(), "late": custom}, ["late"]),
        ({}, []),
    ],
)
def test_only_tools_that_may_ever_need_approval_are_gated(policy: Any, gated: list[str]) -> None:
    """One policy is for all tools, deferred ones too; a mapping for those it names."""
    catalog = ToolCatalog()
    for one in (read, write, late):
        catalog.register(one)
    clock = FakeClock()
    gates = approval_gates(
        policy,
        catalog,
        Coordinator(clock=clock),
        MemoryEventBus(),
        PatternRedactor(),
        ttl=FakeClock().now() - clock.now(),
        clock=clock,
    )
    assert [tool.name for tool in catalog.tools if tool.name in gates.current()] == gated


def test_a_tool_that_needs_scopes_is_gated_like_any_other() -> None:
    """Whether a run may see a tool says nothing about whether its call must be approved."""
    catalog = ToolCatalog()
    catalog.register(tool(write.function, name="vault", auth_scopes=("vault",)))
    parts = (Coordinator(), MemoryEventBus(), PatternRedactor())
    for policy in (AlwaysDeny(), {"vault": AlwaysDeny()}):
        gates = approval_gates(policy, catalog, *parts, ttl=timedelta(days=1), clock=FakeClock())
        assert "vault" in gates.current()


async def test_a_policy_for_a_tool_that_is_not_there_is_refused(runtimes: Runtimes) -> None:
    """All such names at once: a typing error must not leave a tool unguarded."""
    with pytest.raises(ToolNotFoundError, match="unknown tools: reed, rite") as caught:
        await runtimes([everything], tools=[read, write], approvals={"rite": AlwaysDeny(), "reed": AlwaysDeny()})
    assert caught.value.id == "reed, rite"


async def test_a_policy_derived_from_a_built_in_one_is_asked_about_each_call(runtimes: Runtimes) -> None:
    """What the built-in policy never asks about, a class derived from it may: no gate is left out for it."""
    for policy in (Careful(), CarefulTagged(["other"]), {"write": Careful()}, {"write": CarefulTagged(["other"])}):
        bench = await runtimes([WRITE, everything], tools=[read, write], approvals=policy)
        run = await bench.start()
        pause = await bench.paused(run)
        assert pause.payload["tool"] == "write", f"{policy}: asked about another call"
        await run.reject(token=pause.token)
        assert "tool.invoked" not in bench.types("tool."), f"{policy}: the call was made without approval"


async def test_only_what_the_policy_wants_is_asked_about(runtimes: Runtimes) -> None:
    """The rest runs at once; the question shows tool, arguments and reason."""
    bench = await runtimes([READ, WRITE, everything], tools=[read, write], approvals=BySideEffect([SideEffect.WRITE]))
    run = await bench.start()
    pause = await bench.paused(run)
    assert (pause.payload["tool"], pause.payload["reason"]) == ("write", "policy: side effect write")
    await run.approve(pause.token)
    assert (await bench.end(run)).payload == ["read b", "wrote a"]
    assert bench.types("tool.") == [
        "tool.invoked",
        "tool.completed",
        "tool.approval_requested",
        "tool.approved",
        "tool.invoked",
        "tool.completed",
    ]


async def test_a_policy_of_ones_own_decides_by_the_call(runtimes: Runtimes) -> None:
    """It may be async, and sees arguments, tags and side effects."""
    seen: list[ApprovalRequest] = []

    async def look(request: ApprovalRequest) -> tuple[bool, str]:
        seen.append(request)
        return await custom(request)

    bench = await runtimes([READ, WRITE, everything], tools=[read, write], approvals=look)
    run = await bench.start()
    pause = await bench.paused(run)
    await run.reject("no", token=pause.token)
    observed = (await bench.end(run)).payload
    assert observed[0] == "read b"
    assert "no" in observed[1]["error"]
    assert [(one.tool, one.side_effects, one.tags, one.identity) for one in seen] == [
        ("read", SideEffect.READ, (), run.who),
        ("write", SideEffect.WRITE, ("costly",), run.who),
    ]


async def test_a_policy_that_fails_refuses_the_call(runtimes: Runtimes) -> None:
    """Nothing runs unasked; the planner sees why, and the run goes on."""
    bench = await runtimes([WRITE, everything], tools=[write], approvals={"write": broken})
    (observed,) = (await bench.run()).payload
    assert "write" in observed["error"]
    assert bench.types("tool.") == []


async def test_a_hard_cancel_withdraws_the_question(runtimes: Runtimes) -> None:
    """The call is not made, and no person is asked."""
    bench = await runtimes([WRITE], tools=[write], approvals=AlwaysDeny())
    run = await bench.start()
    pause = await bench.paused(run)
    await run.cancel(hard=True)
    assert (await bench.end(run)).metadata["steering_reason"] == "hard_cancel"
    assert await run.waiting() == []
    resolved = await bench.rt.pauses.status(pause.token, who=ME)
    assert (resolved.decision, resolved.payload["reason"]) == ("reject", "run ended")
    assert bench.types("tool.") == ["tool.approval_requested"]


async def test_branches_are_approved_one_by_one(runtimes: Runtimes) -> None:
    """Each has a question of its own; those that were answered keep their results."""
    calls = CallParallel((WRITE, READ, CallTool("write", b'{"text":"c"}')))
    bench = await runtimes([calls, everything], tools=[read, write], approvals={"write": AlwaysDeny()})
    run = await bench.start()
    await settle()
    first, second = sorted(await run.waiting(), key=lambda pause: pause.payload["args_summary"]["args"]["text"])
    await run.reject("not c", token=second.token)
    await settle()
    await run.approve(first.token)
    ((observed),) = (await bench.end(run)).payload
    assert [one.get("value") for one in observed["branches"]] == ["wrote a", "read b", None]
    assert "not c" in observed["branches"][2]["error"]


async def test_the_question_of_a_branch_that_lost_is_withdrawn_with_its_run(runtimes: Runtimes) -> None:
    """The race was won without it; once the run is over no person is asked any more."""
    calls = CallParallel((WRITE, READ), JoinSpec(JoinKind.FIRST_SUCCESS))
    bench = await runtimes([calls, everything], tools=[read, write], approvals={"write": AlwaysDeny()})
    run = await bench.start()
    await bench.end(run)
    assert await run.waiting() == []
    everybody = PauseFilter(states=(PauseState.PAUSED, PauseState.RESUMED))
    (resolved,) = (await bench.rt.pauses.list(everybody, who=ME)).rows
    assert resolved.decision == "reject"


async def test_many_calls_may_wait_at_one_gate(runtimes: Runtimes) -> None:
    """Of many runs; each is answered for itself, in any order."""
    bench = await runtimes([WRITE, everything], tools=[write], approvals=AlwaysDeny())
    runs = [await bench.start(who=Identity("t", "u", f"s{index}")) for index in range(32)]
    pauses = [await bench.paused(run) for run in runs]
    for index, (run, pause) in reversed(list(enumerate(zip(runs, pauses, strict=True)))):
        if index % 2:
            await run.approve(pause.token)
        else:
            await run.reject(f"not {index}", token=pause.token)
    for index, run in enumerate(runs):
        (observed,) = (await bench.end(run)).payload
        assert observed == "wrote a" if index % 2 else f"not {index}" in observed["error"]


async def test_closing_while_a_call_waits_leaves_the_question_open(runtimes: Runtimes) -> None:
    """The run may be resumed by another process, and the answer is still wanted there."""
    bench = await runtimes([WRITE], tools=[write], approvals=AlwaysDeny())
    run = await bench.start()
    pause = await bench.paused(run)
    pauses = bench.rt.pauses
    await bench.rt.aclose()
    await asyncio.sleep(0)
    assert (await pauses.status(pause.token, who=ME)).is_paused


async def test_no_approval_is_requested_for_a_call_that_cannot_be_made(runtimes: Runtimes) -> None:
    """A gated call whose arguments do not fit the tool goes back to the planner, which sees what is wrong."""
    wrong = CallTool("write", b'{"words":"a"}')
    bench = await runtimes([wrong, everything], tools=[read, write], approvals={"write": AlwaysDeny()})
    run = await bench.start()
    (seen,) = (await bench.end(run)).payload
    assert "words" in seen["error"]
    assert bench.types("tool.") == []
    assert bench.types("pause.") == []


async def test_a_policy_for_all_guards_tools_that_are_registered_later(runtimes: Runtimes) -> None:
    """The call waits for its approval under a policy of either kind, alone and as a branch; a read is not asked about
    where the policy lets reads pass."""
    policies = (AlwaysDeny(), BySideEffect([SideEffect.WRITE]), custom)
    for policy in policies:
        for decision in (WRITE, CallParallel((WRITE,))):
            bench = await runtimes([READ, decision, everything], tools=[read], approvals=policy)
            bench.rt.catalog.register(write)
            run = await bench.start()
            if policy is policies[0]:
                await run.approve((await bench.paused(run)).token)
            pause = await bench.paused(run)
            assert pause.payload["tool"] == "write", f"{policy}, {decision}"
            await run.reject("not now", token=pause.token)
            (_, seen) = (await bench.end(run)).payload
            assert "not now" in str(seen), f"{policy}, {decision}"


async def test_a_tool_registered_while_its_run_is_under_way_is_guarded(runtimes: Runtimes) -> None:
    """Between two steps of one run."""

    def announce(run: RunContext) -> CallTool:
        bench.rt.catalog.register(write)
        return WRITE

    bench = await runtimes([READ, announce, everything], tools=[read], approvals=BySideEffect([SideEffect.WRITE]))
    run = await bench.start()
    assert (await bench.paused(run)).payload["tool"] == "write"
    await run.cancel(hard=True)
    await bench.end(run)


async def test_a_tool_that_is_replaced_by_one_that_needs_approval_is_not_called(runtimes: Runtimes) -> None:
    """A run that recorded that the tool needs none does not make the call, and the planner gets the reason; a run that
    starts afterwards asks."""
    changed = tool(write.function, name="read", effects=SideEffect.WRITE)

    def swap(run: RunContext) -> CallTool:
        bench.rt.catalog.replace({"read": changed})
        return READ

    bench = await runtimes([READ, swap, everything], tools=[read], approvals=BySideEffect([SideEffect.WRITE]))
    first, second = (await bench.run()).payload
    assert first == "read b"
    assert "needs approval now" in second["error"]
    asking = await runtimes([READ, everything], tools=[changed], approvals=BySideEffect([SideEffect.WRITE]))
    run = await asking.start()
    await run.approve((await asking.paused(run)).token)
    assert (await asking.end(run)).payload == ["wrote b"]


async def test_what_a_run_has_recorded_decides_which_calls_are_asked_about(
    storages: Callable[..., Awaitable[Storage]],
) -> None:
    """Another process, with other tools at its start or another policy, carries the run on along the same path; what
    it cannot ask about, it does not call."""
    cases = (
        ({"tools": [read]}, {"tools": [read, write], "approvals": BySideEffect([SideEffect.WRITE])}, "wrote a"),
        ({"tools": [read]}, {"tools": [read, write], "approvals": None}, "no policy for it"),
    )
    for before, after, expected in cases:
        script = [READ, WRITE, READ, everything]
        storage = await storages(SYSTEM_CLOCK)
        async with Runtime(
            planner=ScriptedPlanner(script), storage=storage, approvals=BySideEffect([SideEffect.WRITE]), **before
        ) as first:
            first.catalog.register(write)
            run = await first.start("g", who=ME)
            await settle()
            (pause,) = await run.waiting()
            assert pause.payload["tool"] == "write"
        async with Runtime(planner=ScriptedPlanner(script[2:]), storage=storage, **after) as second:
            carried = await second.run(run.id, who=ME)
            await settle()
            for open_pause in await carried.waiting():
                await carried.approve(open_pause.token)
            async with asyncio.timeout(5):
                seen = (await carried.finished()).payload
            assert expected in str(seen[1])
            assert seen[2] == "read b"


def call_of(name: str, text: str) -> CallTool:
    return CallTool(name, f'{{"text":"{text}"}}'.encode())


async def test_a_tool_that_asks_for_approval_is_asked_about_without_a_policy_of_the_agent(runtimes: Runtimes) -> None:
    """Always, or where its own function says so."""
    script = [call_of("pay", "a"), call_of("refund", "little"), call_of("refund", "much"), everything]
    bench = await runtimes(script, tools=[pay, refund])
    run = await bench.start()
    pause = await bench.paused(run)
    assert (pause.payload["tool"], pause.payload["reason"]) == ("pay", "the tool asks for it")
    await run.approve(pause.token)
    pause = await bench.paused(run)
    assert pause.payload["args_summary"]["args"] == {"text": "much"}
    await run.reject("too much", token=pause.token)
    paid, little, much = (await bench.end(run)).payload
    assert (paid, little) == ("paid a", "refunded little")
    assert "too much" in much["error"]


async def test_a_tool_and_the_policy_for_all_ask_whichever_wants_it(runtimes: Runtimes) -> None:
    """The tool's own function lets the call pass, the agent's policy does not; a read is asked about by neither."""
    script = [READ, call_of("refund", "little"), everything]
    bench = await runtimes(script, tools=[read, refund], approvals=BySideEffect([SideEffect.WRITE]))
    run = await bench.start()
    assert (await bench.paused(run)).payload["tool"] == "refund"
    await run.approve()
    assert (await bench.end(run)).payload == ["read b", "refunded little"]


async def test_a_policy_for_the_tool_by_name_takes_the_place_of_its_own(runtimes: Runtimes) -> None:
    """Whoever runs the agent has the last word."""
    bench = await runtimes([call_of("pay", "a"), everything], tools=[pay], approvals={"pay": AlwaysApprove()})
    run = await bench.start()
    assert (await bench.end(run)).payload == ["paid a"]


async def test_a_tool_that_asks_for_approval_and_is_registered_later_is_guarded(runtimes: Runtimes) -> None:
    """Between two steps of one run."""

    def announce(run: RunContext) -> CallTool:
        bench.rt.catalog.register(pay)
        return call_of("pay", "a")

    bench = await runtimes([READ, announce, everything], tools=[read])
    run = await bench.start()
    assert "needs approval now and did not when its run started" in str((await bench.end(run)).payload[1])
