"""A decision over the seam: which steps it asks for, in which order, and what their answers become."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from harborage.identity import Quadruple
from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    JoinKind,
    JoinSpec,
    SpawnSpec,
    SpawnTask,
    Trajectory,
)
from harborage.runtime.loop.arrivals import Interrupt, StepInterruptedError
from harborage.runtime.loop.capabilities import Confirmation, HookAnswer
from harborage.runtime.loop.dispatch import Approval, Called, Dispatched, dispatch_by_executor
from harborage.runtime.loop.dispatch import dispatch as carry_out
from harborage.runtime.loop.joins import Cancelled, Done, Failed
from harborage.runtime.loop.outcome import OutcomeStatus, ToolOutcome, failed
from harborage.runtime.loop.state import RunState
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

RUN = Quadruple("t", "u", "s", "r")
A, B, C = (CallTool(name, b'{"n":1}', name.upper()) for name in "abc")


class Seam:
    """Answers steps by name, raises what is an error, and notes every question; branches run one after the other."""

    def __init__(self, answers: dict[str, Any], cancelled: Sequence[int] = ()) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any]] = []
        self._cancelled = cancelled

    async def step(self, name: str, payload: Any) -> Any:
        self.asked.append((name, payload))
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def gather(self, branches: Sequence[Any], join: JoinSpec) -> list[Any]:
        self.asked.append(("gather", join))
        outcomes: list[Any] = []
        for index, branch in enumerate(branches):
            if index in self._cancelled:
                outcomes.append(Cancelled())
                continue
            try:
                outcomes.append(Done(await branch(self)))
            except Exception as error:
                outcomes.append(Failed(error))
        return outcomes

    async def spawn(self, child_id: str, spec: Any) -> Any:
        return await self.step("spawn", (child_id, spec))

    async def join(self, child_id: str) -> Any:
        return await self.step("join", child_id)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.asked]


def state(**fields: Any) -> RunState:
    return RunState(**{"who": RUN, "goal": "g", "trajectory": Trajectory(), "steps": 4, **fields})


def done(value: Any) -> ToolOutcome:
    return ToolOutcome(OutcomeStatus.DONE, value)


def cut(name: str) -> StepInterruptedError:
    return StepInterruptedError(name, Interrupt.HARD_CANCEL)


async def dispatch(decision: Any, run: RunState, io: Any) -> tuple[Any, Any]:
    """What is observed of a decision, whole and for the planner, where no kind of failure is known."""
    observation, for_planner, failure, error, _ = (await carry_out(decision, run, io)).observed
    assert failure is None
    assert error == (observation["error"] if isinstance(observation, dict) and observation.keys() == {"error"} else "")
    return observation, for_planner


async def test_the_kind_of_a_failure_is_observed() -> None:
    """Refused arguments have a code of their own, with or without a gate before the call."""
    refused = failed("no n", code="invalid_args")
    for run, seam in (
        (state(), Seam({"tool.a": refused})),
        (state(gated_tools=frozenset("a")), Seam({"approve.a": Approval(refusal="no n", code="invalid_args")})),
    ):
        observed = (await carry_out(A, run, seam)).observed
        assert observed.observation == observed.for_planner == {"error": "no n"}
        assert (observed.failure.code, observed.failure.message) == ("invalid_args", "no n")


async def test_a_call_is_one_step_of_its_own_name() -> None:
    """The whole result goes into the history, the reduced one to the planner."""
    seam = Seam({"tool.a": ToolOutcome(OutcomeStatus.DONE, "whole", "short")})
    assert await dispatch(A, state(), seam) == ("whole", "short")
    assert seam.asked == [("tool.a", A)]


async def test_a_call_that_failed_is_an_observation() -> None:
    """The run goes on."""
    assert await dispatch(A, state(), Seam({"tool.a": failed("no")})) == ({"error": "no"},) * 2


async def test_a_gated_call_is_approved_first() -> None:
    """The tool gets the arguments that were approved, under the same call id."""
    seam = Seam({"approve.a": Approval(args=b'{"n":2}'), "tool.a": done(1)})
    assert await dispatch(A, state(gated_tools=frozenset("a")), seam) == (1, 1)
    assert seam.asked == [("approve.a", A), ("tool.a", CallTool("a", b'{"n":2}', "A"))]


async def test_a_refused_call_is_not_made() -> None:
    """The refusal is what the planner sees."""
    seam = Seam({"approve.a": Approval(refusal="not now")})
    assert await dispatch(A, state(gated_tools=frozenset("a")), seam) == ({"error": "not now"},) * 2
    assert seam.names == ["approve.a"]


@pytest.mark.parametrize("where", ["approve.a", "tool.a"])
async def test_a_call_cut_short_is_answered_all_the_same(where: str) -> None:
    """While it waits for approval or while it acts."""
    answers = {"approve.a": Approval(args=b"{}"), "tool.a": done(1), where: cut(where)}
    observed = await dispatch(A, state(gated_tools=frozenset("a")), Seam(answers))
    assert observed == ({"error": "cancelled: hard_cancel"},) * 2


async def test_every_branch_has_one_entry() -> None:
    """Done, failed, refused, cut, crashed and dropped: by index, with a value or an error."""
    calls = tuple(CallTool(name) for name in "abcdef")
    answers = {
        "tool.a": done("A"),
        "tool.b": failed("no"),
        "approve.c": Approval(refusal="not now"),
        "tool.d": cut("tool.d"),
        "tool.e": LookupError("gone"),
    }
    seam = Seam(answers, cancelled=[5])
    whole, seen = await dispatch(CallParallel(calls), state(gated_tools=frozenset("c")), seam)
    assert whole == seen
    assert [(one.index, one.tool, one.value, one.error) for one in whole.branches] == [
        (0, "a", "A", ""),
        (1, "b", None, "no"),
        (2, "c", None, "not now"),
        (3, "d", None, "cancelled: hard_cancel"),
        (4, "e", None, "LookupError: gone"),
        (5, "f", None, "cancelled: the parallel call was settled without this branch"),
    ]


@each_row(
    "decision, word",
    [
        (CallParallel((A,) * 51), "51"),
        (CallParallel((A,), JoinSpec(JoinKind.N, n=2)), "join n"),
        (CallParallel((A,), JoinSpec(JoinKind.N)), "join n"),
        (CallParallel((A,), JoinSpec(JoinKind.KEYED)), "merge"),
        (CallParallel((A,), JoinSpec("sideways")), "unknown join"),
    ],
)
async def test_a_parallel_call_that_makes_no_sense_runs_nothing(decision: CallParallel, word: str) -> None:
    """The planner sees what is wrong with it."""
    seam = Seam({})
    observed, _ = await dispatch(decision, state(), seam)
    assert observed["error"].startswith("parallel dispatch: ")
    assert word in observed["error"]
    assert seam.asked == []


@pytest.mark.parametrize(
    ("refusal", "names"), [("", ["parallel.check", "gather", "tool.a"]), ("bad", ["parallel.check"])]
)
async def test_all_or_nothing_is_checked_first(refusal: str, names: list[str]) -> None:
    """Where the runtime is set so; a refusal is the observation of the whole call."""
    seam = Seam({"parallel.check": refusal, "tool.a": done(1)})
    observed, _ = await dispatch(CallParallel((A,)), state(is_parallel_atomic=True), seam)
    assert seam.names == names
    assert (observed == {"error": "parallel dispatch: bad"}) == bool(refusal)


@each_row(
    "join, failing, is_met",
    [
        (JoinSpec(JoinKind.FIRST_SUCCESS), "ab", True),
        (JoinSpec(JoinKind.FIRST_SUCCESS), "abc", False),
        (JoinSpec(JoinKind.N, n=2), "a", True),
        (JoinSpec(JoinKind.N, n=2), "ab", False),
        (JoinSpec(JoinKind.ALL), "abc", True),
    ],
)
async def test_a_join_that_is_not_met_keeps_what_its_branches_gave(join: JoinSpec, failing: str, is_met: bool) -> None:
    """A branch that succeeded is answered as done, and the call says which branches failed, by index and tool."""
    answers = {f"tool.{name}": failed(f"no {name}") if name in failing else done(name) for name in "abc"}
    observed, seen = await dispatch(CallParallel((A, B, C), join), state(), Seam(answers))
    assert observed == seen
    assert [one.value for one in observed.branches] == [None if name in failing else name for name in "abc"]
    assert [one.error for one in observed.branches] == [f"no {name}" if name in failing else "" for name in "abc"]
    assert bool(observed.error) == (not is_met)
    if not is_met:
        assert observed.error.startswith("parallel dispatch: ")
        assert all(f"branch[{'abc'.index(name)}] tool={name}: no {name}" in observed.error for name in failing)


async def test_a_keyed_join_stands_in_the_order_of_its_keys() -> None:
    """By call id or tool; branches without a key follow."""
    answers = {f"tool.{name}": done(name) for name in "abc"}
    join = JoinSpec(JoinKind.KEYED, merge_keys=("C", "a"))
    observed, _ = await dispatch(CallParallel((A, B, C), join), state(), Seam(answers))
    assert [one.tool for one in observed.branches] == ["c", "a", "b"]


@pytest.mark.parametrize(("key", "child_id"), [("", "r/4"), ("mine", "mine")])
async def test_a_child_is_spawned_under_a_key(key: str, child_id: str) -> None:
    """The decision's own, else one made of the run and its step, so that a repeat starts no second child."""
    spawn = SpawnTask(idempotency_key=key)
    handle = {"task_id": "c", "kind": "background", "status": "spawned"}
    seam = Seam({"spawn": handle})
    assert await dispatch(spawn, state(), seam) == (handle, handle)
    assert seam.asked == [("spawn", (child_id, spawn))]


