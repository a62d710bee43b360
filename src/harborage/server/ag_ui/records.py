"""The arguments and results of calls, from the record of their run, where the events of the calls do not hold them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from harborage import codec
from harborage.events import EventType
from harborage.events.payloads.tools import ToolCompletedPayload, ToolInvokedPayload
from harborage.runtime.durable.reader import RunReader
from harborage.runtime.history.builder import history_of
from harborage.runtime.history.reading import opened_from
from harborage.runtime.loop.outcome import call_id
from harborage.server.families.run_views import RunViews

if TYPE_CHECKING:
    from harborage.events import Event
    from harborage.runtime.effects.assembly import Assembly
    from harborage.runtime.history.model import CallMade

_OF_A_STEP = frozenset(
    {EventType.TOOL_INVOKED, EventType.TOOL_COMPLETED, EventType.TOOL_FAILED, EventType.TOOL_APPROVED}
)


class Record:
    """The record of one run, for what a client may be shown of its calls; values above `heavy_bytes` are cut."""

    def __init__(self, parts: Assembly, run_id: str, *, heavy_bytes: int) -> None:
        self._run_id = run_id
        self._reader = RunReader(parts.store)
        redactor = parts.agents.first.context_providers.redactor
        self._views = RunViews(redactor, heavy_bytes=heavy_bytes, side_effect=lambda _: "")

    async def whole(self, reading: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
        """Yield events with the arguments and results of the run's calls in them.

        A result waits for the event behind it: what came of a step is recorded once the whole step has ended.
        """
        held: list[Event] = []
        async with aclosing(reading):
            async for event in reading:
                if held and event.type not in _OF_A_STEP:
                    for one in await self._filled(held):
                        yield one
                    held = []
                if self._lacks(event, ToolCompletedPayload):
                    held.append(event)
                elif self._lacks(event, ToolInvokedPayload):
                    yield (await self._filled([event]))[0]
                else:
                    yield event
        for one in await self._filled(held) if held else ():
            yield one

    def _lacks(self, event: Event, kind: type[ToolCompletedPayload | ToolInvokedPayload]) -> bool:
        payload = event.payload
        if event.identity.run_id != self._run_id or not isinstance(payload, kind):
            return False
        match payload:
            case ToolCompletedPayload():
                return payload.result is UNSET and payload.result_cut is UNSET
            case ToolInvokedPayload():
                return payload.args is UNSET and payload.args_cut is UNSET

    async def _filled(self, events: list[Event]) -> list[Event]:
        calls = await self._calls()
        return [replace(one, payload=self._with(one.payload, calls)) for one in events]

    async def _calls(self) -> dict[str, CallMade]:
        history = history_of(opened_from(list(await self._reader.entries(self._run_id))))
        return {call_id(step.number, call.branch): call for step in history.steps for call in step.calls}

    def _with(self, payload: Any, calls: dict[str, CallMade]) -> Any:
        call = calls.get(payload.call_id) if isinstance(payload.call_id, str) else None
        if call is None:
            return payload
        if isinstance(payload, ToolInvokedPayload):
            return replace(payload, args=self._shown(_parsed(call.args)))
        return replace(payload, result=self._shown(call.observation))

    def _shown(self, value: Any) -> msgspec.Raw:
        return msgspec.Raw(codec.encode(msgspec.to_builtins(self._views.show(value).either)))


def _parsed(args: str) -> Any:
    try:
        return codec.decode(args.encode()) if args else {}
    except (msgspec.DecodeError, RecursionError):
        return args
