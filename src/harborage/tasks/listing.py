"""What a caller sees of tasks: filtered rows in pages, counts by status, one task in detail; and who may look where.

`TaskListing` reads from any registry that offers `TaskReader`, and publishes an audit event when a caller looks across
tenants. The rest is pure: tasks in, page out.
"""

from __future__ import annotations

import base64
import binascii
import builtins
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from harborage.events import AdminTasksListedPayload, Event, EventBus, EventType, Triple, unix_ns
from harborage.identity import (
    AdminScopeRequiredError,
    Identity,
    Quadruple,
    effective_quadruple,
    held_scopes,
    require_triple,
)
from harborage.tasks.errors import InvalidRequestError, TaskNotFoundError
from harborage.tasks.model import Task, TaskGroupID, TaskID, TaskKind, TaskStatus

if TYPE_CHECKING:
    from harborage.tasks.port import Who

DEFAULT_PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 200
_CURSOR_WORD: Final = "tasks"
_MAX_DIGITS: Final = 18
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class IdentityMatch(msgspec.Struct, frozen=True):
    """Matches identities on the parts that are not blank."""

    tenant_id: str = ""
    user_id: str = ""
    session_id: str = ""

    def matches(self, who: Identity | Quadruple) -> bool:
        """Whether every part that is given is the same."""
        return (
            (not self.tenant_id or self.tenant_id == who.tenant_id)
            and (not self.user_id or self.user_id == who.user_id)
            and (not self.session_id or self.session_id == who.session_id)
        )


class TaskListFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks to show; an empty field lets everything through.

    `since` and `until` bound the start, both included. `latency_above_ms` is a duration to exceed. `search` is looked
    for in description and query, whatever the case. `error_classes` are codes of failed tasks.
    """

    statuses: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    parent_task_id: TaskID = ""
    identities: tuple[IdentityMatch, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    error_classes: tuple[str, ...] = ()
    latency_above_ms: int = 0
    search: str = ""
    group_id: TaskGroupID = ""


class TaskListRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a listing; a `page_size` of 0 means 50. `page_token` is the last page's `next_page_token`."""

    filter: TaskListFilter = TaskListFilter()
    page_size: int = 0
    page_token: str = ""
    include_status_strip: bool = False


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """One task in a listing. `duration_ms` is from start to the last change; `error_class` only for a failed task."""

    id: TaskID
    kind: TaskKind
    status: TaskStatus
    priority: int
    identity: Quadruple
    parent_task_id: TaskID | None
    description: str
    query: str
    started_at: datetime
    updated_at: datetime
    duration_ms: int
    tool_count: int
    error_class: str
    group_id: TaskGroupID
    background_acknowledged: bool


class StatusStrip(msgspec.Struct, frozen=True):
    """How many tasks there are in all, whatever the filter says."""

    pending: int = 0
    running: int = 0
    completed: int = 0
    paused: int = 0
    failed: int = 0


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of rows, newest start first; `aggregates` counts every status over all rows that pass the filter."""

    rows: tuple[TaskRow, ...]
    next_page_token: str
    aggregates: Mapping[TaskStatus, int]
    status_strip: StatusStrip | None = None


class TaskCost(msgspec.Struct, frozen=True, kw_only=True):
    """What a task has cost, as far as it is known; `per_step` is empty when it is not, never missing."""

    total_tokens: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0
    per_step: tuple[float, ...] = ()


class TaskDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One task, its parent if that can be found, and its result as JSON text."""

    row: TaskRow
    parent: TaskRow | None = None
    result: bytes | None = None
    cost: TaskCost = TaskCost()


def row_of(task: Task) -> TaskRow:
    """The row that shows this task."""
    return TaskRow(
        id=task.id,
        kind=task.kind,
        status=task.status,
        priority=task.priority,
        identity=task.identity,
        parent_task_id=task.parent_task_id,
        description=task.description,
        query=task.query,
        started_at=_moment(task.created_at),
        updated_at=_moment(task.updated_at),
        duration_ms=_duration_ms(task),
        tool_count=task.tool_count,
        error_class=_error_class(task),
        group_id=task.group_id,
        background_acknowledged=task.background_acknowledged,
    )


def list_page(tasks: Sequence[Task], request: TaskListRequest) -> TaskPage:
    """The page of `tasks` that the request asks for. Whoever calls has seen to it that the caller may see them.

    Raises:
        InvalidRequestError: an unknown status or kind, a negative latency, `since` after `until`, a page size out of
            range, or a cursor that is not one of ours.
    """
    check_filter(request.filter)
    size = _page_size(request.page_size)
    offset = decode_cursor(request.page_token)
    found = [task for task in tasks if _passes(task, request.filter)]
    found.sort(key=_newest_first)
    end = offset + size
    return TaskPage(
        rows=tuple(row_of(task) for task in found[offset:end]),
        next_page_token=encode_cursor(end) if end < len(found) else "",
        aggregates=_count(found),
        status_strip=_strip(tasks) if request.include_status_strip else None,
    )


