"""Ten thousand random interleavings of answers, controls, parallel calls, failures and compression: all legal.

They come in ten parts, which processes may share. Most are played over the pure functions of the loop, which is fast;
the rest are runs of the assembled runtime. Every request that a model gets is judged by the strictest rules of all
providers, and by the chain's own check.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from harborage import codec
from harborage.identity import Identity, Quadruple, bound, current_quadruple
from harborage.llm import (
    ArtifactStub,
    CompleteRequest,
    CompleteResponse,
    ContextOverflowError,
    ContextWindowExceededError,
    OrphanToolCallError,
    ToolCallStructured,
)
from harborage.llm.chain.conversation import read_conversation
from harborage.planner import (
    BackgroundResult,
    CallParallel,
    Decision,
    Finish,
    FinishReason,
    InputArtifactView,
    ParallelBranchObservation,
    ParallelObservation,
    RepairCounters,
    RunContext,
    Trajectory,
    TrajectorySummary,
    mechanical_fold,
)
from harborage.planner.react import ReActPlanner
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.durable.engine import RunFailedError, RunNotFoundError
from harborage.runtime.effects.options import RuntimeOptions
from harborage.runtime.effects.planning import is_overflow
from harborage.runtime.host import Runtime
from harborage.runtime.loop.apply import Observed, apply_arrivals, apply_controls, apply_plan, apply_wake, remember
from harborage.runtime.loop.arrivals import Arrivals, Woken
from harborage.runtime.loop.controls import ControlEvent, ControlType, Scope
from harborage.runtime.loop.state import OpenPause, Planned, RunState, Steered
from harborage.runtime.pauses import AlreadyResumedError, PauseDecision, PauseNotFoundError
from harborage.runtime.run import Run
from harborage.runtime.steering import RunCancelledError
from harborage.testing.llm import user_text
from harborage.tools import SideEffect, ToolPolicy, tool
from tests.kit.provider_rules import ProviderRuleError, check_request
from tests.kit.tables import each_row

PARTS = 10
STORIES = 850
RUNS = 150
AT_ONCE = 30
STEPS = 7
ONCE = ToolPolicy(max_retries=0)
AT = datetime(2026, 1, 1, tzinfo=UTC)

IDS = ("", "call-0", "call-1", "react.callid.1", "react.callid.1.0")
ARGS = (b"", b"{}", b'{"x": 1}', b"[1]", b"{oops", b"\xff", b" ")
NAMES = ("look", "gated", "tool_search", "declarative_action", "artifact_fetch", "nowhere")
CONTROLS = (
    ("_spawn_task", b'{"spec":{"query":"be a child"}}'),
    ("_spawn_task", b'{"spec":{"query":"be a child","retain_turn":true}}'),
    ("_spawn_task", b'{"kind":7}'),
    ("_await_task", b'{"task_id":"t-1"}'),
    ("_await_task", b"{}"),
)
TEXTS = ("", " ", "\n", "a", "a\nb", "<tag>", '{"a": 1}', "x" * 9_000, "ü" * 50)


def check(request: CompleteRequest) -> None:
    """Every provider takes the request, and so does the chain."""
    check_request(request)
    read_conversation(request.messages)


def answer(dice: random.Random) -> CompleteResponse | Exception:
    """What a model says next: mostly calls, some of them useless, at times an overflow or an end."""
    kind = dice.random()
    if kind < 0.03:
        return dice.choice([ContextWindowExceededError(9, 9, 0, 9), ContextOverflowError("too long")])
    if kind < 0.08:
        return CompleteResponse(dice.choice(("done", "")))
    many = dice.choice((1, 1, 1, 2, 3, 5))
    calls = []
    for index in range(many):
        name, args = (dice.choice(NAMES), dice.choice(ARGS)) if dice.random() < 0.9 else dice.choice(CONTROLS)
        if dice.random() < 0.02:
            name = ""
        calls.append(ToolCallStructured(dice.choice(IDS), name, args, index))
    return CompleteResponse(dice.choice(TEXTS), tuple(calls), dice.choice(TEXTS))


def value(dice: random.Random) -> Any:
    """What a tool returns."""
    return dice.choice(
        (
            None,
            "",
            " ",
            "text\nof lines",
            0,
            [],
            {"a": [1, None]},
            {"error": "no\nway"},
            {"tools": [{"name": "look"}]},
            {
                "tool": "t",
                "size_bytes": 1e6,
                "truncated": True,
                "preview": '{"a":"[omitted: 9 bytes]"}',
                "artifact_ref": "r",
            },
            {"preview": "p", "artifact_ref": "r"},
            {"repair_outcome": {"args_repaired": True, "multi_action": True}},
            ArtifactStub("r", "", 0),
            b"\xff",
            object(),
        )
    )


def observed(decision: Decision, dice: random.Random) -> tuple[Any, Any]:
    """What came of a decision, whole and reduced."""
    if not isinstance(decision, CallParallel) or dice.random() < 0.1:
        whole = value(dice)
        return whole, value(dice) if dice.random() < 0.3 else whole
    branches = [
        ParallelBranchObservation(index=index, tool=call.tool, value=value(dice))
        if dice.random() < 0.7
        else ParallelBranchObservation(index=index, error=dice.choice(("no", "no\nway", " ")))
        for index, call in enumerate(decision.branches)
        if dice.random() < 0.9
    ]
    dice.shuffle(branches)
    whole = ParallelObservation(tuple(branches))
    return whole, codec.to_plain(whole, "o") if dice.random() < 0.2 and _is_plain(whole) else whole


def _is_plain(value: Any) -> bool:
    try:
        codec.encode(value)
    except codec.UnserializableError:
        return False
    return True


# --- over the pure functions of the loop


class Story:
    """One run, folded as the loop folds it; nothing else of the runtime is there."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.who = Quadruple("t", "u", "s", f"r-{seed}")
        self.counters = RepairCounters()
        self.planner = ReActPlanner(
            self,
            max_steps=STEPS,
            parallel_tool_calls=dice.random() < 0.7,
            reasoning_replay=dice.choice(("never", "text")),
            arg_fill_enabled=dice.random() < 0.9,
        )
        self.pictures = (InputArtifactView(id="a", mime="image/png", bytes=b"png"),) if dice.random() < 0.2 else ()
        self.run = RunState(who=self.who, goal="g", trajectory=Trajectory(query="g"))
        self.requests = 0
        self.said = 0
        self.owed: list[str] = []

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        check(request)
        text = user_text(request)
        for said in self.owed:
            assert text.count(said) == 1, said
        self.requests += 1
        got = answer(self.dice)
        if isinstance(got, Exception):
            raise got
        return got

    async def close(self) -> None: ...

    async def live(self) -> None:
        for _ in range(STEPS):
            self.happen()
            try:
                planned = await self.plan()
            except (ContextWindowExceededError, ContextOverflowError):
                self.shorten()
                continue
            except Exception as error:
                if type(error).__name__ != "UnusableCallError":
                    raise
                return
            self.run = apply_plan(self.run, planned)
            if isinstance(planned.decision, Finish):
                return
            self.run = remember(self.run, planned, Observed(*observed(planned.decision, self.dice)))

    async def plan(self) -> Planned:
        noted: dict[str, Any] = {}
        decision = await self.planner.next(
            RunContext(
                quadruple=self.who,
                goal=self.run.goal,
                trajectory=self.run.trajectory,
                control=self.run.signals,
                pending_tool_calls=self.run.pending,
                repair_counters=self.counters,
                input_artifacts=self.pictures,
                clock=lambda: AT,
                on_reasoning=lambda text: noted.update(reasoning=text),
                on_assistant_content=lambda text: noted.update(preamble=text),
                on_pending_tool_calls=lambda calls: noted.update(pending=tuple(calls)),
            )
        )
        return Planned(decision=decision, **noted)

    def happen(self) -> None:
        """What comes between two steps."""
        while self.dice.random() < 0.3:
            match self.dice.randrange(8):
                case 0 | 1 | 2:
                    self.said += 1
                    self.control(ControlType.USER_MESSAGE, {"message": f"said {self.said};"})
                    self.owed.append(f"said {self.said};")
                case 3:
                    self.control(ControlType.INJECT_CONTEXT, {"k": self.dice.choice(TEXTS)})
                case 4:
                    self.control(ControlType.REDIRECT, {"goal": self.dice.choice(("h", "i"))})
                case 5:
                    self.run.pause = OpenPause("p", "await_input")
                    apply_wake(
                        self.run, Woken(self.dice.choice((PauseDecision.RESUME, PauseDecision.APPROVE)), {"a": 1}, AT)
                    )
                case 6:
                    group = BackgroundResult(group_id=f"g{self.said}", status="completed", resolved_at=AT)
                    apply_arrivals(self.run, Arrivals(background=(group,)))
                case 7:
                    self.restart() if self.dice.random() < 0.5 else self.shorten()

    def control(self, type: ControlType, payload: dict[str, Any]) -> None:
        event = ControlEvent(type, self.who, Scope.ADMIN, "t", payload)
        apply_controls(self.run, [Steered(control=event)])

    def shorten(self) -> None:
        """By a model or by arithmetic; what was said before is the summary's business from then on."""
        history = self.run.trajectory
        if self.dice.random() < 0.5:
            history.summarise(mechanical_fold(history))
        else:
            history.summarise(TrajectorySummary(note="n"))
        now = len(history.steps)
        notes = (one.payload.get("message") for one in history.steering_inputs if one.at_step >= now)
        still = set(filter(None, notes))
        self.owed = [said for said in self.owed if said in still]

    def restart(self) -> None:
        """The run is resumed elsewhere: nothing that was worked out before is there."""
        with suppress(codec.UnserializableError):  # a live object is in it; such a run is not carried on
            self.run.trajectory = Trajectory.deserialize(self.run.trajectory.serialize())


