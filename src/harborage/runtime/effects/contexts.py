"""What a run's planner sees: the template of its step contexts, built once when a worker claims the run."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from harborage.artifacts import ArtifactNotFoundError, ArtifactScope, ArtifactStore
from harborage.concurrency import together
from harborage.errors import InvalidOptionError
from harborage.events import Event, EventBus, EventType, LLMCompletionChunkPayload
from harborage.planner import (
    Budget,
    ChunkKind,
    CompressionRunner,
    InputArtifactView,
    Planner,
    PlanningHints,
    RepairCounters,
    RunContext,
    Summariser,
)
from harborage.runtime.effects.ledger import RunLedger
from harborage.runtime.effects.run_resources import LiveRun, SessionArtifacts, tracker_of
from harborage.runtime.loop.context import apply_context
from harborage.tools import CatalogView, ToolCatalog

if TYPE_CHECKING:
    from harborage.clock import Clock, Timers
    from harborage.identity import Identity, Quadruple
    from harborage.runtime.effects.model import Reasoners
    from harborage.runtime.effects.options import RuntimeOptions
    from harborage.runtime.effects.program import InProcess
    from harborage.runtime.loop.seam import RunRequest
    from harborage.state import StateStore


class ContextBuilder:
    """Makes the live side of runs over one planner, catalog, artifact store and bus."""

    def __init__(
        self,
        planner: Planner,
        catalog: ToolCatalog,
        artifacts: ArtifactStore,
        bus: EventBus,
        *,
        options: RuntimeOptions,
        summariser: Summariser | None,
        ledgers: StateStore,
        clock: Timers,
        logger: logging.Logger,
        hints: PlanningHints | None = None,
        takes_pictures: bool = True,
        reasoners: Reasoners | None = None,
    ) -> None:
        self._planner = planner
        self._catalog = catalog
        self._artifacts = artifacts
        self._tracker = tracker_of(artifacts)
        self._bus = bus
        self._view = CatalogView(catalog, granted_scopes=options.granted_scopes)
        self._compression = None if summariser is None else CompressionRunner(summariser)
        self._ledgers = ledgers
        self._clock = clock
        self._logger = logger
        self._hints = hints
        self._takes_pictures = takes_pictures
        self._reasoners = reasoners
        self._max_skills = options.max_skills

    async def describe(self, request: RunRequest, io: InProcess) -> LiveRun:
        """Return the live resources of the run of `request`."""
        base = RunContext(
            quadruple=request.who,
            query=request.query,
            goal=request.goal,
            system_prompt="" if request.overrides is None else request.overrides.system_prompt,
            catalog=self._view,
            artifacts=self._artifacts,
            repair_counters=RepairCounters(),
            planning_hints=self._hints,
            budget=Budget(deadline=request.deadline, token_budget=request.token_budget),
            clock=self._clock.now,
            emit=_Emitter(self._bus, request.who),
            on_chunk=_Chunks(self._bus, request, self._clock),
            input_artifacts=await self._inputs(request),
        )
        if request.context is not None and not request.asks_context:
            apply_context(base, request.context, max_skills=self._max_skills)
        planner, compression, takes_pictures = await self._deciding(request)
        return LiveRun(
            base=base,
            planner=planner,
            mailbox=io.mailbox,
            crew=io.crew,
            compression=compression,
            is_rehearsal=request.is_rehearsal,
            takes_pictures=takes_pictures,
            request=request,
            listing=SessionArtifacts(
                self._artifacts, request.who, tracker=self._tracker, clock=self._clock, logger=self._logger
            ),
            ledger=self._ledger(request),
        )

    async def _deciding(self, request: RunRequest) -> tuple[Planner, CompressionRunner | None, bool]:
        """The planner of the run, what shortens its history, and whether its model takes pictures."""
        if self._reasoners is None or not (request.model or request.instructions or request.output):
            return self._planner, self._compression, self._takes_pictures
        found = await self._reasoners.of(request.model, request.instructions, request.output)
        compression = None if found.summariser is None else CompressionRunner(found.summariser)
        return found.planner, compression, found.takes_pictures

    def _ledger(self, request: RunRequest) -> RunLedger | None:
        """What the run draws on; None where nothing but its time is limited."""
        tree = () if request.limits is None else ((request.limits.caps, request.limits_of or request.who.run_id),)
        within = (*tree, *((inner.limits.caps, inner.of) for inner in request.inner_limits))
        limited = [(caps, of) for caps, of in within if not caps.is_open]
        if not limited:
            return None
        (caps, root), *inner = limited
        return RunLedger(
            request.who,
            caps,
            root=root,
            inner=inner,
            store=self._ledgers,
            clock=self._clock,
            logger=self._logger,
        )

    async def _inputs(self, request: RunRequest) -> tuple[InputArtifactView, ...]:
        """The run's input artifacts that are still there; only images bring their bytes."""
        scope = _scope(request.who)
        views: list[InputArtifactView] = []
        for artifact_id in request.input_artifact_ids:
            ref = await self._artifacts.get_ref(scope, artifact_id)
            if ref is None:
                continue
            is_image = ref.mime_type.startswith("image/")
            views.append(
                InputArtifactView(
                    id=ref.id,
                    mime=ref.mime_type,
                    size_bytes=ref.size_bytes,
                    filename=ref.filename,
                    bytes=await self._artifacts.get(scope, ref.id) if is_image else None,
                )
            )
        return tuple(views)


