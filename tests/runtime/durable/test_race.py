"""Branches side by side: races, and the executor of parallel calls."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest

from harborage.concurrency import Crew
from harborage.identity import Identity, IdentityMissingError, IdentityRequiredError, Quadruple, bound
from harborage.planner import (
    CallTool,
    InvalidDecisionError,
    JoinKind,
    JoinSpec,
    ParallelBranchInvalidArgsError,
    ParallelCapExceededError,
    ParallelInvalidJoinError,
    ParallelPauseUnsupportedError,
    ParallelThresholdUnmetError,
    PauseReason,
    RequestPause,
)
from harborage.runtime.durable.race import LOSER_GRACE_S, ParallelBranchCancelledError, ParallelExecutor, race
from harborage.runtime.loop.joins import (
    BranchOutcome,
    BranchResult,
    Cancelled,
    Done,
    Failed,
    ParallelShortfallError,
    is_settled,
)
from harborage.testing.clock import FakeClock, settle
from harborage.tools import Tool, ToolDescriptor, ToolInvalidArgsError, ToolNotFoundError, ToolResult

pytestmark = pytest.mark.anyio

RUN = Quadruple("t", "u", "s", "r")
ALL = JoinSpec(JoinKind.ALL)
FIRST = JoinSpec(JoinKind.FIRST_SUCCESS)

Start = Callable[[], Awaitable[Any]]


def n_of(n: int) -> JoinSpec:
    return JoinSpec(JoinKind.N, n=n)


class Branch:
    """A branch that a test leads step by step: it waits until the test sets its end."""

    def __init__(self, *, stubborn: bool = False) -> None:
        self.is_started = False
        self.cancellations = 0
        self._stubborn = stubborn
        self._end: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> Any:
        self.is_started = True
        while True:
            try:
                return await asyncio.shield(self._end)
            except asyncio.CancelledError:
                self.cancellations += 1
                if not self._stubborn:
                    raise

    def give(self, value: Any) -> None:
        self._end.set_result(value)

    def fail(self, error: BaseException) -> None:
        self._end.set_exception(error)
        self._end.exception()  # a branch that was cut short before does not look at it any more

    def die(self) -> None:
        self._end.cancel()


def value(result: Any) -> Start:
    """A branch that gives `result` at once."""

    async def branch() -> Any:
        return result

    return branch


def error(cause: BaseException) -> Start:
    """A branch that raises at once."""

    async def branch() -> Any:
        raise cause

    return branch


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def reports() -> list[tuple[str, BaseException]]:
    return []


@pytest.fixture
async def crew(reports: list[tuple[str, BaseException]]) -> AsyncIterator[Crew]:
    crew = Crew(lambda name, cause: reports.append((name, cause)))
    yield crew
    await crew.aclose()


@pytest.fixture(autouse=True)
async def no_task_left() -> AsyncIterator[None]:
    """Fails a test that leaves a task behind."""

    def own() -> set[asyncio.Task[Any]]:
        return {task for task in asyncio.all_tasks() if "TestRunner" not in repr(task.get_coro())}

    before = own()
    yield
    assert own() - before == set()


# Races: everybody


async def test_all_branches_are_waited_for(crew: Crew) -> None:
    """Joined by `all`, each branch has its own outcome, in order of the branches."""
    boom = ValueError("boom")
    assert await race([value(1), error(boom), value(None)], ALL, stragglers=crew) == [Done(1), Failed(boom), Done(None)]


async def test_branches_run_side_by_side(crew: Crew) -> None:
    """All branches have started before any has to end; the order in which they end does not matter."""
    branches = [Branch() for _ in range(3)]
    racing = asyncio.create_task(race(branches, ALL, stragglers=crew))
    await settle()
    assert all(branch.is_started for branch in branches)
    for index in (2, 0, 1):
        assert not racing.done()
        branches[index].give(index)
        await settle()
    assert await racing == [Done(0), Done(1), Done(2)]


async def test_a_race_without_branches_is_over(crew: Crew) -> None:
    """Without branches there are no outcomes, and nothing to wait for."""
    for join in (ALL, FIRST):
        assert await race([], join, stragglers=crew) == []


async def test_a_branch_that_cannot_start_has_failed(crew: Crew) -> None:
    """What a start raises, or gives that cannot be awaited, is that branch's error alone."""

    def broken() -> Awaitable[int]:
        raise ValueError("cannot start")

    outcomes = await race([broken, value(1), lambda: 3], ALL, stragglers=crew)  # type: ignore[list-item, return-value]
    match outcomes:
        case [Failed(ValueError()), Done(1), Failed(TypeError())]:
            pass
        case _:
            pytest.fail(str(outcomes))