@contextmanager
def quiet() -> Iterator[None]:
    """Missing observations and failing summaries are many here, and their warnings are tested elsewhere."""
    logger = logging.getLogger("harborage")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


async def told_all(first: int, count: int) -> int:
    """Tell so many stories; how many requests there were."""
    requests = 0
    for seed in range(first, first + count):
        story = Story(seed)
        try:
            with bound(story.who):
                await story.live()
        except BaseException as error:
            error.add_note(f"in the story of seed {seed}")
            raise
        requests += story.requests
    return requests


@pytest.mark.parametrize("part", range(PARTS))
def test_every_story_is_legal(part: int) -> None:
    """Whatever was answered, observed, said, shortened and restarted, the next request is one that all take."""
    with quiet():
        assert asyncio.run(told_all(part * STORIES, STORIES)) > 4 * STORIES


# --- over the assembled runtime


class Chaos:
    """What may happen in one run: the model's answers, the tools' results, and people who interfere."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.run: Run | None = None

    async def interfere(self) -> None:
        """Send a control now and then, at any point of the run."""
        dice, run = self.dice, self.run
        while run is not None and dice.random() < 0.2:
            ways: list[Callable[[], Any]] = [
                lambda: run.message(dice.choice(("hurry", "a\nb", " "))),
                lambda: run.inject({"k": dice.choice(TEXTS)[:50]}),
                lambda: run.redirect("elsewhere"),
                run.pause,
                run.resume,
                run.cancel,
                lambda: run.cancel(hard=True),
            ]
            way = dice.choices(ways, (6, 3, 2, 2, 1, 0.4, 0.2))[0]
            try:
                await way()
            except (RunNotFoundError, RunCancelledError):
                return

    async def answer_pauses(self) -> None:
        """A person who answers the run's pauses, sooner or later."""
        assert self.run is not None
        while not (await self.run.status()).phase.is_final:
            for pause in await self.run.waiting():
                verb = self.run.approve if self.dice.random() < 0.8 else self.run.reject
                with suppress(RunNotFoundError, RunCancelledError, AlreadyResumedError, PauseNotFoundError):
                    await verb(token=pause.token)
            for _ in range(self.dice.randrange(20, 60)):
                await asyncio.sleep(0)


