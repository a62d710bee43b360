"""A request for a run: read and checked, and the run that it starts, or goes on with by answering its question."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.errors import HarborageError, error_text
from harborage.events import Filter
from harborage.protocol.decoding import parse_body
from harborage.runtime.durable.engine import RunEndedError
from harborage.runtime.effects.agent_parts import AgentParts
from harborage.runtime.loop.context import Context
from harborage.server.following import Going, follow
from harborage.server.http import read_body
from harborage.server.open_requests import done_within
from harborage.server.openai.answering import find_pause, find_run
from harborage.server.openai.errors import bad_input
from harborage.server.openai.options import flag_option, served_agent, tags_of
from harborage.server.openai.snapshot import Snapshot, read_snapshot
from harborage.server.questions import send_answer
from harborage.server.services import Caller

if TYPE_CHECKING:
    from starlette.requests import Request

    from harborage.events import Subscription
    from harborage.runtime.loop.pauses import Pause
    from harborage.runtime.messages import Message
    from harborage.runtime.run import Run
    from harborage.server.auth.gate import Gate
    from harborage.server.open_requests import OpenRequests
    from harborage.server.openai.inputs import Said
    from harborage.server.questions import Answer
    from harborage.server.services import Services

BODY_CAP: Final = 32 * 1024 * 1024
"""How many bytes a request may have; pictures and files stand in it."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request: who sent it, and its parameters. Its run outlives its connection where that `stores` it."""

    caller: Caller
    fields: Mapping[str, Any]
    agent: AgentParts
    key: str
    stores: bool
    streams: bool

    @property
    def outlives(self) -> bool:
        """Whether the run goes on when the client leaves: the client said so, or can come back for it by its key."""
        return self.stores or bool(self.key)


async def read_fields(services: Services, gate: Gate, request: Request) -> tuple[Caller, dict[str, Any]]:
    """Return who sent a request, and the parameters in its body.

    Raises:
        ProtocolError, PeerTooSlowError, ClientDisconnect: as of every route.
    """
    caller = await gate.verify(request)
    body = await read_body(request, BODY_CAP, services)
    return caller, {name: value for name, value in parse_body(body).items() if value is not None}


def asked_of(services: Services, request: Request, caller: Caller, fields: Mapping[str, Any], *, stores: bool) -> Asked:
    """Return a request whose parameters were checked; `stores` is what leaving out `store` means.

    Raises:
        RequestRefusedError: the agent is not served, or a flag is none.
    """
    return Asked(
        caller=caller,
        fields=fields,
        agent=served_agent(services, fields),
        key=request.headers.get("idempotency-key", "").strip(),
        stores=flag_option(fields, "store", default=stores),
        streams=flag_option(fields, "stream"),
    )


async def start_run(
    services: Services, asked: Asked, said: Said, before: tuple[Message, ...] = (), param: str = "messages"
) -> Going:
    """Start the run of a request, which is shown what was said `before` and in the request.

    Raises:
        RequestRefusedError: it has no goal, or instructions for a workflow.
        Exception: as of `Runtime.start`.
    """
    if said.last is None:
        raise bad_input(f"the last of {param!r} must be a message of the user", param)
    goal = said.goal
    if not (goal if isinstance(goal, str) else goal[-1]):
        raise bad_input("the last message of the user says nothing", param)
    if said.instructions and asked.agent.is_workflow:
        raise bad_input("this agent is a workflow, which takes no instructions; leave them out", param)
    opened, after = _subscribed(services, asked), services.parts.bus.last_sequence(asked.caller.who)
    try:
        run = await services.runtime.start(
            asked.agent.name,
            goal,
            who=asked.caller.who,
            input_artifacts=said.artifacts,
            context=Context(instructions=said.instructions) if said.instructions else (),
            messages=tuple(one for one in (*before, *said.messages) if one.text or one.tool),
            remembers=False,
            tags=tags_of(asked.fields),
            key=asked.key,
        )
    except BaseException:
        if opened is not None:
            opened.cancel()
        raise
    return Going(run=run, after=0 if opened is None else after, is_new=not asked.key, subscription=opened)


def _subscribed(services: Services, asked: Asked) -> Subscription | None:
    """Subscribe to what the run of a request will do, where its client reads that as it comes.

    A key may name a run that has begun long ago, whose past is read from the bus.

    Raises:
        SubscriberLimitReachedError, BusClosedError: the bus refuses.
    """
    if not asked.streams or asked.key:
        return None
    return services.parts.bus.subscribe(Filter.of(asked.caller.who))


async def answer_run(services: Services, asked: Asked, run: Run[Any], answers: Mapping[str, Answer]) -> Going:
    """Answer pauses of a run, by their tokens; all are looked up before the first is answered.

    Raises:
        RequestRefusedError: one is not there.
        AnswerUnfitError, AnsweredBeforeError: one takes another kind of answer, or was answered otherwise.
        PayloadInvalidError: an answer is of another type than its question takes.
    """
    pauses: list[Pause] = [await find_pause(services, run, token) for token in answers]
    opened, after = _subscribed(services, asked), services.parts.bus.last_sequence(run.who)
    since, is_known = services.clock.now(), False
    try:
        known = await read_snapshot(services, asked.caller, run)
        for pause in pauses:
            if not await send_answer(run, pause, answers[pause.token]):
                since, is_known = min(since, pause.resumed_at or since), True
    except BaseException:
        if opened is not None:
            opened.cancel()
        raise
    if is_known and opened is not None:  # what came of it may be there already
        opened.cancel()
        opened = None
    return Going(
        run=run,
        after=0 if is_known else after,
        since=since,
        is_new=False,
        decided=known.steps,
        subscription=opened,
    )


async def found_run(services: Services, caller: Caller, run_id: str) -> Run[Any]:
    """Return the handle on a run of the caller.

    Raises:
        RunNotFoundError: there is none.
    """
    return await find_run(services, caller.who, run_id)


async def outcome(services: Services, requests: OpenRequests, request: Request, asked: Asked, going: Going) -> Snapshot:
    """Return a run once it has ended or asks something; as it stands when the time of the request is over.

    Raises:
        ClientGoneError, RequestRefusedError: the client left, or the server stops.
    """

    async def wait() -> None:
        async for _ in follow(services, going):
            pass

    waiting = done_within(wait(), services.options.answer_timeout)
    await requests.hold(request.receive, waiting, partial(left, services, asked, going.run))
    return await read_snapshot(services, asked.caller, going.run, going.since)


async def left(services: Services, asked: Asked, run: Run[Any]) -> None:
    """Cancel the run of a client that left, unless it outlives that.

    At once, as a stop button means it; a call that is being made is done to its end, and nothing after it.
    """
    if asked.outlives:
        return
    try:
        known = await read_snapshot(services, asked.caller, run)
        await run.cancel(hard=not any(one.is_open for one in known.calls))
    except RunEndedError:
        return
    except HarborageError as error:
        services.logger.warning("run %s goes on, although its client left: %s", run.id, error_text(error))
