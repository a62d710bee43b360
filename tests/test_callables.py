"""Every callback of the public interface is checked where it is given: of the wrong kind, it is refused by name.

Where either kind can be used, both are. A callback of the wrong kind would else be a coroutine that nobody awaits,
which is true and never runs, or an error of Python's own in the middle of a run.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harborage.app.agent import Agent
from harborage.callables import CallbackKindError, is_async, require_async, require_sync, settled
from harborage.drivers import DriverTable
from harborage.errors import HarborageError, InvalidOptionError
from harborage.identity import Identity, Quadruple
from harborage.llm import CompleteRequest
from harborage.planner import (
    CallTool,
    CompressionRunner,
    FactoryDeps,
    Finish,
    FinishReason,
    InvalidConfigError,
    PlannerConfig,
    RequestPause,
    RunContext,
    SpawnSpec,
    SpawnTask,
    Step,
    Trajectory,
    WakeMode,
    check_planner,
    resolve,
    resolve_wake_mode,
)
from harborage.planner.deterministic import (
    CallToolStep,
    DeterministicPlanner,
    FinishStep,
    PauseStep,
    SpawnAndAwaitStep,
    WatchGroupStep,
)
from harborage.planner.finish import FinishPlanner
from harborage.planner.react import ReActPlanner
from harborage.planner.repair import RepairLoop
from harborage.runtime.host import Runtime
from harborage.runtime.pauses import Coordinator
from harborage.runtime.steering import InboxRegistry, RunLoop, RunSpec
from harborage.tasks import GroupRequest
from harborage.testing.llm import ScriptedLLM

pytestmark = pytest.mark.anyio

WHO = Quadruple("t", "u", "s", "r")
ME = Identity("t", "u", "s")


def plain(*args: Any, **options: Any) -> Any:
    """A plain function."""


async def waits(*args: Any, **options: Any) -> Any:
    """An async one."""


class WithMethod:
    """An object whose method of that name is the function."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        setattr(self, name, function)

    async def close(self) -> None: ...


class Calls:
    """An object that can be called, and waits."""

    async def __call__(self) -> None: ...


class Delegates:
    """A plain method that says that it gives something to await."""

    def next(self, run: RunContext) -> Awaitable[Finish]:
        return FinishPlanner().next(run)


def test_what_is_async() -> None:
    """All forms of a callable: partials, decorators, methods, objects that can be called, annotations."""

    @functools.wraps(waits)
    def decorated(*args: Any) -> Any:
        return waits(*args)

    for callback in (waits, functools.partial(waits, 1), decorated, Calls(), FinishPlanner().next, Delegates().next):
        assert is_async(callback), callback
        require_async(callback, "x")
        with pytest.raises(CallbackKindError, match="x is async.*with def"):
            require_sync(callback, "x")
    for callback in (plain, functools.partial(plain, 1), WithMethod, str.upper, [].append):
        assert not is_async(callback), callback
        require_sync(callback, "x")
    for callback in (plain, functools.partial(plain, 1)):
        with pytest.raises(CallbackKindError, match="x is a plain function.*async def"):
            require_async(callback, "x")
    require_async(lambda: waits(), "what a lambda gives is not known")
    for check in (require_sync, require_async):
        check(None, "none")
        with pytest.raises(CallbackKindError, match="x is a int, which cannot be called"):
            check(7, "x")


async def test_either_kind_is_settled() -> None:
    """A value is itself, and what can be awaited is what it gives."""

    async def one() -> int:
        return 1

    assert (await settled(1), await settled(one())) == (1, 1)


async def run_with(spec: dict[str, Any], **base: Any) -> Any:
    """A bare run over these parts."""
    spec = {"planner": FinishPlanner(), **spec}
    return await RunLoop(InboxRegistry(), Coordinator()).run(RunSpec(base=RunContext(quadruple=WHO, **base), **spec))


async def resolved(factory: Callable[..., Any]) -> Any:
    """A planner that configuration names."""
    table = DriverTable("planner", {"mine": factory})
    return await resolve(PlannerConfig(driver="mine"), FactoryDeps(), table=table)


def over_model(planner: Any) -> Runtime:
    return Runtime(model=ScriptedLLM(), planner=planner)


# For each callback: the name that the error must have, and what is done with one of the wrong kind.
WRONG: dict[str, Callable[[], Any]] = {
    "hard_cancel_hook": lambda: RunLoop(InboxRegistry(), Coordinator(), hard_cancel_hook=plain),
    "on_tool_dispatched": lambda: run_with({"on_tool_dispatched": plain}),
    "tool_executor.execute_decision": lambda: run_with({"tool_executor": WithMethod("execute_decision", plain)}),
    "base.clock": lambda: run_with({}, clock=waits),
    "base.emit": lambda: run_with({}, emit=waits),
    "base.on_chunk": lambda: run_with({}, on_chunk=waits),
    "base.on_reasoning": lambda: run_with({}, on_reasoning=waits),
    "base.on_assistant_content": lambda: run_with({}, on_assistant_content=waits),
    "base.on_pending_tool_calls": lambda: run_with({}, on_pending_tool_calls=waits),
    "WithMethod.next": lambda: run_with({"planner": WithMethod("next", plain)}),
    "WithMethod.next ": lambda: Runtime(planner=WithMethod("next", plain)),
    "planner is async": lambda: over_model(waits),
    "the factory of the planner 'mine'": lambda: resolved(waits),
    "WithMethod.wake_mode": lambda: resolve_wake_mode(WithMethod("wake_mode", waits)),
    "token_estimator": lambda: CompressionRunner(WithMethod("summarise", waits), token_estimator=waits),
    "summariser.summarise": lambda: CompressionRunner(WithMethod("summarise", plain)),
    "summariser.summarise ": lambda: Runtime(planner=FinishPlanner(), summariser=WithMethod("summarise", plain)),
    "prompt_builder.build": lambda: ReActPlanner(ScriptedLLM(), prompt_builder=WithMethod("build", waits)),
    "client.complete": lambda: ReActPlanner(WithMethod("complete", plain)),
    "validator": lambda: RepairLoop().run(RunContext(quadruple=WHO), ScriptedLLM(), CompleteRequest(), waits),
    "clean": lambda: Runtime(planner=FinishPlanner()).replay([], clean=waits),
    "check": lambda: Agent(name="a", check=waits),
    "previews['write_file']": lambda: Agent(name="a", previews={"write_file": plain}),
}


