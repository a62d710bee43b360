"""What a host runs for an agent: the task begins, the loop goes round, the task ends with what came of it.

Pure above the seam like the loop itself; beginning and ending the task are recorded steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from harborage.planner import Finish, FinishReason, Trajectory, ends_at_step_limit
from harborage.runtime.durable.engine import NotPreparedError, RunLeftError
from harborage.runtime.effects.gates import Gates
from harborage.runtime.loop.arrivals import StepInterruptedError
from harborage.runtime.loop.capabilities import INSTRUCTIONS, OFFERED
from harborage.runtime.loop.context import ContextUnavailableError
from harborage.runtime.loop.dispatch import dispatch
from harborage.runtime.loop.loop import run_loop
from harborage.runtime.loop.run_spec import DEFAULT_MAX_STEPS
from harborage.runtime.loop.seam import Concluded, Durable, RunRequest
from harborage.runtime.loop.state import RunState
from harborage.runtime.loop.sub_agents import SubAgent, by_tool
from harborage.state.errors import DatabaseError

if TYPE_CHECKING:
    from harborage.concurrency import Crew
    from harborage.identity import Quadruple
    from harborage.runtime.durable.mailbox import Mailbox
    from harborage.runtime.effects.completion import TaskEnd
    from harborage.runtime.effects.context_providers import Provided
    from harborage.runtime.effects.run_resources import LiveRun
    from harborage.runtime.effects.table import AgentEffects

_NO_AGENTS: Final[dict[str, SubAgent]] = {}

CHILDREN_KEY: Final = "background_tasks"
"""In the metadata of a finish: the ids of the tasks that the run had started and that continue after it."""


class InProcess(Durable, Protocol):
    """A seam whose run is executed in this process, with the mailbox and the crew that belong to it."""

    mailbox: Mailbox
    crew: Crew


class AgentProgram:
    """Executes agents' runs over any in-process seam. `describe` builds a run's live resources, `list_tools` lists
    the tools that come from elsewhere."""

    def __init__(
        self,
        effects: AgentEffects,
        describe: Callable[[RunRequest, InProcess], Awaitable[LiveRun]],
        *,
        gates: Gates | None = None,
        is_parallel_atomic: bool = False,
        list_tools: Callable[[Quadruple], Awaitable[None]] | None = None,
    ) -> None:
        self._list_tools = list_tools
        self._effects = effects
        self._describe = describe
        self._gates = Gates() if gates is None else gates
        self._is_parallel_atomic = is_parallel_atomic

    async def __call__(self, io: InProcess, request: RunRequest) -> Concluded:
        """Execute one run until its finish.

        Raises:
            Exception: the run failed, and its task with it.
        """
        live = await self._described(request, io)
        self._effects.admit(live)
        self._effects.connect(live)
        run = RunState(
            who=request.who,
            goal=request.goal,
            trajectory=Trajectory(query=request.query or request.goal),
            task_id=request.task_id,
            max_steps=request.max_steps if request.max_steps > 0 else DEFAULT_MAX_STEPS,
            has_last_word=ends_at_step_limit(live.planner),
            gated_tools=self._gates.current() if request.gated is None else request.gated,
            is_parallel_atomic=self._is_parallel_atomic,
            is_workflow=request.is_workflow,
            hooks=request.hooks,
            new_hooks=self._effects.hooks_beside(request.hooks),
            sub_agents=by_tool(request.sub_agents) if request.sub_agents else _NO_AGENTS,
        )
        live.state = run
        try:
            await io.step("task.begin", None)
            try:
                if request.asks_context:
                    await self._provide(io, request)
                for name in (INSTRUCTIONS, OFFERED):
                    if name in run.hooks:
                        await self._ask_once(io, name)
                run.trajectory.tool_context = live.base.tool_context
                run.trajectory.llm_context = dict(live.base.llm_context)
                finish = await run_loop(run, io, dispatch)
                if request.writes_memory and not request.is_rehearsal and finish.reason is FinishReason.GOAL:
                    await self._write_memory(io, finish)
            except RunLeftError:
                raise  # the run continues on some worker; its task has not failed
            except Exception as error:
                failure = self._effects.failure_of(error)
                if "after_run" in run.hooks:
                    await io.step("hook.after_run", failure)
                await io.step("task.fail", failure)
                raise
            if "after_run" in run.hooks:
                await io.step("hook.after_run", finish)
            return _concluded(finish, await io.step("task.end", finish))
        finally:
            self._effects.dismiss(request.who.run_id)

    async def _provide(self, io: InProcess, request: RunRequest) -> None:
        """Have the run's context provided, once.

        Raises:
            ContextUnavailableError: a provider that it cannot do without gave nothing.
        """
        is_alone = request.is_child and not request.is_handed_over
        try:
            provided: Provided = await io.step("context.provide", is_alone)
        except StepInterruptedError:
            return  # the loop sees why, and ends the run
        if provided.failure:
            raise ContextUnavailableError(provided.failure)

    async def _ask_once(self, io: InProcess, name: str) -> None:
        try:
            await io.step(name, None)
        except StepInterruptedError:
            return  # the loop sees why, and ends the run

    async def _write_memory(self, io: InProcess, finish: Finish) -> None:
        try:
            await io.step("memory.write", finish)
        except StepInterruptedError:
            return  # it reached its goal all the same

    async def _described(self, request: RunRequest, io: InProcess) -> LiveRun:
        try:
            if self._list_tools is not None:
                await self._list_tools(request.who)
            return await self._describe(request, io)
        except DatabaseError:
            raise  # the run is as good as it was
        except Exception as error:
            self._effects.give_up(request.who, error)
            raise NotPreparedError() from error


def _concluded(finish: Finish, ended: TaskEnd) -> Concluded:
    """Return how the run ends; its finish names the tasks that continue after it."""
    if ended.going_on:
        finish = replace(finish, metadata={**(finish.metadata or {}), CHILDREN_KEY: list(ended.going_on)})
    return Concluded(finish=finish, status=ended.status, outcome=bytes(ended.outcome))
