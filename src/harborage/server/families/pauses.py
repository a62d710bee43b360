"""`pause.list`: what waits for a person, and what was answered, from the store of record."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

from harborage.planner.decisions import PauseReason
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import TokenScope
from harborage.protocol.wire.common import ArtifactReference, WireIdentity, time_or_none
from harborage.protocol.wire.pauses import ListPauses, PauseFilterParts, PausesListed, PauseSnapshot
from harborage.runtime.durable.pauses.errors import CheckpointCorruptError, UnsupportedFormatVersionError
from harborage.runtime.durable.pauses.listing import RESOLVED, build_queries, project_payload, read_page
from harborage.runtime.durable.pauses.rows import decode_row
from harborage.runtime.loop.pauses import PauseFilter, PauseState
from harborage.server.families.paging import checked_page, page_count
from harborage.server.services import Endpoint
from harborage.store import PauseQuery, RunQuery

if TYPE_CHECKING:
    from harborage.runtime.loop.pauses import Pause
    from harborage.server.services import Call
    from harborage.store import PauseRow

E = TypeVar("E", bound=StrEnum)


async def list_pauses(call: Call, asked: ListPauses) -> PausesListed:
    """Return one page of the pauses that the caller may see."""
    tenants = tuple(dict.fromkeys(asked.filter.tenant_ids)) or (call.who.tenant_id,)
    is_foreign = tenants != (call.who.tenant_id,)
    if is_foreign:
        call.require(TokenScope.ADMIN, code=Code.IDENTITY_SCOPE_REQUIRED)
    page, page_size = checked_page(asked.page, asked.page_size)
    wanted = _filter(asked.filter, call)
    if is_foreign:
        await call.audit()
    rows, total, is_truncated = await _rows(call, wanted, tenants, page, page_size)
    return PausesListed(
        snapshots=await _snapshots(call, rows),
        page=page,
        page_size=page_size,
        page_count=page_count(total, page_size),
        total_rows=total,
        truncated=is_truncated,
    )


async def _rows(
    call: Call, wanted: PauseFilter | None, tenants: Sequence[str], page: int, page_size: int
) -> tuple[list[PauseRow], int, bool]:
    """Return the rows of a page, how many there are, and whether no resumed pause is kept that was asked for."""
    if wanted is None:
        return [], 0, False
    store = call.parts.store
    rows, total = await read_page(store, build_queries(wanted, tenants), page, page_size)
    if PauseState.RESUMED not in wanted.states:
        return rows, total, False
    users = wanted.users if not call.is_scoped else ("",)
    for tenant in tenants:
        for user in users:
            if (await store.pauses(PauseQuery(tenant=tenant, user=user, statuses=RESOLVED, limit=1))).rows:
                return rows, total, False
    return rows, total, True


def _filter(asked: PauseFilterParts, call: Call) -> PauseFilter | None:
    """Return the filter of a request; None where it names only users whose pauses the caller may not see.

    Raises:
        ProtocolError: `invalid_request`: there is no such status or reason, or the times are the wrong way round.
    """
    if asked.since is not None and asked.until is not None and asked.since > asked.until:
        raise ProtocolError(Code.INVALID_REQUEST, "pause.list: since is after until")
    states = _members(PauseState, asked.status, "status")
    reasons = _members(PauseReason, asked.reasons, "reasons")
    users = asked.user_ids
    if not call.is_scoped:
        own = call.who.user_id
        if users and own not in users:
            return None
        users = (own,)
    return PauseFilter(
        states=states,
        users=users,
        sessions=asked.session_ids,
        runs=asked.run_ids,
        reasons=reasons,
        since=asked.since,
        until=asked.until,
    )


def _members(kind: type[E], values: Sequence[str], name: str) -> tuple[E, ...]:
    if not values:
        return ()
    known = [member.value for member in kind]
    if not set(values).issubset(known):
        raise ProtocolError(Code.INVALID_REQUEST, f"pause.list: {name}: no such value; there are {', '.join(known)}")
    return tuple(dict.fromkeys(kind(value) for value in values))


async def _snapshots(call: Call, rows: Sequence[PauseRow]) -> list[PauseSnapshot]:
    if not rows:
        return []
    pauses = [pause for row in rows if (pause := _readable(call, row)) is not None]
    run_ids = tuple({pause.identity.run_id for pause in pauses if pause.identity.run_id})
    agents = await _agents(call, run_ids)
    return [await _snapshot(call, pause, agents.get(pause.identity.run_id, "")) for pause in pauses]


def _readable(call: Call, row: PauseRow) -> Pause | None:
    """Return the pause of a row; None, and a line in the log, for one that cannot be read."""
    try:
        return decode_row(row).shown()
    except (CheckpointCorruptError, UnsupportedFormatVersionError) as error:
        call.services.logger.warning("pause %s is not listed: %s", row.token, error)
        return None


async def _agents(call: Call, run_ids: tuple[str, ...]) -> dict[str, str]:
    """Return the names of the agents whose runs these are."""
    if not run_ids:
        return {}
    found = await call.parts.store.runs(RunQuery(run_ids=run_ids, limit=len(run_ids)))
    return {row.run_id: row.agent for row in found.rows}


async def _snapshot(call: Call, pause: Pause, agent: str) -> PauseSnapshot:
    parts = call.parts
    shown = await project_payload(pause, parts.artifacts, call.services.options.heavy_bytes, bus=parts.bus)
    ref = shown.payload_ref
    return PauseSnapshot(
        token=pause.token,
        reason=str(pause.reason),
        state=str(pause.state),
        identity=WireIdentity.of(pause.identity),
        paused_at=pause.paused_at,
        resumed_at=time_or_none(pause.resumed_at),
        payload=shown.payload,
        payload_ref=None if ref is None else ArtifactReference.of(ref),
        deadline=pause.deadline,
        default="" if pause.deadline is None else str(pause.default),
        approvers=(f"user:{pause.identity.user_id}", f"scope:{TokenScope.ADMIN}"),
        agent_name=agent,
        decision="" if pause.decision is None else str(pause.decision),
        by=None if pause.answered_by is None else WireIdentity.of(pause.answered_by),
        step=pause.step,
        call_id=pause.call_id,
        masked=pause.is_masked,
    )


ENDPOINTS: Final = {"pause.list": Endpoint(ListPauses, PausesListed, list_pauses)}