async def test_a_start_may_give_any_awaitable(crew: Crew) -> None:
    """Futures are as good as coroutines."""
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    future.set_result(7)
    assert await race([lambda: future], ALL, stragglers=crew) == [Done(7)]


async def test_a_branch_that_cancels_itself_is_cancelled(crew: Crew) -> None:
    """A branch that ends in a cancellation from within does not cancel the others."""
    branches = [Branch(), Branch()]
    racing = asyncio.create_task(race(branches, ALL, stragglers=crew))
    await settle()
    branches[0].die()
    await settle()
    assert not racing.done()
    branches[1].give(1)
    assert await racing == [Cancelled(), Done(1)]


async def test_branches_see_the_callers_context(crew: Crew) -> None:
    """Ambient values reach every branch, and what a branch sets stays in it."""
    ambient: ContextVar[str] = ContextVar("ambient", default="")
    ambient.set("caller")

    async def branch() -> str:
        before = ambient.get()
        ambient.set("branch")
        await asyncio.sleep(0)
        return before

    assert await race([branch, branch], ALL, stragglers=crew) == [Done("caller"), Done("caller")]
    assert ambient.get() == "caller"


async def test_a_race_starts_one_task_a_branch(crew: Crew) -> None:
    """Fifty branches are fifty tasks and no more."""
    before = len(asyncio.all_tasks())
    counts: list[int] = []

    async def branch() -> None:
        counts.append(len(asyncio.all_tasks()) - before)

    await race([branch] * 50, ALL, stragglers=crew)
    assert counts[0] == 50


# Races: contests


async def test_the_first_success_ends_the_race(crew: Crew) -> None:
    """The others are cancelled and have ended when the race returns; failures before it do not count."""
    branches = [Branch() for _ in range(4)]
    racing = asyncio.create_task(race(branches, FIRST, stragglers=crew))
    await settle()
    branches[3].fail(ValueError("no"))
    await settle()
    assert not racing.done()
    branches[1].give("won")
    outcomes = await racing
    assert outcomes[:3] == [Cancelled(), Done("won"), Cancelled()]
    assert isinstance(outcomes[3], Failed)
    assert [branch.cancellations for branch in branches] == [1, 0, 1, 0]
    assert len(crew) == 0


async def test_a_race_without_a_winner_ends_with_the_last_branch(crew: Crew) -> None:
    """When all fail, each keeps its own error."""
    outcomes = await race([error(ValueError("a")), error(KeyError("b"))], FIRST, stragglers=crew)
    assert [type(outcome.error) for outcome in outcomes if isinstance(outcome, Failed)] == [ValueError, KeyError]


async def test_n_successes_end_the_race(crew: Crew) -> None:
    """The race goes on until so many have succeeded; the rest is cancelled."""
    branches = [Branch() for _ in range(4)]
    racing = asyncio.create_task(race(branches, n_of(2), stragglers=crew))
    await settle()
    branches[2].give("c")
    await settle()
    assert not racing.done()
    branches[0].give("a")
    assert await racing == [Done("a"), Cancelled(), Done("c"), Cancelled()]


async def test_a_branch_that_finished_with_the_winner_keeps_its_value(crew: Crew) -> None:
    """A success that came too late to be cancelled is reported as what it is."""
    assert await race([value(1), value(2), value(3)], FIRST, stragglers=crew) == [Done(1), Done(2), Done(3)]


async def test_a_loser_that_fails_while_it_ends_has_failed(crew: Crew) -> None:
    """What a cancelled branch raises in the end is its outcome."""
    winner = Branch()

    async def loser() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("while closing")

    racing = asyncio.create_task(race([winner, loser], FIRST, stragglers=crew))
    await settle()
    winner.give(1)
    outcomes = await racing
    assert outcomes[0] == Done(1)
    assert isinstance(outcomes[1], Failed)
    assert isinstance(outcomes[1].error, OSError)