@each_row("retain", [False, True])
@each_row("spawned", [{"task_id": "c"}, {"error": "too deep"}])
async def test_a_retained_turn_waits_for_the_child_if_there_is_one(retain: bool, spawned: dict[str, str]) -> None:
    """Its outcome is the observation; a refusal is shown as it is."""
    seam = Seam({"spawn": spawned, "join": {"status": "complete"}})
    observed, _ = await dispatch(SpawnTask(spec=SpawnSpec(retain_turn=retain)), state(), seam)
    waits = retain and "task_id" in spawned
    assert observed == ({"status": "complete"} if waits else spawned)
    assert seam.names == (["spawn", "join"] if waits else ["spawn"])


@pytest.mark.parametrize(
    ("answer", "observed"),
    [
        ({"status": "complete"}, {"status": "complete"}),
        (StepInterruptedError("task.await", Interrupt.SOFT_CANCEL), {"error": "cancelled: soft_cancel"}),
    ],
)
async def test_a_wait_for_a_task_ends_with_it_or_is_cut_short(answer: Any, observed: Any) -> None:
    """Either way the planner gets to know."""
    assert await dispatch(AwaitTask("c"), state(), Seam({"join": answer})) == (observed, observed)


HOOKED = ("before_tool", "after_tool")


async def test_hooks_stand_before_the_approval_and_after_the_call() -> None:
    """Each is a step of its own; the approver and the tool get what the hook made of the arguments."""
    answers = {
        "hook.before_tool.a": HookAnswer(value={"n": 2}),
        "approve.a": Approval(args=b'{"n":2}'),
        "tool.a": done(1),
        "hook.after_tool.a": HookAnswer(value="one"),
    }
    seam = Seam(answers)
    assert await dispatch(A, state(gated_tools=frozenset("a"), hooks=HOOKED), seam) == (1, "one")
    changed = CallTool("a", b'{"n":2}', "A")
    assert seam.asked == [
        ("hook.before_tool.a", A),
        ("approve.a", changed),
        ("tool.a", changed),
        ("hook.after_tool.a", Called(changed, done(1))),
    ]


