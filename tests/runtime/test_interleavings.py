"""Whatever comes between two steps of a run, and in which order: its history is legal and nothing of it is left behind.

A player drives the assembled runtime on a clock that stands still. Planner and tools wait until it lets them go on, so
controls, answers, deadlines and the closing of the runtime fall wherever the script puts them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from types import NoneType
from typing import Any

import hypothesis.strategies as st
from hypothesis import example, given, settings

from harborage.events import (
    BusConfig,
    ControlLifecyclePayload,
    ControlRejectedPayload,
    MemoryEventBus,
    PauseRequestedPayload,
    PauseResumedPayload,
)
from harborage.identity import Identity
from harborage.planner import (
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    JoinKind,
    JoinSpec,
    PauseReason,
    RequestPause,
    RunContext,
    SpawnSpec,
    SpawnTask,
    Trajectory,
    parallel_observation,
)
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.engine import EngineClosedError, RunFailedError, RunNotFoundError
from harborage.runtime.durable.journal import Begun, Cut, Done, Failed, Joined, decode_entries
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.history import build_history
from harborage.runtime.host import Runtime
from harborage.runtime.pauses import AlreadyResumedError, PauseDecision, PauseError, PauseState
from harborage.runtime.run import Run
from harborage.runtime.steering import Scope, SteeringError
from harborage.testing.clock import FakeClock, settle
from harborage.testing.events import EventRecorder
from harborage.tools import ToolPolicy, tool
from tests.kit.tables import each_row

ME = Identity("t", "u", "s")
DEADLINE_S = 100
MAX_STEPS = 12
ONCE = ToolPolicy(max_retries=0)
AT_ONCE = " (to a gate, at once)"
SLOW, GATED = CallTool("slow"), CallTool("gated")
DECISIONS: dict[str, Any] = {
    "slow": SLOW,
    "gated": GATED,
    "nope": CallTool("nope"),
    "all": CallParallel((SLOW, GATED, SLOW)),
    "first": CallParallel((SLOW, GATED, SLOW), JoinSpec(JoinKind.FIRST_SUCCESS)),
    "two": CallParallel((SLOW, SLOW, GATED), JoinSpec(JoinKind.N, n=2)),
    "ask": RequestPause(PauseReason.AWAIT_INPUT),
    "child": SpawnTask(spec=SpawnSpec(query="child")),
    "wait": SpawnTask(spec=SpawnSpec(query="child", retain_turn=True)),
    "finish": Finish(FinishReason.GOAL),
    "give up": Finish(FinishReason.NO_PATH),
}

TURNS = (0, 1, 2, 3, 5, 12)
SENDS = ("message", "inject", "redirect", "pause", "resume", "approve", "reject", "prioritize", "nonsense")
# Words that stand here more often are said more often: an end comes late, and most waits are answered.
ACTIONS: list[tuple[str, Any]] = [
    *(("plan", word) for word in DECISIONS if word not in ("finish", "give up") for _ in range(3)),
    *(("plan", word) for word in ("finish", "give up", "error", "nothing")),
    *[("tool", "well")] * 10,
    *[("tool", "badly")] * 4,
    *(("send", word) for word in SENDS for _ in range(2)),
    *[("send", "resume")] * 3,
    *[("cancel", "softly")] * 2,
    ("cancel", "hard"),
    *(("answer", word) for word in ("approve", "reject") for _ in range(5)),
    *(("settle", word) for word in PauseDecision),
    *(("time", seconds) for seconds in (1, 30, 90)),
    *(("turns", turns) for turns in range(1, 9)),
]


class Waiting:
    """Those who wait to be let go on, oldest first."""

    def __init__(self) -> None:
        self._futures: list[asyncio.Future[Any]] = []

    async def join(self) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._futures.append(future)
        try:
            return await future
        finally:
            self._futures.remove(future)

    def let_go(self, answer: Any) -> bool:
        """Let the first task that still waits continue."""
        future = next((one for one in self._futures if not one.done()), None)
        if future is not None:
            future.set_result(answer)
        return future is not None


class Player:
    """One run, everything that can be done to it, and what must hold of it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.bus = MemoryEventBus(config=BusConfig(subscriber_buffer_size=100_000))
        self.recorder = EventRecorder(self.bus)
        self.plans, self.tools = Waiting(), Waiting()
        self.decided: list[Any] = []
        self.received: list[str] = []
        self.trajectory = Trajectory()
        self.sent: list[str] = []
        self.messages = 0
        self.rt = Runtime(
            planner=self,
            tools=[tool(self.slow, policy=ONCE), tool(self.gated, policy=ONCE)],
            approvals={"gated": AlwaysDeny()},
            bus=self.bus,
            clock=self.clock,
            options=RuntimeOptions(
                max_steps=MAX_STEPS, pause_ttl=timedelta(seconds=60), approval_ttl=timedelta(seconds=60)
            ),
        )
        self.run: Run

    async def slow(self) -> str:
        """Take some time."""
        if await self.tools.join() == "badly":
            raise PermissionError("no")
        return "done"

    async def gated(self) -> str:
        """Need approval."""
        return await self.slow()

    async def next(self, run: RunContext) -> Any:
        if run.query == "child":
            return Finish(FinishReason.GOAL)
        assert self.open_pauses() == [], "the planner was asked while the run was paused"
        assert run.trajectory is not None
        self.trajectory = run.trajectory
        self.received += run.control.user_messages
        word = await self.plans.join()
        if word == "error":
            raise LookupError("lost")
        if word in DECISIONS:
            self.decided.append(DECISIONS[word])
        return DECISIONS.get(word)

    def open_pauses(self) -> list[str]:
        """The tokens of pauses on which the run is parked, by what was published; questions about calls are none."""
        asked = [one for one in self.recorder.payloads(PauseRequestedPayload) if one.reason != "approval_required"]
        resolved = {one.token for one in self.recorder.payloads(PauseResumedPayload)}
        return [one.token for one in asked if one.token not in resolved]

    async def act(self, what: str, how: Any) -> None:
        """Do one thing of the script, if there is anything to do it to."""
        match what:
            case "plan":
                self.plans.let_go(how)
            case "tool":
                self.tools.let_go(how)
            case "send" | "cancel":
                await self.send(how)
            case "answer":
                for pause in await self.run.waiting():
                    if pause.reason == "approval_required":
                        await self.send(how, pause.token)
                        break
            case "settle":
                for pause in await self.run.waiting():
                    with suppress(AlreadyResumedError):  # past its deadline
                        await self.rt.pauses.resume(pause.token, how, who=ME)
                    break
            case "time":
                await self.clock.run_for(how)
            case "turns":
                await settle(how)

    async def send(self, verb: str, token: str = "") -> None:
        self.messages += 1
        ways: dict[str, Callable[[], Awaitable[bool]]] = {
            "message": lambda: self.run.message(f"m{self.messages}"),
            "inject": lambda: self.run.inject({"k": self.messages}),
            "redirect": lambda: self.run.redirect(f"goal {self.messages}"),
            "pause": self.run.pause,
            "resume": self.run.resume,
            "approve": lambda: self.run.approve(token),
            "reject": lambda: self.run.reject(token=token),
            "prioritize": lambda: self.run.prioritize(self.messages),
            "nonsense": lambda: self.run.approve("nobody's"),
            "softly": self.run.cancel,
            "hard": lambda: self.run.cancel(hard=True),
        }
        try:
            assert await ways[verb]()
        except RunNotFoundError:
            return
        except (SteeringError, PauseError):
            token = "refused at once"
        types = {"message": "USER_MESSAGE", "inject": "INJECT_CONTEXT", "nonsense": "APPROVE", "softly": "CANCEL"}
        name = types.get(verb, "CANCEL" if verb == "hard" else verb.upper())
        # An answer to a call that waits overtakes what waits for the next step; so does one that is refused.
        is_at_once = bool(token) or verb in {"approve", "reject"}
        self.sent.append(name + AT_ONCE if is_at_once else name)

    async def finish(self) -> None:
        """Let everything go on until the run is over.

        Raises:
            AssertionError: it never is.
        """
        for _ in range(200):
            await settle()
            if (await self.run.status()).phase.is_final:
                return
            self.plans.let_go("finish")
            self.tools.let_go("well")
            for pause in await self.run.waiting():
                if pause.reason == "approval_required":
                    await self.send("approve", pause.token)
                else:
                    await self.rt.pauses.resume(pause.token, PauseDecision.RESUME, who=ME)
        raise AssertionError("the run is stuck")

    def check_controls(self) -> None:
        """Each ended once, as applied or as rejected, in the order in which they were sent."""
        mine = [event.payload for event in self.recorder.events if event.identity.run_id == self.run.id]
        applied = [one.type for one in mine if isinstance(one, ControlLifecyclePayload) and one.outcome != "received"]
        rejected = [one.type for one in mine if isinstance(one, ControlRejectedPayload)]
        assert Counter(applied + rejected) == Counter(one.removesuffix(AT_ONCE) for one in self.sent)
        if not any(one.endswith(AT_ONCE) for one in self.sent):
            assert applied + rejected == self.sent
        assert self.received == sorted(set(self.received), key=lambda text: int(text[1:]))

    async def check_history(self) -> None:
        """Every decision to act is recorded and has one answer, every branch one entry."""
        acted = [one for one in self.decided if not isinstance(one, (Finish, RequestPause))]
        taken = [step.decision for step in build_history(await self.run.history()).steps]
        assert [one for one in taken if not isinstance(one, (Finish, RequestPause, NoneType))] == acted
        # Of a run that has left memory the planner may never be shown the trajectory with which it goes on.
        steps = self.trajectory.steps
        assert [step.action for step in steps] == acted[: len(steps)]
        for step in steps:
            assert step.observation is not None
            if isinstance(step.action, CallParallel) and "error" not in dict_of(step.observation):
                observed = parallel_observation(step.observation)
                assert observed is not None
                assert [one.index for one in observed.branches] == [0, 1, 2]
                assert all((one.value is None) != (one.error == "") for one in observed.branches)

    async def check_record(self) -> None:
        """In the journal every intent has one outcome, unless its branch was dropped."""
        entries = decode_entries(await self.run.history(), self.run.id)
        dropped = tuple(
            f"{one.position}.{index}."
            for one in entries
            if isinstance(one, Joined)
            for index, how in enumerate(one.outcomes)
            if how == "cancelled"
        )
        # A question is asked again where its run had left memory meanwhile: it is the same one, by its key.
        begins = [one for one in entries if isinstance(one, Begun)]
        begun = Counter(one.position for one in begins if not one.name.startswith("approve."))
        ended = Counter(one.position for one in entries if isinstance(one, (Done, Failed, Cut)))
        assert all(count == 1 for count in (*begun.values(), *ended.values()))
        open_ones = {one.position for one in begins} - ended.keys()
        assert [position for position in open_ones if not position.startswith(dropped)] == []

    async def check_waiting(self) -> None:
        """No pause is open any more."""
        assert await self.run.waiting() == []
        rows = (await self.rt.pauses.list(who=ME)).rows
        assert [pause.token for pause in rows if pause.state is PauseState.PAUSED] == []

    def check_inboxes(self) -> None:
        """None is open any more."""
        assert len(self.rt.parts.engine._inboxes) == 0