async def test_a_loser_may_clean_up(crew: Crew, clock: FakeClock) -> None:
    """The race waits for all losers that end in time, not for the first of them, and leaves no timer armed."""
    winner, quick, cleaned = Branch(), Branch(), asyncio.Event()

    async def loser() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await cleaned.wait()

    racing = asyncio.create_task(race([winner, quick, loser], FIRST, stragglers=crew, clock=clock))
    await settle()
    winner.give(1)
    await clock.run_for(LOSER_GRACE_S - 0.01)
    assert quick.cancellations == 1
    assert not racing.done()
    cleaned.set()
    assert await racing == [Done(1), Cancelled(), Cancelled()]
    assert clock.armed == 0
    assert len(crew) == 0


# Stragglers


async def test_a_stubborn_loser_is_handed_to_the_crew(crew: Crew, clock: FakeClock) -> None:
    """A branch that ignores its cancellation delays the race by the grace and no more; then the crew owns it."""
    winner, stubborn = Branch(), Branch(stubborn=True)
    racing = asyncio.create_task(race([winner, stubborn], FIRST, stragglers=crew, clock=clock))
    await settle()
    winner.give(1)
    await clock.run_for(LOSER_GRACE_S - 0.01)
    assert not racing.done()
    await clock.run_for(0.01)
    assert racing.done()
    assert await racing == [Done(1), Cancelled()]
    assert len(crew) == 1
    stubborn.give("late")
    await crew.join()
    assert len(crew) == 0


async def test_the_grace_is_shared(crew: Crew, clock: FakeClock) -> None:
    """Many stubborn losers delay the race by one grace together."""
    winner = Branch()
    stubborn = [Branch(stubborn=True) for _ in range(5)]
    racing = asyncio.create_task(race([winner, *stubborn], FIRST, stragglers=crew, clock=clock))
    await settle()
    winner.give(1)
    await clock.run_for(LOSER_GRACE_S)
    assert await racing == [Done(1)] + [Cancelled()] * 5
    assert len(crew) == 5
    for branch in stubborn:
        branch.give(None)
    await crew.join()


async def test_a_straggler_that_fails_is_reported_by_the_crew(
    crew: Crew, clock: FakeClock, reports: list[tuple[str, BaseException]]
) -> None:
    """The late error of a straggler reaches the crew's owner; its outcome stays as it was reported."""
    winner, stubborn = Branch(), Branch(stubborn=True)
    racing = asyncio.create_task(race([winner, stubborn], FIRST, stragglers=crew, clock=clock))
    await settle()
    winner.give(1)
    await clock.run_for(LOSER_GRACE_S)
    outcomes = await racing
    stubborn.fail(OSError("late"))
    await crew.join()
    assert outcomes[1] == Cancelled()
    ((name, cause),) = reports
    assert "branch 1" in name
    assert isinstance(cause, OSError)


async def test_closing_the_crew_cancels_a_straggler_again(crew: Crew, clock: FakeClock) -> None:
    """The owner of the crew ends what is left by closing it, and waits for it."""
    winner, stubborn = Branch(), Branch(stubborn=True)
    racing = asyncio.create_task(race([winner, stubborn], FIRST, stragglers=crew, clock=clock))
    await settle()
    winner.give(1)
    await clock.run_for(LOSER_GRACE_S)
    await racing
    closing = asyncio.create_task(crew.aclose())
    await settle()
    assert stubborn.cancellations == 2
    assert not closing.done()
    stubborn.give(None)
    await closing


async def test_without_a_crew_the_race_waits_for_its_losers(clock: FakeClock) -> None:
    """When no crew takes a straggler the race itself stays until it has ended."""
    winner, stubborn = Branch(), Branch(stubborn=True)
    racing = asyncio.create_task(race([winner, stubborn], FIRST, clock=clock))
    await settle()
    winner.give(1)
    await clock.run_for(10)
    assert not racing.done()
    stubborn.give("late")
    assert await racing == [Done(1), Done("late")]


