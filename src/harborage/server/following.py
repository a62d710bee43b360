"""What a client is shown of a run while it goes on: the words of the model and the calls, until the run ends or asks.

Only the run's own: what happens in the runs that it starts is theirs. Their questions are the run's, though: whoever
waits for it waits for them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import UNSET

from harborage.events import EventType, LLMCompletionChunkPayload, Subscription
from harborage.events.payloads.control import ControlLifecyclePayload
from harborage.events.payloads.planner import DecisionPayload
from harborage.events.payloads.tools import (
    ToolCompletedPayload,
    ToolFailedPayload,
    ToolInvalidArgsPayload,
    ToolInvokedPayload,
    ToolPolicyExhaustedPayload,
    ToolRejectedPayload,
)
from harborage.planner.decisions import ChunkKind
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.run import Run
from harborage.runtime.run_events import RunEvents
from harborage.server.questions import is_asking

if TYPE_CHECKING:
    from harborage.events import Event
    from harborage.server.services import Services


class Wrote(msgspec.Struct, frozen=True):
    """A piece of what the model writes."""

    text: str


class Reasoned(msgspec.Struct, frozen=True):
    """A piece of what the model thinks aloud."""

    text: str


class Ended(msgspec.Struct, frozen=True):
    """The model has written all of one answer."""


class Decided(msgspec.Struct, frozen=True):
    """The step of this number was decided; that may be told after the next one has begun to be written."""

    step: int


class Called(msgspec.Struct, frozen=True):
    """A call began; `id` is unique within the run, `args` is JSON without secrets, None where its event has none."""

    id: str
    tool: str
    args: str | None

    @property
    def is_whole(self) -> bool:
        """Whether it has its arguments."""
        return self.args is not None


class Returned(msgspec.Struct, frozen=True):
    """A call ended, with an output or an error; it has neither where its event has not."""

    id: str
    tool: str
    output: str | None = None
    error: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether it has what came of the call."""
        return self.output is not None or bool(self.error)


class Rejected(msgspec.Struct, frozen=True):
    """A call was not made, because a person rejected it; `args` as of `Called`."""

    id: str
    tool: str
    reason: str
    args: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it has its arguments."""
        return self.args is not None


Shown: TypeAlias = Wrote | Reasoned | Ended | Decided | Called | Returned | Rejected

_ASKS = frozenset({EventType.TOOL_APPROVAL_REQUESTED, EventType.PAUSE_REQUESTED})
_FAILED = "failed"


class Going(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose end a request waits for.

    Of one that it answered only what comes behind `after` is shown, and of what is recorded only what is later than
    `since`; `decided` of its steps were decided before. `subscription` was opened before the request did anything, so
    it has the pieces of the first answer, too.
    """

    run: Run[Any]
    after: int = 0
    since: datetime | None = None
    is_new: bool = True
    decided: int = 0
    subscription: Subscription | None = None

    def close(self) -> None:
        """Free the subscription, if nobody reads it."""
        if self.subscription is not None:
            self.subscription.cancel()


async def follow(services: Services, going: Going) -> AsyncGenerator[Shown, None]:
    """Yield what a run does, until it ends or a person must answer something.

    Of one that is not new, it is looked first whether it asks already.

    Raises:
        Exception: as of `Run.events` and `Run.finished`.
    """
    run, after = going.run, going.after
    if going.subscription is None:
        reading = run.events(after=after)
    else:
        parts = services.parts
        reader = RunEvents(
            run.who, parts.engine, parts.bus, parts.tasks, since=after, after=after, subscription=going.subscription
        )
        reading = reader.stream()
    async with aclosing(reading) as events:
        if not going.is_new and await is_asking(run):
            return
        async for event in events:
            if _may_ask(event) and await is_asking(run):
                return
            if (shown := _shown(event, run.id)) is not None:
                yield shown
    with suppress(RunFailedError):  # the last event may come before what it tells of is recorded
        await run.finished()


def _may_ask(event: Event) -> bool:
    """Whether a question may be open since an event: a new one, or one whose answer could not be used."""
    payload = event.payload
    return event.type in _ASKS or (isinstance(payload, ControlLifecyclePayload) and payload.outcome == _FAILED)


def _shown(event: Event, run_id: str) -> Shown | None:
    if event.identity.run_id != run_id:
        return None
    payload = event.payload
    match payload:
        case LLMCompletionChunkPayload():
            is_content = payload.kind == str(ChunkKind.CONTENT)
            if not payload.delta:
                return Ended() if payload.done and is_content else None
            return Wrote(payload.delta) if is_content else Reasoned(payload.delta)
        case DecisionPayload():
            return Decided(payload.step) if isinstance(payload.step, int) else None
        case ToolInvokedPayload():
            cut = payload.args_cut
            args = payload.args if cut is UNSET else msgspec.json.encode(cut)
            return Called(_id(payload.call_id), payload.tool_name, None if args is UNSET else bytes(args).decode())
        case ToolCompletedPayload():
            result = payload.result if payload.result_cut is UNSET else msgspec.json.encode(payload.result_cut)
            text = None if result is UNSET else plain_text(bytes(result))
            return Returned(_id(payload.call_id), payload.tool_name, text)
        case ToolRejectedPayload():
            return Rejected(_id(payload.call_id), payload.tool, payload.reason)
        case ToolFailedPayload():
            return Returned(_id(payload.call_id), payload.tool_name, error=payload.error_message or payload.error_class)
        case ToolInvalidArgsPayload():
            return Returned(_id(payload.call_id), payload.tool_name, error=payload.validation_error)
        case ToolPolicyExhaustedPayload():
            return Returned(_id(payload.call_id), payload.tool_name, error=payload.last_error or payload.last_class)
        case _:
            return None


def _id(call_id: Any) -> str:
    return call_id if isinstance(call_id, str) else ""


def plain_text(value: bytes) -> str:
    """Return JSON as a person reads it: a text without its quotes, anything else as it is."""
    found: Any = msgspec.json.decode(value)
    return found if isinstance(found, str) else value.decode()