def dict_of(observation: Any) -> dict[str, Any]:
    return observation if isinstance(observation, dict) else {}


async def play(script: list[tuple[str, Any]], *, closes: bool, turns: int) -> str:
    """Play a script to the end, or until the runtime is closed under it; how the run ended."""
    before = asyncio.all_tasks()
    player = Player()
    async with player.rt:
        await settle()
        idle = len(asyncio.all_tasks())
        deadline = player.clock.now() + timedelta(seconds=DEADLINE_S)
        player.run = await player.rt.start("g", who=ME, deadline=deadline, scope=Scope.ADMIN)
        result = asyncio.ensure_future(player.run.finished())
        result.add_done_callback(lambda done: done.cancelled() or done.exception())
        for what, how in script:
            await player.act(what, how)
            await settle(turns)
        if not closes:
            await player.finish()
            await settle()
            await player.check_history()
            await player.check_record()
            await player.check_waiting()
            player.check_inboxes()
            assert len(asyncio.all_tasks()) == idle, "a task outlived its run"
    await asyncio.wait({result})
    player.check_controls()
    player.recorder.cancel()
    await player.bus.aclose()
    await settle(2)
    assert asyncio.all_tasks() <= before, "a task outlived its runtime"
    return ended(result)


def ended(result: asyncio.Future[Finish]) -> str:
    error = result.exception()
    if error is not None:
        assert isinstance(error, (RunFailedError, EngineClosedError)), error
        return getattr(error, "error", "") or "closed"
    finish = result.result()
    return str((finish.metadata or {}).get("steering_reason", finish.reason))