@pytest.mark.parametrize("when", ["before", "in the same turn"])
async def test_a_crew_that_closes_owns_its_stragglers_all_the_same(crew: Crew, clock: FakeClock, when: str) -> None:
    """It cancels them once more, and has them until they end; the race goes on without them."""
    winner, stubborn = Branch(), Branch(stubborn=True)
    if when == "before":
        await crew.aclose()
    racing = asyncio.create_task(race([winner, stubborn], FIRST, stragglers=crew, clock=clock))
    await settle()
    winner.give(1)
    await settle()
    clock.advance(LOSER_GRACE_S)
    closing = asyncio.create_task(crew.aclose())
    assert await racing == [Done(1), Cancelled()]
    await settle()
    assert (len(crew), stubborn.cancellations, closing.done()) == (1, 2, False)
    stubborn.give(None)
    await closing
    assert len(crew) == 0


# Cancelling a race


@pytest.mark.parametrize("join", [ALL, FIRST, n_of(2)])
async def test_cancelling_a_race_cancels_its_branches(crew: Crew, join: JoinSpec) -> None:
    """All branches are cancelled and have ended before the cancellation goes on; outcomes before it stay."""
    branches = [Branch() for _ in range(3)]
    received: list[tuple[int, BranchOutcome[Any]]] = []
    racing = asyncio.create_task(
        race(branches, join, stragglers=crew, on_outcome=lambda index, outcome: received.append((index, outcome)))
    )
    await settle()
    branches[1].fail(ValueError())
    await settle()
    racing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await racing
    assert [branch.cancellations for branch in branches] == [1, 0, 1]
    assert sorted(index for index, _ in received) == [0, 1, 2]
    assert [outcome for index, outcome in received if index != 1] == [Cancelled(), Cancelled()]


async def test_a_cancelled_race_does_not_wait_for_the_stubborn(crew: Crew, clock: FakeClock) -> None:
    """The grace holds for a cancelled race too."""
    stubborn = Branch(stubborn=True)
    racing = asyncio.create_task(race([stubborn], ALL, stragglers=crew, clock=clock))
    await settle()
    racing.cancel()
    await clock.run_for(LOSER_GRACE_S - 0.01)
    assert not racing.done()
    await clock.run_for(0.01)
    with pytest.raises(asyncio.CancelledError):
        await racing
    assert len(crew) == 1
    stubborn.give(None)
    await crew.join()


@pytest.mark.parametrize("has_winner", [True, False])
async def test_a_second_cancellation_cuts_the_grace_short(crew: Crew, clock: FakeClock, has_winner: bool) -> None:
    """Cancelled while it waits for its losers, a race hands them over at once and ends as cancelled."""
    winner, stubborn = Branch(), Branch(stubborn=True)
    racing = asyncio.create_task(race([winner, stubborn], FIRST, stragglers=crew, clock=clock))
    await settle()
    if has_winner:
        winner.give(1)
    else:
        racing.cancel()
    await settle()
    assert not racing.done()
    racing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await racing
    assert clock.armed == 0
    assert len(crew) == 1
    stubborn.give(None)
    await crew.join()


async def test_a_race_without_a_crew_outlasts_every_cancellation() -> None:
    """Without a crew for stragglers, a race waits for its branches through any cancellation, then ends as cancelled."""
    winner, stubborn = Branch(), Branch(stubborn=True)
    racing = asyncio.create_task(race([winner, stubborn], FIRST))
    await settle()
    winner.give(1)
    await settle()
    for _ in range(3):
        racing.cancel()
        await settle()
        assert not racing.done()
    stubborn.give(None)
    with pytest.raises(asyncio.CancelledError):
        await racing


async def test_a_cancellation_beats_a_result_that_just_came(crew: Crew) -> None:
    """A race that is cancelled in the turn in which it was settled ends as cancelled."""
    branch = Branch()
    racing = asyncio.create_task(race([branch], ALL, stragglers=crew))
    await settle()
    branch.give(1)
    racing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await racing


# Hearing of outcomes


async def test_outcomes_are_published_as_they_come(crew: Crew) -> None:
    """`on_outcome` hears of every branch exactly once, in the order in which they ended."""
    branches = [Branch() for _ in range(3)]
    received: list[tuple[int, BranchOutcome[Any]]] = []
    racing = asyncio.create_task(
        race(branches, n_of(1), stragglers=crew, on_outcome=lambda index, outcome: received.append((index, outcome)))
    )
    await settle()
    boom = ValueError("boom")
    branches[2].fail(boom)
    await settle()
    branches[0].give("a")
    await racing
    assert received == [(2, Failed(boom)), (0, Done("a")), (1, Cancelled())]