@each_row(
    "answers, error, asked",
    [
        ({"hook.before_tool.a": HookAnswer(refusal="no")}, "no", 1),
        ({"hook.before_tool.a": HookAnswer(advice="b first")}, "b first", 1),
        ({"hook.before_tool.a": cut("hook")}, "cancelled: hard_cancel", 1),
        ({"hook.before_tool.a": HookAnswer(confirm="?"), "confirm.a": Approval(refusal="not her")}, "not her", 2),
        ({"hook.before_tool.a": HookAnswer(confirm="?"), "confirm.a": cut("c")}, "cancelled: hard_cancel", 2),
    ],
)
async def test_a_call_that_a_hook_refuses_is_not_made(answers: dict[str, Any], error: str, asked: int) -> None:
    """Nor is any further question asked; of a decision that an executor of its own carries out neither."""
    for carry in (dispatch, by_executor):
        seam = Seam(answers)
        observation, _ = await carry(A, state(gated_tools=frozenset("a"), hooks=HOOKED), seam)
        assert observation == {"error": error}
        assert len(seam.asked) == asked


async def by_executor(decision: Any, run: RunState, io: Any) -> tuple[Any, Any]:
    observed = (await dispatch_by_executor(decision, run, io)).observed
    return observed.observation, observed.for_planner


async def test_a_confirmed_call_is_asked_about_once() -> None:
    """The person who confirmed it has approved it."""
    answers = {"hook.before_tool.a": HookAnswer(confirm="?"), "confirm.a": Approval(args=b"{}"), "tool.a": done(1)}
    seam = Seam(answers)
    await dispatch(A, state(gated_tools=frozenset("a"), hooks=("before_tool",)), seam)
    assert seam.asked[1:] == [("confirm.a", Confirmation(A, "?")), ("tool.a", CallTool("a", b"{}", "A"))]


async def test_an_executor_of_its_own_gets_branches_as_hooks_let_them_be() -> None:
    """One refused branch, and none is called."""
    both = CallParallel((A, B))
    allows = {"hook.before_tool.a": HookAnswer(), "hook.before_tool.b": HookAnswer(value={"n": 2})}
    seam = Seam({**allows, "dispatch": Dispatched("o", "p")})
    assert await by_executor(both, state(hooks=HOOKED), seam) == ("o", "p")
    assert seam.asked[-1] == ("dispatch", CallParallel((A, CallTool("b", b'{"n":2}', "B"))))
    seam = Seam({**allows, "hook.before_tool.b": HookAnswer(refusal="no b")})
    observation, _ = await by_executor(both, state(hooks=HOOKED), seam)
    assert "nothing was called: branch[1] tool=b: no b" in observation["error"]


async def test_a_result_that_no_hook_has_seen_is_withheld() -> None:
    """A cancel that comes in between must not let it pass."""
    seam = Seam({"tool.a": done("secret"), "hook.after_tool.a": cut("hook")})
    observation, seen = await dispatch(A, state(hooks=("after_tool",)), seam)
    assert observation == seen == {"error": "cancelled: hard_cancel; the result is withheld, as no hook has seen it"}


async def test_no_hook_is_asked_about_the_result_of_a_call_that_was_not_made() -> None:
    """There is none."""
    seam = Seam({"tool.a": failed("limit", OutcomeStatus.REJECTED)})
    assert await dispatch(A, state(hooks=("after_tool",)), seam) == ({"error": "limit"},) * 2
    assert seam.names == ["tool.a"]
