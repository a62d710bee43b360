"""Listings for callers: who may look where, and the audit event when a caller looks across tenants.

Reads from any registry that offers `TaskReader`; what the rows say is in `listing`.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from harborage.events import AdminTasksListedPayload, Event, EventBus, EventType, Triple
from harborage.identity import (
    AdminScopeRequiredError,
    Identity,
    Quadruple,
    effective_quadruple,
    held_scopes,
    require_triple,
)
from harborage.tasks.errors import InvalidRequestError, TaskNotFoundError
from harborage.tasks.listing import (
    TaskDetail,
    TaskListFilter,
    TaskListRequest,
    TaskPage,
    check_filter,
    list_page,
    row_of,
    tenants_of,
)

if TYPE_CHECKING:
    from harborage.tasks.model import Task, TaskID
    from harborage.tasks.port import Who

ADMIN_SCOPE: Final = "admin"


class TaskReader(Protocol):
    """What a listing reads from."""

    async def read(self, session: Identity) -> builtins.list[Task]:
        """The session's tasks, whole."""
        ...

    async def sessions(self) -> builtins.list[Identity]:
        """Every session that has tasks."""
        ...

    async def get(self, task_id: TaskID, *, who: Who | None = None) -> Task:
        """One task of the session of `who`."""
        ...


class TaskListing:
    """Lists and shows tasks to callers, each their own session's; across tenants with the admin scope, and audited."""

    def __init__(self, reader: TaskReader, *, bus: EventBus | None = None) -> None:
        self._reader = reader
        self._bus = bus

    async def list(
        self,
        request: TaskListRequest = TaskListRequest(),  # noqa: B008 - a frozen value
        *,
        who: Who | None = None,
        scopes: frozenset[str] | None = None,
    ) -> TaskPage:
        """A page of the caller's session; of every session the filter names when it names other tenants.

        Without `scopes` the ambient ones count.

        Raises:
            IdentityRequiredError, InvalidRequestError: as for `list_page`.
            AdminScopeRequiredError: the filter names another tenant and the caller is no admin.
        """
        caller = _caller(who, "tasks.list")
        check_filter(request.filter)
        tenants = tenants_of(caller, request.filter)
        if len(tenants) == 1:
            return list_page(await self._reader.read(caller), request)
        if ADMIN_SCOPE not in held_scopes(scopes):
            raise AdminScopeRequiredError(f"tasks.list: a list of {len(tenants)} tenants", (ADMIN_SCOPE,))
        page = list_page(await self._read_across(caller, request.filter), request)
        if self._bus is not None:
            body = AdminTasksListedPayload(Triple.of(caller), "tasks.list", len(tenants))
            await self._bus.publish(Event(EventType.AUDIT_ADMIN_SCOPE_USED, caller.with_run(""), body))
        return page

    async def get(self, task_id: TaskID, *, who: Who | None = None) -> TaskDetail:
        """One task of the caller's session.

        Raises:
            IdentityRequiredError, InvalidRequestError: no identity; no id.
            TaskNotFoundError: unknown, or another session's.
        """
        caller = _caller(who, "tasks.get")
        if not task_id.strip():
            raise InvalidRequestError("id", "must not be blank")
        task = await self._reader.get(task_id, who=caller)
        parent = await self._parent(task, caller)
        return TaskDetail(row=row_of(task), parent=None if parent is None else row_of(parent), result=task.result)

    async def _parent(self, task: Task, caller: Identity) -> Task | None:
        if not task.parent_task_id:
            return None
        try:
            return await self._reader.get(task.parent_task_id, who=caller)
        except TaskNotFoundError:
            return None

    async def _read_across(self, caller: Identity, filter: TaskListFilter) -> Sequence[Task]:
        # An entry that names no tenant stays within the caller's.
        wanted = [
            match if match.tenant_id else msgspec.structs.replace(match, tenant_id=caller.tenant_id)
            for match in filter.identities
        ]
        sessions = [one for one in await self._reader.sessions() if any(match.matches(one) for match in wanted)]
        return [task for session in sessions for task in await self._reader.read(session)]


def _caller(who: Who | None, what: str) -> Identity:
    asking = effective_quadruple() if who is None else who
    require_triple(asking, what)
    assert asking is not None
    return asking.identity if isinstance(asking, Quadruple) else asking
