"""What was said and done in a session, for an editor that opens it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from harborage import codec
from harborage.cli.editor.turn import HEAVY_BYTES
from harborage.cli.editor.updates import Updates, call_name
from harborage.planner import Finish
from harborage.runtime.durable.reader import RunReader
from harborage.runtime.history import all_runs
from harborage.runtime.history.builder import history_of
from harborage.runtime.history.model import CallStatus
from harborage.runtime.history.reading import opened_from
from harborage.runtime.loop.outcome import call_id
from harborage.runtime.starting import MESSAGE
from harborage.server.families.run_views import RunViews
from harborage.store import RunQuery

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.runtime.history.model import CallMade, RunHistory
    from harborage.runtime.host import Runtime
    from harborage.tools import SideEffect


async def read_past(
    runtime: Runtime, schema: Any, who: Identity, effects: Callable[[str], SideEffect | None]
) -> AsyncIterator[Any]:
    """Yield the updates of the session of `who` from its beginning; secrets are masked.

    Raises:
        JournalCorruptError: the record of a run cannot be read.
    """
    parts = runtime.parts
    redactor = parts.agents.first.context_providers.redactor
    views = RunViews(redactor, heavy_bytes=HEAVY_BYTES, side_effect=lambda _: "")
    query = RunQuery(tenant=who.tenant_id, user=who.user_id, session=who.session_id)
    reader = RunReader(parts.store)
    for row in await all_runs(parts.store, query):
        if row.description == MESSAGE:
            history = history_of(opened_from(list(await reader.entries(row.run_id))))
            for update in _told(history, Updates(schema, row.run_id, effects), views):
                yield update


def _told(history: RunHistory, updates: Updates, views: RunViews) -> Iterator[Any]:
    yield updates.asked(views.text(history.goal))
    for step in history.steps:
        if step.reasoning:
            yield updates.think(views.text(step.reasoning))
        if step.preamble and not isinstance(step.decision, Finish):
            yield updates.say(views.text(step.preamble))
        for call in step.calls:
            yield from _call(call_name(history.run_id, call_id(step.number, call.branch)), call, updates, views)
    if history.finish is not None:
        yield from updates.answer(_plain(views, history.finish.payload))
    elif history.error:
        yield updates.say(views.text(f"The run failed: {history.error}: {history.message}"))


def _call(name: str, call: CallMade, updates: Updates, views: RunViews) -> Iterator[Any]:
    args = codec.decode(call.args.encode()) if call.args else {}
    yield from updates.announce(name, call.tool, _plain(views, args))
    match call.status:
        case CallStatus.OPEN:
            return
        case CallStatus.DONE | CallStatus.HELD_BACK:
            yield updates.ended(name, _plain(views, call.observation))
        case _:
            why = call.refusal or call.error or str(call.status)
            yield updates.ended(name, views.text(why), is_good=False)


def _plain(views: RunViews, value: Any) -> Any:
    shown = views.show(value).either
    return None if shown is UNSET else msgspec.to_builtins(shown)