async def test_a_straggler_is_reported_once(crew: Crew, clock: FakeClock) -> None:
    """Its real end, whenever it comes, is not an outcome any more."""
    winner, stubborn = Branch(), Branch(stubborn=True)
    received: list[int] = []
    racing = asyncio.create_task(
        race(
            [winner, stubborn], FIRST, stragglers=crew, clock=clock, on_outcome=lambda index, _: received.append(index)
        )
    )
    await settle()
    winner.give(1)
    await clock.run_for(LOSER_GRACE_S)
    await racing
    stubborn.give("late")
    await crew.join()
    assert received == [0, 1]


async def test_an_error_of_a_listener_ends_the_race(crew: Crew) -> None:
    """The branches that still run are cancelled and joined, then the hearer's error comes out."""
    branches = [Branch() for _ in range(3)]

    def hear(index: int, outcome: BranchOutcome[Any]) -> None:
        raise LookupError(f"cannot record {index}")

    racing = asyncio.create_task(race(branches, ALL, stragglers=crew, on_outcome=hear))
    await settle()
    branches[1].give(1)
    with pytest.raises(LookupError, match="cannot record 1"):
        await racing
    assert [branch.cancellations for branch in branches] == [1, 0, 1]


@pytest.mark.parametrize("seed", range(40))
async def test_every_branch_has_one_outcome_whatever_happens(seed: int) -> None:
    """Random joins, ends, delays and cancellations: one outcome a branch, reported once; none runs at the end."""
    dice = random.Random(seed)
    clock, crew = FakeClock(), Crew(lambda *_: None)
    branches = [Branch(stubborn=dice.random() < 0.2) for _ in range(dice.randint(1, 12))]
    join = dice.choice([ALL, FIRST, n_of(dice.randint(1, len(branches)))])
    received: list[int] = []
    racing = asyncio.create_task(
        race(branches, join, stragglers=crew, clock=clock, on_outcome=lambda index, _: received.append(index))
    )
    waiting = list(branches)
    dice.shuffle(waiting)
    is_cancelled = False
    while waiting and not racing.done():
        branch = waiting.pop()
        match dice.randrange(8):
            case 0:
                branch.fail(ValueError())
            case 1 if not branch._stubborn:
                branch.die()
            case 2 if dice.random() < 0.3:
                is_cancelled = racing.cancel() or is_cancelled
                branch.give(0)
            case _:
                branch.give(0)
        for _ in range(dice.randrange(4)):
            await asyncio.sleep(0)
    await clock.run_for(1)
    try:
        outcomes = await racing
    except asyncio.CancelledError:
        assert is_cancelled
        assert sorted(received) == list(range(len(branches))) or not any(branch.is_started for branch in branches)
    else:
        assert len(outcomes) == len(branches)
        assert sorted(received) == list(range(len(branches)))
    assert clock.armed == 0
    for branch in waiting:
        branch.give(None)
    await crew.join()


@pytest.mark.parametrize("seed", range(20))
async def test_a_race_is_over_when_its_join_is_settled(crew: Crew, seed: int) -> None:
    """Branch by branch, in any order, the race ends with the very outcome after which `is_settled` holds."""
    dice = random.Random(seed)
    branches = [Branch() for _ in range(dice.randint(1, 8))]
    known: list[BranchOutcome[Any] | None] = [None] * len(branches)
    join = dice.choice([ALL, FIRST, n_of(dice.randint(1, len(branches)))])
    racing = asyncio.create_task(race(branches, join, stragglers=crew))
    await settle()
    for index in dice.sample(range(len(branches)), len(branches)):
        assert racing.done() is is_settled(join, known)
        boom = ValueError()
        branches[index].fail(boom) if dice.random() < 0.4 else branches[index].give(index)
        known[index] = Done(index) if branches[index]._end.exception() is None else Failed(boom)
        await settle()
        if is_settled(join, known):
            break
    assert await racing == [one if one is not None else Cancelled() for one in known]