async def checked_inputs(store: ArtifactStore, who: Identity, ids: Iterable[str]) -> tuple[str, ...]:
    """The ids of input artifacts, each of which is in the session of `who`.

    Raises:
        ArtifactNotFoundError: one is not there, or belongs to another session.
        InvalidOptionError: they are no list of texts.
    """
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InvalidOptionError("input_artifacts", ids, f"a list of ids, such as [{str(ids)!r}]")
    wanted = tuple(ids)
    for one in wanted:
        if not isinstance(one, str):
            raise InvalidOptionError("input_artifacts", one, "ids as text; give the `id` of an artifact's reference")
    if not wanted:
        return ()
    scope = _scope(who.with_run(""))
    refs = await together(*(store.get_ref(scope, one) for one in wanted))
    missing = tuple(one for one, ref in zip(wanted, refs, strict=True) if ref is None)
    if missing:
        named = ", ".join(map(repr, missing))
        text = f"input artifacts {named} are not in this session; put them with runtime.artifacts under its scope first"
        raise ArtifactNotFoundError(", ".join(missing), message=text)
    return wanted


class _Emitter:
    """Publishes a planner's events under its run's identity."""

    __slots__ = ("_bus", "_who")

    def __init__(self, bus: EventBus, who: Quadruple) -> None:
        self._bus = bus
        self._who = who

    def __call__(self, event: Event) -> None:
        if not event.identity.tenant_id:
            event = Event(event.type, self._who, event.payload, event.occurred_at, extra=event.extra)
        self._bus.publish_nowait(event)


class _Chunks:
    """Publishes the pieces of a streamed answer."""

    __slots__ = ("_bus", "_clock", "_request")

    def __init__(self, bus: EventBus, request: RunRequest, clock: Clock) -> None:
        self._bus = bus
        self._request = request
        self._clock = clock

    def __call__(self, delta: str, done: bool, kind: ChunkKind) -> None:
        who = self._request.who
        payload = LLMCompletionChunkPayload(
            identity=who,
            task_id=self._request.task_id,
            run_id=who.run_id,
            delta=delta,
            done=done,
            kind=str(kind),
            occurred_at=self._clock.now(),
        )
        self._bus.publish_nowait(Event(EventType.LLM_COMPLETION_CHUNK, who, payload))


def _scope(who: Quadruple) -> ArtifactScope:
    return ArtifactScope(who.tenant_id, who.user_id, who.session_id)
