"""How runs are started: the request of a run that a caller asks for, of one that another run spawns, and of a fork."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Required, TypedDict

from msgspec.structs import replace

from harborage.artifacts import ArtifactScope
from harborage.artifacts.media import split_goal
from harborage.events import Event, EventType, Payload, TaskCancelledPayload, TaskFailedPayload
from harborage.identity import require_triple
from harborage.planner import TASK_ERROR_CANCELLED
from harborage.runtime.durable.engine import RunNotFoundError, RunStatus
from harborage.runtime.durable.histories import request_of
from harborage.runtime.durable.journal import decode_entries
from harborage.runtime.effects.contexts import checked_inputs
from harborage.runtime.effects.dependencies import check_given
from harborage.runtime.effects.options import check_description, check_key, check_start, checked_tags
from harborage.runtime.loop.context import ContextRequest
from harborage.runtime.loop.controls import Scope
from harborage.runtime.loop.limits import Limits
from harborage.runtime.loop.seam import RunRequest
from harborage.runtime.loop.sub_agents import Way
from harborage.runtime.messages import Message, with_messages
from harborage.runtime.overrides import put_back, take_overrides
from harborage.store.errors import SessionOverError
from harborage.store.port import commit_now_of
from harborage.tasks import SpawnRequest, Task, TaskKind, TaskStatus
from harborage.tasks.rows import goal_of

if TYPE_CHECKING:
    from datetime import datetime

    from harborage.artifacts.media import Goal
    from harborage.clock import Clock
    from harborage.events.bus import RunWriter
    from harborage.identity import Identity, Quadruple
    from harborage.runtime.effects.agent_setup import AgentLike
    from harborage.runtime.effects.assembly import Assembly
    from harborage.runtime.history.forking import Fork
    from harborage.runtime.loop.context import Context, ProviderChoice
    from harborage.store import Commit, Committed


_ATTACHED: Final = {"kind": "attachment"}
MESSAGE: Final = "message of a conversation"
"""The description of a run that answers a message in its session: the next message waits for its end."""


class RunOptions(TypedDict, total=False):
    """The options of `Runtime.start`."""

    who: Required[Identity]
    priority: int
    deadline: datetime | None
    input_artifacts: Iterable[str]
    max_steps: int
    limits: Limits | None
    context: Context | Iterable[ProviderChoice]
    remembers: bool | None
    scope: Scope
    deps: Any
    key: str
    tags: Mapping[str, str]
    messages: Sequence[Message]
    description: str


class Begun(NamedTuple):
    """A run that was started, or, if it `is_known`, that a start with the same key started before: how its handle is
    made."""

    who: Quadruple
    since: int
    decode: Callable[[Any], Any] | None
    is_known: bool = False


class Started(NamedTuple):
    """The run of a request; `is_known` says that an earlier one with the same key had started it."""

    who: Quadruple
    is_known: bool


class StartOptions(NamedTuple):
    """What a run is started with that is not part of its task."""

    agent: str
    max_steps: int = 0
    context: Context | None = None
    fork: Fork | None = None
    limits: Limits | None = None
    remembers: bool | None = None
    deps: Any = None


class RunStarter:
    """Starts the runs of an open runtime.

    With `takes_overrides` a run that it starts takes what was set for the next run of its session.
    """

    def __init__(self, parts: Assembly, clock: Clock, *, takes_overrides: bool = False) -> None:
        self._parts = parts
        self._clock = clock
        self._takes_overrides = takes_overrides

    async def begin(
        self,
        agent: AgentLike[Any] | Goal,
        goal: Goal | None,
        *,
        who: Identity | None = None,
        priority: int = 0,
        deadline: datetime | None = None,
        input_artifacts: Iterable[str] = (),
        max_steps: int = 0,
        limits: Limits | None = None,
        context: Context | Iterable[ProviderChoice] = (),
        remembers: bool | None = None,
        scope: Scope = Scope.OWNER_USER,
        deps: Any = None,
        key: str = "",
        tags: Mapping[str, str] = {},
        messages: Iterable[Message] = (),
        description: str = "",
        needs_goal: bool = True,
    ) -> Begun:
        """Start a run as `Runtime.start` says; unless it `needs_goal`, its goal may be empty.

        Raises:
            Exception: as of `Runtime.start`.
        """
        parts, now = self._parts, self._clock.now()
        chosen, given_goal = await parts.agents.choose(agent, goal)
        text, media = split_goal(given_goal)
        require_triple(who, "start")
        assert who is not None
        check_start(text, deadline, priority=priority, max_steps=max_steps, scope=scope, needs_goal=needs_goal)
        check_description(description)
        check_key(key)
        check_given(deps, chosen.deps, getattr(chosen.value, "name", chosen.name), parts.deps)
        limits = chosen.options.limits.replaced(limits)
        if limits.cost is not None:
            await chosen.check_price()
        inputs = await checked_inputs(parts.artifacts, who, input_artifacts)
        attached = [await one.keep(parts.artifacts, ArtifactScope.of(who), _ATTACHED) for one in media]
        wanted = SpawnRequest(
            identity=who.with_run(""),
            kind=TaskKind.FOREGROUND,
            query=text,
            description=description or (MESSAGE if remembers else ""),
            priority=priority,
            idempotency_key=key,
            input_artifact_ids=(*inputs, *(ref.id for ref in attached)),
            deadline=limits.until(deadline, now),
            agent=getattr(chosen.value, "name", chosen.name) if key else "",
            tags=checked_tags(tags, "tags"),
        )
        since = parts.bus.last_sequence(who)
        asked = ContextRequest(who=wanted.identity, goal=text, query=text)
        given = await chosen.context_providers.resolve_choice(with_messages(context, messages), asked)
        options = StartOptions(chosen.name, max_steps, given, limits=limits, remembers=remembers, deps=deps)
        started = await self.start(wanted, options)
        return Begun(started.who, 0 if started.is_known else since, chosen.decode, started.is_known)

    async def start(self, wanted: SpawnRequest, start: StartOptions) -> Started:
        """Start the run of a task that a caller asks for, unless a request with its key did.

        Raises:
            SessionClosedError: its session was closed.
        """
        parts = self._parts
        # In the commit of the start, but for one whose key may be known, and in memory, where a commit costs nothing.
        opening = None
        if wanted.idempotency_key or commit_now_of(parts.store) is not None:
            await parts.sessions.visit(wanted.identity)
        else:
            opening = parts.sessions.visiting(wanted.identity)

        async def launch(
            task: Task, commit: Commit, accepted: Callable[[], None] | None, write: RunWriter | None
        ) -> Committed:
            who = task.identity.identity.with_run(task.id)
            await parts.approvals.load(who.tenant_id)
            overrides = await take_overrides(parts.state, who.identity) if self._takes_overrides else None
            request = self._request(who, wanted, wanted.query, start)
            request = request if overrides is None else replace(request, overrides=overrides)
            seed = () if start.fork is None else start.fork.seed
            if start.deps is not None:
                parts.deps.give(task.id, start.deps)
            elif start.fork is not None:
                parts.deps.inherit(task.id, start.fork.parent, parts.agents.get(start.agent).deps)
            if opening is not None:
                commit = replace(commit, session=opening.session)
            try:
                done = await parts.engine.launch(request, commit, seed=seed, accepted=accepted, write=write)
                if opening is not None and done.session is not None:
                    opening.committed(done.session)
                return done
            except BaseException:
                parts.deps.drop(task.id)
                if overrides is not None:
                    await put_back(parts.state, who.identity, overrides)
                raise

        try:
            handle = await parts.tasks.spawn(wanted, launch=launch)
        except SessionOverError as error:
            raise parts.sessions.session_closed_error(error.row) from error
        if handle.reused and start.deps is not None:
            await self._give_again(handle.id, start.deps)
        return Started(wanted.identity.identity.with_run(handle.id), handle.reused)

    async def _give_again(self, run_id: str, deps: Any) -> None:
        """Give a run what it depends on that another process may have started, which had it."""
        parts = self._parts
        if (await parts.engine.status(run_id)).phase.is_final or parts.deps.is_given(run_id):
            return
        parts.deps.give(run_id, deps)
        await parts.store.unblock([run_id])

    async def launch_spawned(
        self, task: Task, commit: Commit, accepted: Callable[[], None] | None, write: RunWriter | None
    ) -> Committed:
        """Start the run of a task that a run, or a caller of `Runtime.tasks`, spawns.

        A child is of the agent that its task names, else of its parent's; the run of a task without a parent is of the
        runtime's first agent.

        Raises:
            InvalidOptionError: there is no agent of the name.
        """
        parts, who = self._parts, task.identity.identity.with_run(task.id)
        parent = await self._request_of(task.parent_task_id) if task.parent_task_id else None
        agent = parts.agents.first.name if parent is None else parent.agent
        if task.agent:
            agent = parts.agents.called_by(agent, task.agent).name
        await parts.approvals.load(who.tenant_id)
        request = self._request(who, task, goal_of(task), StartOptions(agent)).within(parent)
        if parent is not None and _is_handoff(parent, task):
            request = replace(request, is_handed_over=True, asks_context=True)
        if not task.parent_task_id:
            await parts.sessions.visit(who)
        if task.parent_task_id:
            parts.deps.inherit(task.id, task.parent_task_id, parts.agents.get(agent).deps)
        return await parts.engine.launch(request, commit, accepted=accepted, write=write)

    def _request(self, who: Quadruple, task: Task | SpawnRequest, goal: str, start: StartOptions) -> RunRequest:
        """Return the request with which the run of a task is started."""
        if start.fork is not None:
            return replace(start.fork.for_run(who), agent=start.agent)
        chosen = self._parts.agents.get(start.agent)
        limits = chosen.options.limits if start.limits is None else start.limits
        is_child = bool(task.parent_task_id)
        wants_memory = chosen.remembers if start.remembers is None else start.remembers
        remembers = wants_memory and chosen.context_providers.memory is not None and not is_child
        return RunRequest(
            who=who,
            goal=goal,
            agent=start.agent,
            query=task.query,
            task_id=who.run_id,
            max_steps=start.max_steps or chosen.options.max_steps,
            deadline=limits.until(task.deadline, self._clock.now()),
            token_budget=chosen.token_budget,
            input_artifact_ids=task.input_artifact_ids,
            limits=None if limits == Limits() else limits,
            is_child=is_child,
            context=None if start.context is None else chosen.context_providers.keep_handles(start.context, who.run_id),
            asks_context=chosen.asks_context or remembers,
            writes_memory=remembers,
            gated=self._parts.approvals.overlay(who.tenant_id, chosen.gates.current()),
            hooks=chosen.hooks,
            sub_agents=chosen.sub_agents,
            is_workflow=chosen.is_workflow,
            output=task.output,
        )

    async def _request_of(self, run_id: str) -> RunRequest | None:
        """Return the request with which a run was started; None if the run is not known here."""
        if (live := self._parts.agents.live(run_id)) is not None and live.request is not None:
            return live.request
        with suppress(RunNotFoundError):
            return request_of(run_id, decode_entries(await self._parts.engine.history(run_id), run_id))
        return None


def _is_handoff(parent: RunRequest, task: Task) -> bool:
    """Whether the run that spawns a task has handed its conversation over with it."""
    return any(one.agent == task.agent and one.way is Way.HANDOFF for one in parent.sub_agents)


async def abandon(parts: Assembly, status: RunStatus) -> None:
    """Publish that a run ends with its process: reject the controls that it has not consumed, and end its task."""
    for control in await parts.engine.list_unconsumed(status.run_id):
        parts.refuse(control)
    task = await parts.tasks.get(status.run_id, who=status.who)
    if task.status is TaskStatus.RUNNING:
        body: Payload = TaskFailedPayload(task.id, TASK_ERROR_CANCELLED)
        parts.bus.publish_nowait(Event(EventType.TASK_FAILED, task.identity, body))
    else:
        body = TaskCancelledPayload(task.id, "the runtime was closed", False)
        parts.bus.publish_nowait(Event(EventType.TASK_CANCELLED, task.identity, body))
