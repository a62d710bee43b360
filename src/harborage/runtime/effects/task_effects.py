"""The `task.…` effects of agents' runs: the run's own task, and those that it spawns and awaits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from harborage.errors import HarborageError, error_reason
from harborage.planner.spawning import own_group_id
from harborage.runtime.durable.steps import Change, Effect, Note, StepCall, Wait, Waiting
from harborage.runtime.effects.background import follow, registry_of
from harborage.runtime.effects.children import AWAITED, SPAWNED
from harborage.runtime.effects.completion import TaskEnd, begin, end, fail
from harborage.runtime.effects.run_resources import NO_TASKS
from harborage.runtime.loop.agent_calls import JOIN, TAKE_OVER
from harborage.runtime.loop.outcome import failed

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.planner import SpawnTask
    from harborage.runtime.effects.executor import CatalogToolExecutor
    from harborage.runtime.effects.run_resources import LiveRun
    from harborage.runtime.effects.services import AgentServices


class TaskEffects:
    """The effects on tasks. `runs` are those under way here, `executor_of` gives the executor that one spawns with."""

    def __init__(
        self,
        services: AgentServices,
        runs: Mapping[str, LiveRun],
        executor_of: Callable[[str], CatalogToolExecutor],
    ) -> None:
        self._services = services
        self._live = runs
        self._executor = executor_of

    def table(self) -> dict[str, Effect]:
        """The effects by name."""
        return {
            "task.begin": Note(run=self._begin),
            "task.end": Note(run=self._end, result=TaskEnd),
            "task.fail": Note(run=self._fail),
            "task.spawn": Change(run=self._spawn, recalled=self._spawned_before, acts=True, commits=True),
            "task.await": Wait(run=self._await, waits_for=self._awaited, cut=self._left_waiting, yields_to_pause=True),
            JOIN: Wait(run=self._await, waits_for=self._awaited, cut=self._left_waiting),
            TAKE_OVER: Wait(run=self._take_over, waits_for=self._awaited, cut=self._left_waiting, yields_to_pause=True),
        }

    async def _begin(self, call: StepCall) -> None:
        begin(self._services, self._who(call))

    async def _end(self, call: StepCall) -> TaskEnd:
        live = self._live[call.run_id]
        ended = await end(self._services, live, call.payload)
        if live.ledger is not None:
            await live.ledger.close()
        return ended

    async def _fail(self, call: StepCall) -> None:
        live = self._live[call.run_id]
        await fail(self._services, live, call.payload)
        if live.ledger is not None:
            await live.ledger.close()

    async def _spawn(self, call: StepCall) -> dict[str, Any]:
        key, spawn = call.payload
        live = self._live[call.run_id]
        if live.is_rehearsal:
            return {"error": NO_TASKS}
        if not self._services.is_recorded:
            key = spawn.idempotency_key  # the step is never taken again, and a later run may have the same id
        try:
            if self._services.admit is not None:
                await self._services.admit(self._who(call))
            executor, deadline = self._executor(call.run_id), live.base.budget.deadline
            spawned = await executor.spawn(self._who(call), spawn, key=key, deadline=deadline, write=live.write)
        except HarborageError as error:
            self._services.reraise_refusal(error)
            return failed(error_reason(error)).observation  # type: ignore[no-any-return]
        self._spawned_one(live, spawn, spawned.task_id, spawn.group_id or spawned.group_id)
        return spawned.handle

    def _spawned_before(self, call: StepCall, handle: dict[str, Any]) -> None:
        """A resumed run is notified of its background groups too, of those that ended meanwhile at once."""
        key, spawn = call.payload
        if "error" not in handle:
            group = spawn.group_id or own_group_id(self._who(call), key)
            self._spawned_one(self._live[call.run_id], spawn, handle["task_id"], group)

    def _spawned_one(self, live: LiveRun, spawn: SpawnTask, task_id: str, group: str) -> None:
        """The run has a child, whose group it waits for, or of whose end it is notified."""
        live.has_children = True
        if spawn.group_id and group not in live.named_groups:
            live.named_groups += (group,)
        if spawn.spec.retain_turn:
            live.retained[task_id] = group
        else:
            follow(self._services, live, group)

    async def _await(self, call: StepCall) -> Any:
        """The outcome as the planner sees it: a heavy result is kept in the artifact store as that of a tool."""
        return await self._ended(call, is_whole=False)

    async def _take_over(self, call: StepCall) -> Any:
        """The outcome with the whole answer, which becomes the answer of the run."""
        return await self._ended(call, is_whole=True)

    async def _ended(self, call: StepCall, *, is_whole: bool) -> Any:
        live = self._live[call.run_id]
        group = live.retained.get(call.payload)
        target, name = (call.payload, AWAITED) if group is None else (group, SPAWNED)
        on_waiting = partial(live.waiting.__setitem__, call.position)
        try:
            executor = self._executor(call.run_id)
            if is_whole:
                return await executor.join(self._who(call), target, on_waiting, live.write)
            _, seen = await executor.awaited(self._who(call), target, name, on_waiting, live.write)
        except HarborageError as error:
            self._services.reraise_refusal(error)
            return failed(error_reason(error)).observation
        finally:
            live.waiting.pop(call.position, None)
        return seen

    def _awaited(self, call: StepCall) -> Waiting | None:
        """What a run that awaits a task or group waits for, once it does."""
        return self._live[call.run_id].waiting.get(call.position)

    def _left_waiting(self, call: StepCall) -> None:
        """A run that was cut short while it waited waits no longer: others may wait for it."""
        live = self._live[call.run_id]
        if (tasks := registry_of(self._services, live)) is not None:
            work = tasks.end_wait(call.run_id, who=live.base.quadruple)
            live.crew.start(work, f"end of the wait of {call.run_id}")

    def _who(self, call: StepCall) -> Quadruple:
        return self._live[call.run_id].base.quadruple