class World:
    """Many runs at once on one runtime, each with its own chaos."""

    def __init__(self, first_seed: int) -> None:
        self.first_seed = first_seed
        self.chaos: dict[str, Chaos] = {}
        self.requests = 0
        self.broken: list[Exception] = []
        self.ends: Counter[str] = Counter()

    def of(self, run_id: str) -> Chaos:
        """The chaos of a run; sub-tasks have one of their own."""
        return self.chaos.setdefault(run_id, Chaos(self.first_seed + len(self.chaos)))

    async def complete(self, request: CompleteRequest) -> CompleteResponse:
        try:
            check(request)
        except (ProviderRuleError, OrphanToolCallError) as error:
            self.broken.append(error)
        self.requests += 1
        who = current_quadruple()
        assert who is not None
        chaos = self.of(who.run_id)
        await chaos.interfere()
        got = answer(chaos.dice)
        if "be a child" in user_text(request):
            return CompleteResponse("a child's answer")
        if isinstance(got, Exception):
            raise got
        if request.response_format is None and request.on_content is not None:
            request.on_content(got.content, False)
        return got

    async def close(self) -> None: ...

    async def summarise(self, run: RunContext, trajectory: Trajectory) -> TrajectorySummary:
        chaos = self.of(run.quadruple.run_id)
        await chaos.interfere()
        if chaos.dice.random() < 0.3:
            raise LookupError("no model")
        return TrajectorySummary(note="n")

    async def look(self, x: int = 0) -> Any:
        """Look."""
        who = current_quadruple()
        assert who is not None
        chaos = self.of(who.run_id)
        await chaos.interfere()
        for _ in range(chaos.dice.randrange(4)):
            await asyncio.sleep(0)
        if chaos.dice.random() < 0.2:
            raise PermissionError("no\nway")
        if chaos.dice.random() < 0.1:
            return "x" * 40_000
        return value(chaos.dice)

    async def gated(self, x: int = 0) -> Any:
        """Look, with permission."""
        return await self.look(x)

    async def play(self, runtime: Runtime, seed: int) -> None:
        run = await runtime.start("g", who=Identity(f"t-{seed}", "u", "s"))
        chaos = self.chaos[run.id] = self.chaos.get(run.id) or Chaos(seed)
        chaos.run = run
        answering = asyncio.ensure_future(chaos.answer_pauses())
        try:
            ended = str((await run.finished()).reason)
        except RunFailedError as error:
            # An overflow that nothing helps against may end a run, or one step too many.
            ended = "overflow" if is_overflow(error) else error.error
        finally:
            await answering
        self.ends[ended] += 1


