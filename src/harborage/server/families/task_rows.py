"""Runs as rows of `tasks.*` and of search: the statuses that a board has, failures by class, and their texts whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from harborage.planner import TASK_ERROR_RUN_LOOP, PauseReason
from harborage.protocol.wire.common import WireIdentity
from harborage.protocol.wire.tasks import TaskRow
from harborage.server.served import agent_id
from harborage.store import PauseQuery, PauseStatus, RunQuery, Status
from harborage.store.commit import ABOUT
from harborage.store.rows import CRASH
from harborage.store.tags import tags_of
from harborage.store.times import moment
from harborage.tasks import TaskKind
from harborage.tasks.rows import task_of

if TYPE_CHECKING:
    from harborage.store import PauseRow, RunRow, Store

MICRO: Final = 1_000_000
"""Millionths of a US dollar in one."""

_MS: Final = 1_000
_MOST_ASKED: Final = 10_000


async def show_tasks(store: Store, rows: Sequence[RunRow]) -> list[TaskRow]:
    """Return the rows as they travel, with the texts whole that a list of the store cuts."""
    asked, texts = await open_pauses(store, rows), await _texts(store, rows)
    return [show_task(row, asked.get(row.run_id, ()), texts.get(row.run_id)) for row in rows]


async def open_pauses(store: Store, rows: Iterable[RunRow]) -> dict[str, list[PauseRow]]:
    """Return the open pauses of those runs that go on."""
    live = tuple(row.run_id for row in rows if not row.status.is_final)
    found: dict[str, list[PauseRow]] = {}
    if live:
        query = PauseQuery(run_ids=live, statuses=(PauseStatus.OPEN,), limit=_MOST_ASKED)
        for pause in (await store.pauses(query)).rows:
            found.setdefault(pause.run_id, []).append(pause)
    return found


async def _texts(store: Store, rows: Iterable[RunRow]) -> Mapping[str, tuple[str, str]]:
    """Return description and query of the runs in whose rows one of them is cut."""
    cut = tuple(row.run_id for row in rows if max(len(row.about), len(row.description)) >= ABOUT)
    if not cut:
        return {}
    whole = (await store.runs(RunQuery(run_ids=cut, is_whole=True, limit=len(cut)))).rows
    tasks = [task_of(row) for row in whole if not row.is_damaged]
    return {task.id: (task.description, task.query) for task in tasks}


def show_task(row: RunRow, asked: Sequence[PauseRow], texts: tuple[str, str] | None = None) -> TaskRow:
    """Return a run as it travels; `asked` are its open pauses, `texts` its description and query where it cuts them."""
    description, query = (row.description, row.about) if texts is None else texts
    kind = row.kind or TaskKind.FOREGROUND
    updated_at = moment(row.updated_at)
    return TaskRow(
        id=row.run_id,
        kind=str(kind),
        status=shown_status(row, asked).value,
        priority=row.priority,
        identity=WireIdentity.of(row.quadruple),
        parent_session_id=row.who.session_id,
        parent_task_id=row.parent,
        description=description,
        query=query,
        started_at=moment(row.created_at),
        updated_at=updated_at,
        duration_ms=max(0, row.updated_at - row.created_at) // _MS,
        error_class=error_class(row),
        tool_count=row.tool_count,
        background_acknowledged=row.is_acknowledged,
        group_id=row.group,
        tags=[f"{name}={value}" for name, value in tags_of(row.tags).items()],
        last_activity_at=updated_at,
        is_background=kind == TaskKind.BACKGROUND,
        has_pending_approval=any(pause.reason == PauseReason.APPROVAL_REQUIRED for pause in asked),
        condition=_condition(row),
        agent_name=agent_id(row.agent),
        cost_usd=row.cost / MICRO,
    )


def shown_status(row: RunRow, asked: Sequence[PauseRow]) -> Status:
    """Return the status that a board shows: only what waits for a person, or for other code, is paused."""
    if row.status.is_final:
        return row.status
    if asked or _is_blocked(row):
        return Status.PAUSED
    return Status.PENDING if row.status is Status.PENDING else Status.RUNNING


def _condition(row: RunRow) -> str:
    """Why nothing moves a run although it goes on; a run that no worker has begun is only pending."""
    if row.status.is_final:
        return ""
    if _is_blocked(row):
        return "blocked"
    is_left = row.is_woken and not row.owner and row.status is not Status.PENDING
    return "interrupted" if is_left else ""


def _is_blocked(row: RunRow) -> bool:
    return bool(row.blocked) and not row.owner


def error_class(row: RunRow) -> str:
    """Return the code of a failure, never its text; "" of a run that has not failed."""
    if row.status is not Status.FAILED:
        return ""
    return TASK_ERROR_RUN_LOOP if CRASH in row.reason else row.reason