ENDS: dict[str, list[tuple[str, Any]]] = {
    "goal": [("turns", 3), ("plan", "finish")],
    "no_path": [("turns", 3), ("plan", "slow"), ("turns", 3), ("tool", "badly"), ("turns", 3), ("plan", "give up")],
    "PlannerStepError": [("turns", 3), ("plan", "error")],
    "InvalidDecisionError": [("turns", 3), ("plan", "nothing")],
    "hard_cancel": [("turns", 3), ("plan", "all"), ("turns", 3), ("cancel", "hard")],
    "cancel_ignored": [
        ("turns", 3),
        ("cancel", "softly"),
        ("plan", "slow"),
        ("turns", 3),
        ("tool", "well"),
        ("turns", 3),
        ("plan", "slow"),
    ],
    "cancel_while_paused": [("turns", 3), ("plan", "ask"), ("turns", 3), ("cancel", "softly")],
    "control_reject": [("send", "pause"), ("turns", 3), ("plan", "slow"), ("turns", 9), ("send", "reject")],
    "pause_timeout": [("turns", 3), ("plan", "ask"), ("turns", 3), ("time", 90)],
    "deadline": [("turns", 3), ("plan", "first"), ("turns", 3), ("time", 90), ("time", 30)],
    "MaxStepsExceededError": [("turns", 3), *[("plan", "nope"), ("turns", 3)] * MAX_STEPS],
    "closed": [("turns", 3), ("plan", "two"), ("turns", 3), ("send", "message")],
}


@each_row("end", ENDS)
def test_every_kind_of_end_leaves_nothing_behind(end: str) -> None:
    """No task, no inbox, no open question, no control without an end; and the run ends as it should."""
    assert asyncio.run(play(ENDS[end], closes=end == "closed", turns=8)) == end


@settings(max_examples=400, derandomize=True, deadline=None)
@given(st.lists(st.sampled_from(ACTIONS), max_size=40), st.sampled_from([False] * 3 + [True]), st.sampled_from(TURNS))
@example([("turns", 3), ("plan", "gated"), ("turns", 8), ("cancel", "hard"), ("answer", "approve")], False, 0)
@example([("turns", 3), ("plan", "gated"), ("turns", 8), ("answer", "approve"), ("cancel", "hard")], False, 0)
@example([("turns", 3), ("plan", "gated"), ("turns", 8), ("answer", "approve")], True, 0)
def test_whatever_comes_in_between_the_rules_hold(script: list[tuple[str, Any]], closes: bool, turns: int) -> None:
    """Legal history, controls in order and once, no planner while paused, nothing left: for any script."""
    asyncio.run(play(script, closes=closes, turns=turns))