@pytest.mark.parametrize("races", [24, 128])
async def test_many_races_run_at_once(crew: Crew, races: int) -> None:
    """Concurrent races share nothing but the crew."""

    async def one(n: int) -> None:
        async def branch(index: int) -> tuple[int, int]:
            await asyncio.sleep(0)
            return n, index

        outcomes = await race([lambda i=i: branch(i) for i in range(5)], ALL, stragglers=crew)  # type: ignore[misc]
        assert outcomes == [Done((n, index)) for index in range(5)]

    await asyncio.gather(*(one(n) for n in range(races)))


# The executor


def check_args(args: bytes) -> None:
    if b"bad" in args:
        raise ToolInvalidArgsError("must not be bad", "$.x")


async def body(args: bytes, call: Any) -> ToolResult:
    raise AssertionError("the executor calls through `invoke`")


class Hands:
    """A catalog of tools by name and a record of what was done with them."""

    def __init__(self) -> None:
        self.resolved: list[str] = []
        self.invoked: list[str] = []
        self.branches: dict[str, Branch] = {}
        self.results: dict[str, Any] = {}

    def resolve(self, name: str) -> ToolDescriptor | None:
        self.resolved.append(name)
        return None if name.startswith("no") else ToolDescriptor(Tool(name), body, check_args)

    async def invoke(self, descriptor: ToolDescriptor, branch: CallTool) -> ToolResult:
        name = descriptor.tool.name
        self.invoked.append(name)
        if name in self.branches:
            return ToolResult(await self.branches[name]())
        result = self.results.get(name, f"{name}:{branch.call_id}")
        if isinstance(result, BaseException):
            raise result
        return ToolResult(result)


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def executor(hands: Hands, crew: Crew, clock: FakeClock) -> ParallelExecutor:
    return ParallelExecutor(hands.resolve, hands.invoke, stragglers=crew, clock=clock)


def calls(*names: str) -> list[CallTool]:
    """Calls from `tool` or `tool:call_id`."""
    return [CallTool(name.partition(":")[0], call_id=name.partition(":")[2]) for name in names]


def values(results: list[BranchResult]) -> list[Any]:
    return [one.error if one.result is None else one.result.value for one in results]


async def test_three_calls_give_three_results(executor: ParallelExecutor) -> None:
    """Each result has the key of its branch."""
    results = await executor.execute(calls("a:1", "b:2", "a:3"), None, who=RUN)
    assert results == [
        BranchResult(index=0, tool="a", call_id="1", result=ToolResult("a:1")),
        BranchResult(index=1, tool="b", call_id="2", result=ToolResult("b:2")),
        BranchResult(index=2, tool="a", call_id="3", result=ToolResult("a:3")),
    ]


async def test_one_failure_stays_in_its_branch(executor: ParallelExecutor, hands: Hands) -> None:
    """Joined by `all`, a branch that raises has an error and its siblings have results."""
    boom = ValueError("boom")
    hands.results["b"] = boom
    assert values(await executor.execute(calls("a:1", "b", "c:3"), ALL, who=RUN)) == ["a:1", boom, "c:3"]


async def test_a_cancelled_branch_has_an_error(executor: ParallelExecutor, hands: Hands) -> None:
    """A branch that was cancelled by itself is answered too."""
    hands.results["b"] = asyncio.CancelledError()
    results = await executor.execute(calls("a:1", "b"), ALL, who=RUN)
    assert isinstance(results[1].error, ParallelBranchCancelledError)


async def test_a_keyed_call_is_answered_in_order_of_its_keys(executor: ParallelExecutor, hands: Hands) -> None:
    """Keyed results come in the order of the keys, then by index, with errors in their places."""
    boom = ValueError("boom")
    hands.results["b"] = boom
    join = JoinSpec(JoinKind.KEYED, merge_keys=("c", "2"))
    results = await executor.execute(calls("a:1", "b:2", "c:3"), join, who=RUN)
    assert [one.index for one in results] == [2, 1, 0]
    assert values(results) == ["c:3", boom, "a:1"]


async def test_the_first_success_is_the_only_result(executor: ParallelExecutor, hands: Hands) -> None:
    """`first_success` gives the one that came first and cancels the rest."""
    hands.branches = {name: Branch() for name in "abc"}
    running = asyncio.create_task(executor.execute(calls("a", "b", "c"), FIRST, who=RUN))
    await settle()
    hands.branches["a"].fail(ValueError("no"))
    hands.branches["c"].give("won")
    results = await running
    assert [(one.index, one.tool) for one in results] == [(2, "c")]
    assert values(results) == ["won"]
    assert hands.branches["b"].cancellations == 1