async def refusal(give: Callable[[], Any]) -> HarborageError | None:
    """The error of giving a callback; None when it was accepted."""
    try:
        await settled(give())
    except HarborageError as error:
        return error
    return None


def test_a_summariser_without_the_method_is_refused_by_name() -> None:
    """A function in its place would fail only when the first history is summarised."""
    for wrong in (waits, plain, "short"):
        with pytest.raises(InvalidOptionError, match=r"summariser=.* async def summarise"):
            Runtime(planner=FinishPlanner(), summariser=wrong)
        with pytest.raises(InvalidConfigError, match=r"summariser .* async def summarise"):
            CompressionRunner(wrong)


async def test_a_callback_of_the_wrong_kind_is_refused_by_name() -> None:
    """At construction, or at the latest before the run that it was given for begins."""
    for name, give in WRONG.items():
        error = await refusal(give)
        assert isinstance(error, CallbackKindError | InvalidConfigError), name
        assert name.strip() in str(error), name


async def test_the_wake_mode_may_be_an_attribute() -> None:
    """A plain attribute is as good as a method; what is no mode is refused, and so is a planner that declares it."""
    assert resolve_wake_mode(WithMethod("wake_mode", WakeMode.POLL)) is WakeMode.POLL  # type: ignore[arg-type]
    assert resolve_wake_mode(WithMethod("wake_mode", lambda: "hybrid")) is WakeMode.HYBRID
    planner = WithMethod("next", waits)
    planner.wake_mode = "eager"  # type: ignore[attr-defined]
    with pytest.raises(InvalidConfigError, match="'eager'; use one of push, poll, hybrid"):
        check_planner(planner)
    with pytest.raises(InvalidConfigError, match="int is no planner: it has no `next`"):
        check_planner(7)
    assert check_planner(Delegates()) is not None


def either(value: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A plain and an async function that give `value`."""

    async def later(*args: Any) -> Any:
        return value

    return lambda *args: value, later


async def test_builders_and_guards_of_steps_may_be_of_either_kind() -> None:
    """Plain or async, a builder gives what it gives, and a guard that says no leaves the call to the next step."""
    run = RunContext(quadruple=WHO, trajectory=Trajectory(steps=[Step()]))
    for args in either({"a": 1}):
        step = CallToolStep("t", args_builder=args)
        assert await DeterministicPlanner([step]).next(run) == CallTool("t", b'{"a":1}')
    for payload, metadata in zip(either("p"), either({"k": 1}), strict=True):
        ends = FinishStep("goal", payload_builder=payload, metadata_builder=metadata)
        assert await DeterministicPlanner([ends]).next(run) == Finish(FinishReason.GOAL, "p", {"k": 1, "run_id": "r"})
    for payload in either({"ask": 1}):
        step = PauseStep("await_input", payload_builder=payload)
        assert await DeterministicPlanner([step]).next(run) == RequestPause("await_input", {"ask": 1})
    for no in either(False):
        steps = [CallToolStep("t", either({})[0], when=no), FinishStep("goal", when=either(True)[1])]
        assert isinstance(await DeterministicPlanner(steps).next(run), Finish)


async def test_steps_that_follow_groups_take_either_kind() -> None:
    """The task is spawned as its builder says, and what follows is what `on_resolved` says, plain or async."""
    async with Runtime(planner=FinishPlanner()) as runtime:
        for number, (spec, resolved_as, yes) in enumerate(
            zip(either(SpawnSpec(query="q")), either(CallTool("next")), either(True), strict=True)
        ):
            who = ME.with_run(f"r{number}")
            run = RunContext(quadruple=who)
            step = SpawnAndAwaitStep(spec_builder=spec, on_resolved=resolved_as, when=yes)
            planner = DeterministicPlanner([step], registry=runtime.tasks)
            spawned = await planner.next(run)
            assert isinstance(spawned, SpawnTask)
            assert spawned.spec.query == "q"
            watch = await runtime.tasks.watch_group(ME, spawned.group_id)
            await watch.completion()
            watch.cancel()
            assert await planner.next(run) == CallTool("next")
            group = await runtime.tasks.resolve_or_create_group(GroupRequest(session=ME, id=spawned.group_id), who=who)
            watches = WatchGroupStep(
                group_id=group.id, owner_task_id=group.members[0], on_resolved=resolved_as, when=yes
            )
            assert await DeterministicPlanner([watches], registry=runtime.tasks).next(run) == CallTool("next")