def check_filter(filter: TaskListFilter) -> None:
    """Accept a filter that makes sense.

    Raises:
        InvalidRequestError: `field` names the part that does not.
    """
    for field in ("statuses", "kinds", "error_classes"):
        if isinstance(getattr(filter, field), str):
            raise InvalidRequestError(field, "must be several texts, not one")
    _check_words("statuses", filter.statuses, TaskStatus)
    _check_words("kinds", filter.kinds, TaskKind)
    if filter.latency_above_ms < 0:
        raise InvalidRequestError("latency_above_ms", "must not be negative")
    if filter.since is not None and filter.until is not None and filter.since > filter.until:
        raise InvalidRequestError("since", "must not be after until")


def encode_cursor(offset: int) -> str:
    """The token of the page that begins at `offset`: unpadded URL-safe base64."""
    return base64.urlsafe_b64encode(f"{_CURSOR_WORD}:{offset}".encode()).rstrip(b"=").decode()


def decode_cursor(token: str) -> int:
    """The offset in a token; an empty one is the beginning.

    Raises:
        InvalidRequestError: it is malformed, or another listing's.
    """
    if not token:
        return 0
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        word, _, offset = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii").partition(":")
    except (binascii.Error, UnicodeError) as error:
        raise InvalidRequestError("page_token", "is malformed; use the last page's next_page_token") from error
    # Spelling it again refuses what base64 reads kindly: padding, stray bits, leading zeros.
    if word != _CURSOR_WORD or not offset.isdecimal() or encode_cursor(int(offset[:_MAX_DIGITS])) != token:
        raise InvalidRequestError("page_token", "belongs to another listing")
    return int(offset)


def tenants_of(caller: Identity | Quadruple, filter: TaskListFilter) -> frozenset[str]:
    """The tenants that the filter reaches, the caller's own included."""
    return frozenset({caller.tenant_id, *(match.tenant_id for match in filter.identities if match.tenant_id)})


def _check_words(field: str, words: Iterable[str], known: type[TaskStatus | TaskKind]) -> None:
    for word in words:
        if word not in frozenset(known):
            raise InvalidRequestError(field, f"{word!r} is not one of {', '.join(known)}")


def _page_size(asked: int) -> int:
    if not 0 <= asked <= MAX_PAGE_SIZE:
        raise InvalidRequestError("page_size", f"must be between 1 and {MAX_PAGE_SIZE}, or 0 for {DEFAULT_PAGE_SIZE}")
    return asked or DEFAULT_PAGE_SIZE


def _passes(task: Task, filter: TaskListFilter) -> bool:
    return (
        (not filter.statuses or task.status in filter.statuses)
        and (not filter.kinds or task.kind in filter.kinds)
        and (not filter.parent_task_id or task.parent_task_id == filter.parent_task_id)
        and (not filter.group_id or task.group_id == filter.group_id)
        and (not filter.identities or any(match.matches(task.identity) for match in filter.identities))
        and (not filter.error_classes or _error_class(task) in filter.error_classes)
        and (not filter.latency_above_ms or _duration_ms(task) > filter.latency_above_ms)
        and _is_within(task, filter)
        and _is_found(task, filter.search)
    )


def _is_within(task: Task, filter: TaskListFilter) -> bool:
    if filter.since is not None and task.created_at < unix_ns(filter.since):
        return False
    return filter.until is None or task.created_at <= unix_ns(filter.until)


def _is_found(task: Task, search: str) -> bool:
    if not search:
        return True
    wanted = search.casefold()
    return wanted in task.description.casefold() or wanted in task.query.casefold()


def _newest_first(task: Task) -> tuple[int, str]:
    return (-task.created_at, task.id)


def _duration_ms(task: Task) -> int:
    return max(0, task.updated_at - task.created_at) // 1_000_000


def _error_class(task: Task) -> str:
    return task.error.code if task.status is TaskStatus.FAILED and task.error is not None else ""


def _moment(at_ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at_ns // 1_000)


def _count(tasks: Iterable[Task]) -> dict[TaskStatus, int]:
    counts = dict.fromkeys(TaskStatus, 0)
    for task in tasks:
        counts[task.status] += 1
    return counts


def _strip(tasks: Iterable[Task]) -> StatusStrip:
    counts = _count(tasks)
    return StatusStrip(
        pending=counts[TaskStatus.PENDING],
        running=counts[TaskStatus.RUNNING],
        completed=counts[TaskStatus.COMPLETE],
        paused=counts[TaskStatus.PAUSED],
        failed=counts[TaskStatus.FAILED],
    )


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