async def test_a_slow_loser_that_ignores_cancellation_is_not_waited_for(
    executor: ParallelExecutor, hands: Hands, clock: FakeClock, crew: Crew
) -> None:
    """The call returns after the grace, and the crew keeps the loser."""
    hands.branches = {"slow": Branch(stubborn=True)}
    running = asyncio.create_task(executor.execute(calls("a:1", "slow"), FIRST, who=RUN))
    await clock.run_for(LOSER_GRACE_S)
    assert values(await running) == ["a:1"]
    assert len(crew) == 1
    hands.branches["slow"].give(None)
    await crew.join()


async def test_n_results_come_in_the_order_they_finished(executor: ParallelExecutor, hands: Hands) -> None:
    """`n` gives so many successes, earliest first."""
    hands.branches = {name: Branch() for name in "abcd"}
    running = asyncio.create_task(executor.execute(calls(*"abcd"), n_of(2), who=RUN))
    await settle()
    for name in "dxb":
        if name in hands.branches:
            hands.branches[name].give(name)
        await settle()
    assert [(one.index, *values([one])) for one in await running] == [(3, "d"), (1, "b")]


async def test_more_successes_than_asked_for_are_left_out(executor: ParallelExecutor) -> None:
    """Branches that finish together with the last one that counts are not in the result."""
    assert len(await executor.execute(calls("a", "b", "c"), n_of(2), who=RUN)) == 2


async def test_a_contest_that_all_lose_fails_with_every_reason(executor: ParallelExecutor, hands: Hands) -> None:
    """`first_success` without a success is one error that names each branch, tool and reason."""
    hands.results = {"a": ValueError("no a"), "b": KeyError("no b")}
    with pytest.raises(ParallelShortfallError) as caught:
        await executor.execute(calls("a", "b"), FIRST, who=RUN)
    assert caught.value.results == []
    assert "branch[0] tool=a: no a" in str(caught.value)
    assert "branch[1] tool=b: 'no b'" in str(caught.value)


async def test_an_unmet_threshold_keeps_the_partial_successes(executor: ParallelExecutor, hands: Hands) -> None:
    """`n` that cannot be reached fails once every branch has ended, with the successes there were."""
    hands.branches = {name: Branch() for name in "abc"}
    running = asyncio.create_task(executor.execute(calls("a", "b", "c"), n_of(2), who=RUN))
    await settle()
    hands.branches["a"].fail(ValueError("no a"))
    hands.branches["b"].fail(ValueError("no b"))
    await settle()
    assert not running.done()
    hands.branches["c"].give("c")
    with pytest.raises(ParallelThresholdUnmetError) as caught:
        await running
    assert isinstance(caught.value, ParallelShortfallError)
    assert (caught.value.needed, caught.value.succeeded) == (2, 1)
    assert caught.value.failures == {0: "no a", 1: "no b"}
    assert values(caught.value.results) == ["c"]


async def test_checks_come_in_order(executor: ParallelExecutor, hands: Hands) -> None:
    """Identity, cap, emptiness, join and set-up are judged in this order, and nothing is invoked."""
    unknown = JoinSpec("unknown")  # type: ignore[arg-type]
    with pytest.raises(IdentityMissingError):
        await executor.execute(calls(*["no"] * 51), unknown)
    with pytest.raises(ParallelCapExceededError):
        await executor.execute(calls(*["no"] * 51), unknown, who=RUN)
    with pytest.raises(InvalidDecisionError):
        await executor.execute([], unknown, who=RUN)
    with pytest.raises(ParallelInvalidJoinError):
        await executor.execute(calls("no"), unknown, who=RUN)
    assert hands.resolved == []
    with pytest.raises(ToolNotFoundError):
        await executor.execute(calls("no"), None, who=RUN)
    assert hands.invoked == []


async def test_the_caller_must_be_known(executor: ParallelExecutor) -> None:
    """The ambient quadruple will do; a triple without a run, or an incomplete quadruple, will not."""
    with bound(RUN):
        assert len(await executor.execute(calls("a"), None)) == 1
    with bound(Identity("t", "u", "s")), pytest.raises(IdentityMissingError):
        await executor.execute(calls("a"), None)
    with pytest.raises(IdentityRequiredError, match="run_id"):
        await executor.execute(calls("a"), None, who=Quadruple("t", "u", "s"))