async def played(first_seed: int, runs: int) -> World:
    """Play so many runs, many of them at once."""
    world = World(first_seed)
    options = RuntimeOptions(max_steps=STEPS, token_budget=400)
    look, gated = (tool(one, effects=SideEffect.READ, policy=ONCE) for one in (world.look, world.gated))
    planners = [
        ReActPlanner(world, max_steps=STEPS, parallel_tool_calls=is_parallel, reasoning_replay=mode)
        for is_parallel in (True, False)
        for mode in ("never", "text")
    ]
    for at, planner in enumerate(planners):
        async with Runtime(
            planner=planner,
            tools=[look, gated],
            approvals={"gated": AlwaysDeny()},
            summariser=world,
            options=options,
        ) as runtime:
            share = range(first_seed + at, first_seed + runs, len(planners))
            for first in range(0, len(share), AT_ONCE):
                await asyncio.gather(*(world.play(runtime, seed) for seed in share[first : first + AT_ONCE]))
    return world


@pytest.mark.parametrize("part", range(PARTS))
def test_every_run_is_legal(part: int) -> None:
    """In the assembled runtime, with everything that interferes from outside, too."""
    with quiet():
        world = asyncio.run(played(part * RUNS, RUNS))
    assert world.broken == []
    assert world.requests > 3 * RUNS
    assert world.ends.total() == RUNS
    assert world.ends.keys() <= {*FinishReason, "overflow", "MaxStepsExceededError"}
    assert world.ends["goal"] > RUNS // 10


@each_row("seed", range(3))
def test_stories_are_repeated_exactly(seed: int) -> None:
    """A seed is enough to repeat a story."""
    with quiet():
        assert asyncio.run(told_all(seed, 20)) == asyncio.run(told_all(seed, 20))
