"""How forks are started and runs replayed: the part of a runtime that works on records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from harborage.callables import require_sync
from harborage.runtime.effects.options import check_start_options
from harborage.runtime.loop.controls import Scope
from harborage.runtime.starting import Begun, RunStarter, StartOptions

if TYPE_CHECKING:
    from datetime import datetime

    from harborage.artifacts import ArtifactStore
    from harborage.clock import Clock
    from harborage.concurrency import Crew
    from harborage.identity import Identity, Quadruple
    from harborage.runtime.effects.agent_parts import AgentParts
    from harborage.runtime.effects.assembly import Assembly, Setup
    from harborage.runtime.history.forking import Fork
    from harborage.runtime.history.replaying import Replayed
    from harborage.runtime.loop.limits import Limits
    from harborage.runtime.run import OwnerCheck, Run


class Forked(NamedTuple):
    """A fork that was started, or that an earlier request with the same key had started."""

    begun: Begun
    is_known: bool


async def start_fork(
    parts: Assembly,
    clock: Clock,
    record: Sequence[bytes],
    who: Identity,
    at: int,
    *,
    goal: str = "",
    model: str = "",
    instructions: str = "",
    agent: str = "",
    live: bool = False,
    max_steps: int = 0,
    limits: Limits | None = None,
    deadline: datetime | None = None,
    key: str = "",
) -> Forked:
    """Start a new run of `who` from the first steps of a recorded run, as `Runtime.fork` says.

    Raises:
        Exception: as of `Runtime.fork`.
    """
    from harborage.runtime.history.forking import fork_at  # loaded by the first fork

    now = clock.now()
    fork = fork_at(record, at, now=now, goal=goal, is_live=live, max_steps=max_steps)
    chosen = parts.agents.get(agent or fork.request.agent)
    fork = fork.decided_by(chosen.name if agent else "", model, instructions)
    fork = _guarded(fork, chosen)
    fork = fork.limited(chosen.options.limits.replaced(fork.request.limits).replaced(limits), deadline, now)
    reasoner = await chosen.reasoners.of(fork.request.model, fork.request.instructions, fork.request.output)
    if fork.request.limits is not None and fork.request.limits.cost is not None:
        await reasoner.check_price()
    wanted = fork.task(who, goal, key)
    since = parts.bus.last_sequence(wanted.identity)
    started = await RunStarter(parts, clock).start(wanted, StartOptions(chosen.name, fork=fork))
    return Forked(Begun(started.who, 0 if started.is_known else since, chosen.decode), started.is_known)


def _guarded(fork: Fork, chosen: AgentParts) -> Fork:
    """The fork under the hooks and approvals of another agent, where it has no steps that were made under others."""
    if fork.seed or fork.request.changed_at != 1:
        return fork
    request = replace(
        fork.request,
        gated=chosen.gates.current(),
        hooks=chosen.hooks,
        sub_agents=chosen.sub_agents,
        is_workflow=chosen.is_workflow,
        asks_context=chosen.asks_context,
        writes_memory=False,
    )
    return replace(fork, request=request)


class ForksRuns:
    """The part of a runtime that forks and replays runs."""

    _setup: Setup
    _open: tuple[Assembly, Crew] | None

    def _parts_here(self) -> Assembly:
        raise NotImplementedError

    async def run(self, run_id: str, *, who: Identity, scope: Scope = Scope.OWNER_USER) -> Run:
        """Return a handle on a run of `who`."""
        raise NotImplementedError

    def _handle(
        self,
        who: Quadruple,
        scope: Scope,
        since: int = 0,
        decode: Callable[[Any], Any] | None = None,
        check: OwnerCheck | None = None,
    ) -> Run[Any]:
        raise NotImplementedError

    async def fork(
        self,
        run_id: str,
        *,
        at: int,
        who: Identity,
        goal: str = "",
        model: str = "",
        instructions: str = "",
        agent: str = "",
        live: bool = False,
        max_steps: int = 0,
        limits: Limits | None = None,
        deadline: datetime | None = None,
        session: str = "",
        key: str = "",
        scope: Scope = Scope.OWNER_USER,
    ) -> Run:
        """Start a new run from the first steps of another run of `who`: step `at`, counted from 1, is decided anew.

        What happened before that step is copied and does not happen again; the other run is only read. From that step
        on the new run has this `goal`, `model` and `instructions`, and another `agent` of the runtime decides. Unless
        it is `live`, it does nothing that has effects: calls of tools that change something are held back, and no task
        is spawned. It belongs to the session of the other run, or to `session`, into which the artifacts that it needs
        must have been copied. It has the limits of the other run, replaced by those that `limits` sets, counted anew;
        `deadline` is absolute, with a zone. With the `key` of an earlier fork in the session it is that one.

        Raises:
            RuntimeClosedError, EngineElsewhereError, RunNotFoundError: as of `start` and of `run`.
            ForkError: it has no such step.
            AgentMissingError: the runtime has no such agent.
            InvalidOptionError: the agent's planner takes no other model or instructions, or a value is invalid.
            LLMError: the model cannot be opened.
            IdempotencyConflictError: another fork was started with the key.
        """
        parts = self._parts_here()
        check_start_options("fork", deadline, max_steps=max_steps, scope=scope)
        record = await (await self.run(run_id, who=who)).history()
        forked = await start_fork(
            parts,
            self._setup.clock,
            record,
            replace(who, session_id=session or who.session_id),
            at,
            goal=goal,
            model=model,
            instructions=instructions,
            agent=agent,
            live=live,
            max_steps=max_steps,
            limits=limits,
            deadline=deadline,
            key=key,
        )
        return self._handle(forked.begun.who, scope, forked.begun.since, forked.begun.decode)

    async def replay(
        self,
        record: Sequence[bytes],
        *,
        artifacts: ArtifactStore | None = None,
        everywhere: bool = False,
        clean: Callable[[Any], Any] | None = None,
        agent: str = "",
    ) -> Replayed:
        """Run a recorded run again, offline, with this runtime's planner, tools and options, which need not be entered.

        `record` is what `Run.history()` returns. The planner is called again at each step, with the recorded context
        and model answers; its decision is compared byte for byte. See `harborage.runtime.history.replay`.

        Raises:
            JournalCorruptError: the record cannot be read.
        """
        from harborage.runtime.history.replaying import replay

        require_sync(clean, "clean")
        if artifacts is None and self._open is not None:
            artifacts = self._open[0].artifacts
        return await replay(self._setup, record, artifacts=artifacts, everywhere=everywhere, clean=clean, agent=agent)