async def test_a_cancelled_caller_gets_its_cancellation_first(executor: ParallelExecutor, hands: Hands) -> None:
    """Called by a task that was cancelled already, it runs nothing."""

    async def caller() -> None:
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        await executor.execute(calls(*["no"] * 51), None, who=RUN)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(caller())
    assert hands.resolved == []


async def test_a_bad_branch_stops_the_whole_call(executor: ParallelExecutor, hands: Hands) -> None:
    """Set-up is all or nothing: the first branch that fails it is named and no sibling was invoked."""
    bad = [CallTool("a"), CallTool("b", b'{"x":"bad"}'), CallTool("none")]
    with pytest.raises(ParallelBranchInvalidArgsError) as caught:
        await executor.execute(bad, None, who=RUN)
    assert (caught.value.index, caught.value.tool) == (1, "b")
    assert "must not be bad" in caught.value.reason
    assert isinstance(caught.value.__cause__, ToolInvalidArgsError)
    with pytest.raises(ToolNotFoundError) as missing:
        await executor.execute([bad[0], bad[2], bad[1]], None, who=RUN)
    assert missing.value.id == "none"
    assert hands.invoked == []


async def test_a_bad_branch_may_fail_alone(executor: ParallelExecutor, hands: Hands) -> None:
    """Without atomicity the failure is that branch's result and the siblings run."""
    branches = [CallTool("none"), CallTool("a", call_id="1"), CallTool("b", b'{"x":"bad"}')]
    missing, good, invalid = await executor.execute(branches, None, non_atomic=True, who=RUN)
    assert isinstance(missing.error, ToolNotFoundError)
    assert good.result == ToolResult("a:1")
    assert isinstance(invalid.error, ParallelBranchInvalidArgsError)
    assert hands.invoked == ["a"]


async def test_a_tool_without_a_check_is_called_as_it_is(crew: Crew, hands: Hands) -> None:
    """A descriptor need not validate arguments."""
    executor = ParallelExecutor(lambda name: ToolDescriptor(Tool(name), body), hands.invoke, stragglers=crew)
    assert values(await executor.execute([CallTool("a", b"bad")], None, who=RUN)) == ["a:"]


async def test_a_tool_without_a_body_fails_in_its_branch(crew: Crew) -> None:
    """A branch that has nothing to call is a branch that failed."""

    async def invoke(descriptor: ToolDescriptor, branch: CallTool) -> ToolResult:
        return await descriptor.body(branch.args, None)  # type: ignore[arg-type]

    executor = ParallelExecutor(
        lambda name: ToolDescriptor(Tool(name), None),  # type: ignore[arg-type]
        invoke,
        stragglers=crew,
    )
    (result,) = await executor.execute(calls("a"), None, who=RUN)
    assert isinstance(result.error, TypeError)


async def test_a_pause_inside_a_branch_is_refused_loudly(executor: ParallelExecutor, hands: Hands) -> None:
    """A tool that answers with a request to pause fails; its siblings keep their results."""
    hands.results["b"] = RequestPause(PauseReason.AWAIT_INPUT)
    results = await executor.execute(calls("a:1", "b"), None, who=RUN)
    assert values(results)[0] == "a:1"
    assert isinstance(results[1].error, ParallelPauseUnsupportedError)


async def test_cancelling_a_call_cancels_its_branches(executor: ParallelExecutor, hands: Hands) -> None:
    """The cancellation reaches every branch and then the caller."""
    hands.branches = {name: Branch() for name in "ab"}
    running = asyncio.create_task(executor.execute(calls("a", "b"), None, who=RUN))
    await settle()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [branch.cancellations for branch in hands.branches.values()] == [1, 1]


@pytest.mark.parametrize("runs", [24, 128])
async def test_one_executor_serves_many_runs(executor: ParallelExecutor, runs: int) -> None:
    """Concurrent calls on one executor get their own results."""

    async def one(n: int) -> None:
        results = await executor.execute(calls(f"a:{n}", f"b:{n}"), None, who=Quadruple("t", "u", "s", f"r{n}"))
        assert values(results) == [f"a:{n}", f"b:{n}"]

    await asyncio.gather(*(one(n) for n in range(runs)))
