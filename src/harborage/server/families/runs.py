"""`runs.*`: what happened in a run step by step, a new run from its first steps, its replay, and its test."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import UNSET

from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import TokenScope
from harborage.protocol.wire import runs as wire
from harborage.runtime.durable.journal import Entry, JournalCorruptError
from harborage.runtime.durable.pauses.listing import iterate_pauses
from harborage.runtime.durable.pauses.rows import decode_row
from harborage.runtime.durable.reader import RunReader
from harborage.runtime.history.asking import asks_of
from harborage.runtime.history.builder import history_of
from harborage.runtime.history.overview import Overview, overview
from harborage.runtime.history.reading import opened_from
from harborage.server.families.run_copies import compare_page, fork_run, freeze_run, record_of, replay_run, replayed
from harborage.server.families.run_views import RunViews
from harborage.server.services import Call, Endpoint, Endpoints
from harborage.store import PauseQuery, RunQuery, RunRow
from harborage.store.errors import EntryDamagedError

if TYPE_CHECKING:
    from harborage.events import Redactor
    from harborage.runtime.history.model import RunHistory
    from harborage.runtime.loop.pauses import Pause

T = TypeVar("T")

_ENTRY: Final = re.compile(r"entry (\d+)")
_THREAD_FROM: Final = 200


# ── Which run ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def find_row(call: Call, run_id: str, *, is_read: bool = True) -> RunRow:
    """Return the row of a run that the caller may see; only `is_read` reaches beyond its own session, by scope.

    Raises:
        ProtocolError: the id is blank, or there is no such run for the caller.
        EventError: the read across sessions could not be audited.
    """
    if not run_id.strip():
        raise ProtocolError(Code.INVALID_REQUEST, "invalid request: the id of a run is missing")
    found = (await call.parts.store.runs(RunQuery(run_ids=(run_id,), limit=1))).rows
    if not found:
        raise _not_found(run_id)
    row = found[0]
    if row.who == call.who:
        return row
    is_own_tenant = row.who.tenant_id == call.who.tenant_id
    if not is_read or not (call.is_admin or (is_own_tenant and call.caller.has(TokenScope.CONSOLE_FLEET))):
        raise _not_found(run_id)
    await call.audit()
    return row


def _not_found(run_id: str) -> ProtocolError:
    return ProtocolError(Code.NOT_FOUND, f"no run {run_id!r} here")


async def read_entries(call: Call, row: RunRow) -> list[Entry]:
    """Return the entries of a run.

    Raises:
        ProtocolError: none are kept, or one cannot be read; what it holds is not quoted.
    """
    try:
        entries = await RunReader(call.parts.store).entries(row.run_id)
    except (JournalCorruptError, EntryDamagedError) as error:
        raise _unreadable(row.run_id, error) from error
    if not entries:
        raise ProtocolError(Code.NOT_FOUND, f"no record is kept of run {row.run_id!r}")
    return list(entries)


def _unreadable(run_id: str, error: Exception) -> ProtocolError:
    found = _ENTRY.search(str(error))
    place = f" at entry {found[1]}" if found else ""
    return ProtocolError(Code.RUNTIME_ERROR, f"the record of run {run_id!r} cannot be read{place}")


async def read_history(run_id: str, entries: list[Entry]) -> RunHistory:
    """Return the history of a run.

    Raises:
        ProtocolError: an entry cannot be read.
    """
    try:
        return await _computed(lambda: history_of(opened_from(entries)), len(entries))
    except JournalCorruptError as error:
        raise _unreadable(run_id, error) from error


async def read_overview(call: Call, row: RunRow, entries: list[Entry]) -> Overview:
    """Return a run from its record, its row and its pauses.

    Raises:
        ProtocolError: an entry cannot be read.
    """
    history = await read_history(row.run_id, entries)
    queued = await call.parts.engine.list_unconsumed(row.run_id)
    return overview(history, row, pauses=await _pauses(call, row), queued=queued)


async def _pauses(call: Call, row: RunRow) -> list[Pause]:
    query = PauseQuery(tenant=row.who.tenant_id, user=row.who.user_id, run_ids=(row.run_id,), limit=200)
    return [decode_row(one) async for one in iterate_pauses(call.parts.store, query) if not one.is_damaged]


def views_of(call: Call, row: RunRow, history: RunHistory) -> RunViews:
    """Return what turns the history of a run into answers."""
    agents = call.parts.agents
    agent = agents.find(row.agent or history.request.agent)

    def side_effect(tool: str) -> str:
        found = None if agent is None else agent.catalog.resolve(tool)
        return "" if found is None else str(found.tool.side_effects)

    return RunViews(
        redactor_of(call),
        heavy_bytes=call.services.options.heavy_bytes,
        side_effect=side_effect,
        model=history.request.model or ("" if agent is None else agent.model),
    )


def redactor_of(call: Call) -> Redactor:
    """Return the redactor of the runtime."""
    return call.parts.agents.first.context_providers.redactor


# ── Checks of values ──────────────────────────────────────────────────────────────────────────────────────────────────


def check_page(after: int, limit: int) -> int:
    """Return how many steps a page has.

    Raises:
        ProtocolError: a number is out of its range.
    """
    if after < 0 or limit < 0 or limit > wire.MAX_LIMIT:
        raise ProtocolError(
            Code.INVALID_REQUEST,
            f"invalid request: after is 0 or more, limit is from 0 to {wire.MAX_LIMIT}",
        )
    return limit or wire.DEFAULT_LIMIT


def check_step(step: int) -> None:
    """Accept a number that a step can have.

    Raises:
        ProtocolError: it is below 1.
    """
    if step < 1:
        raise ProtocolError(Code.INVALID_REQUEST, "invalid request: steps are counted from 1")


# ── Methods ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _steps(call: Call, asked: wire.StepsRequest) -> wire.StepsAnswer:
    _check_id(asked.id)
    limit = check_page(asked.after, asked.limit)
    row = await find_row(call, asked.id)
    run = await read_overview(call, row, await read_entries(call, row))
    views = views_of(call, row, run.history)
    return await _computed(partial(_page, run, views, asked.after, limit), len(run.steps))


def _page(run: Overview, views: RunViews, after: int, limit: int) -> wire.StepsAnswer:
    last = after + limit
    more = len(run.steps) > last
    return wire.StepsAnswer(
        run=views.header(run),
        steps=[views.step(one) for one in run.steps[after:last]],
        controls=[
            views.control(one)
            for one in run.controls
            if after < one.before_step <= last or (not more and not 0 < one.before_step <= last)
        ],
        more=more,
    )


async def _computed(work: Callable[[], T], size: int) -> T:
    """Return what `work` gives; for a record of that size perhaps from a thread, so that no other request waits."""
    return work() if size < _THREAD_FROM else await asyncio.to_thread(work)


def _check_id(run_id: str) -> None:
    if not run_id.strip():
        raise ProtocolError(Code.INVALID_REQUEST, "invalid request: the id of a run is missing")


async def _step(call: Call, asked: wire.StepRequest) -> wire.StepAnswer:
    _check_id(asked.id)
    check_step(asked.step)
    row = await find_row(call, asked.id)
    entries = await read_entries(call, row)
    run = await read_overview(call, row, entries)
    if asked.step > len(run.steps):
        raise no_such_step(row.run_id, asked.step, len(run.steps))
    views, found = views_of(call, row, run.history), run.steps[asked.step - 1]
    try:
        asks = asks_of(entries, asked.step, row.run_id)
    except JournalCorruptError as error:
        raise _unreadable(row.run_id, error) from error
    step = found.step
    has_more = step is not None and step.observation is not None
    return wire.StepAnswer(
        step=views.step(found, is_whole=True),
        saw=wire.Saw(asks=[views.ask(one, is_full=asked.full) for one in asks]) if asks else UNSET,
        said=wire.Said(decision="", value={}) if step is None else views.said(step),
        observation=views.show(step.observation).either if step is not None and has_more else UNSET,
    )


def no_such_step(run_id: str, step: int, count: int) -> ProtocolError:
    """Return the refusal of a step that a run does not have; it names those there are."""
    there = f"it has steps 1 to {count}" if count > 1 else f"it has {count or 'no'} step{'' if count == 1 else 's'}"
    return ProtocolError(Code.INVALID_REQUEST, f"invalid request: run {run_id!r} has no step {step}; {there}")


async def _fork(call: Call, asked: wire.ForkRequest) -> wire.ForkAnswer:
    _check_id(asked.id)
    check_step(asked.step)
    row = await find_row(call, asked.id, is_read=False)
    entries = await read_entries(call, row)
    try:
        return await fork_run(call, asked, entries)
    except JournalCorruptError as error:
        raise _unreadable(row.run_id, error) from error


async def _replay(call: Call, asked: wire.AgentRequest) -> wire.ReplayAnswer:
    _check_id(asked.id)
    row = await find_row(call, asked.id, is_read=False)
    entries = await read_entries(call, row)
    history = await read_history(row.run_id, entries)
    try:
        result = await replay_run(call, asked.agent, record_of(entries))
    except JournalCorruptError as error:
        raise _unreadable(row.run_id, error) from error
    return replayed(row.run_id, result, views_of(call, row, history))


async def _freeze(call: Call, asked: wire.AgentRequest) -> wire.FreezeAnswer:
    _check_id(asked.id)
    row = await find_row(call, asked.id)
    entries = await read_entries(call, row)
    run = await read_overview(call, row, entries)
    try:
        return await freeze_run(call, asked, entries, run, views_of(call, row, run.history))
    except JournalCorruptError as error:
        raise _unreadable(row.run_id, error) from error


async def _compare(call: Call, asked: wire.CompareRequest) -> wire.CompareAnswer:
    _check_id(asked.id)
    _check_id(asked.other)
    if asked.id == asked.other:
        raise ProtocolError(Code.INVALID_REQUEST, "invalid request: a run is compared with another, not itself")
    limit = check_page(asked.after, asked.limit)
    rows = [await find_row(call, asked.id), await find_row(call, asked.other)]
    left, right = [await read_overview(call, row, await read_entries(call, row)) for row in rows]
    views = (views_of(call, left.row, left.history), views_of(call, right.row, right.history))
    size = len(left.steps) + len(right.steps)
    return await _computed(partial(compare_page, left, right, views, asked.after, limit), size)


ENDPOINTS: Final[Endpoints] = MappingProxyType(
    {
        "runs.steps": Endpoint(wire.StepsRequest, wire.StepsAnswer, _steps),
        "runs.step": Endpoint(wire.StepRequest, wire.StepAnswer, _step),
        "runs.fork": Endpoint(wire.ForkRequest, wire.ForkAnswer, _fork),
        "runs.replay": Endpoint(wire.AgentRequest, wire.ReplayAnswer, _replay),
        "runs.freeze": Endpoint(wire.AgentRequest, wire.FreezeAnswer, _freeze),
        "runs.compare": Endpoint(wire.CompareRequest, wire.CompareAnswer, _compare),
    }
)
