"""Lists of tasks, newest first, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from harborage.server.a2a.errors import UNSUPPORTED, RpcError, bad_params
from harborage.server.a2a.messages import MOST_TASKS
from harborage.server.a2a.values import State
from harborage.server.families.paging import decode_token, encode_token, foreign_cursor
from harborage.store import LIVE, RunQuery
from harborage.store import Status as RunStatus

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.runtime.effects.agent_parts import AgentParts
    from harborage.server.a2a.dialects import Dialect
    from harborage.server.a2a.messages import ListParams
    from harborage.server.a2a.tasks import Tasks
    from harborage.server.a2a.values import Task
    from harborage.server.services import Services

_PAGE: Final = 50
_WORD: Final = "a2a"
_MOST_DIGITS: Final = 19
_STATUSES: Final = {
    State.SUBMITTED: (RunStatus.PENDING,),
    State.WORKING: LIVE,
    State.INPUT_REQUIRED: LIVE,
    State.COMPLETED: (RunStatus.COMPLETE,),
    State.FAILED: (RunStatus.FAILED, RunStatus.COMPLETE),
    State.CANCELED: (RunStatus.CANCELLED, RunStatus.FAILED, RunStatus.COMPLETE),
}


async def list_tasks(
    services: Services, tasks: Tasks, agent: AgentParts, asked: ListParams, who: Identity, dialect: Dialect
) -> dict[str, Any]:
    """Return a page of the caller's tasks of an agent; one of a state may be short, and still have a next one.

    Raises:
        RpcError: a parameter cannot be used.
    """
    size, wanted = _size(asked.page_size), _state(asked.status, dialect)
    if asked.status_timestamp_after is not None:
        raise RpcError(UNSUPPORTED, "statusTimestampAfter is not supported; leave it out")
    query = RunQuery(
        tenant=who.tenant_id,
        user=who.user_id,
        session=asked.context_id,
        agent=agent.name,
        statuses=() if wanted is None else _STATUSES[wanted],
    )
    page = await services.parts.store.runs(replace(query, after=_place(asked.page_token), limit=size))
    found: list[Task] = []
    for row in page.rows:
        run = services.runtime.get(row.run_id, who=row.who)
        task = await tasks.shown(run, row, has_artifacts=asked.include_artifacts)
        if wanted is None or task.status.state is wanted:
            found.append(task)
    return {
        "tasks": [dialect.task(one) for one in found],
        "nextPageToken": "" if page.cursor is None else encode_token(f"{_WORD}:{page.cursor[0]}:{page.cursor[1]}"),
        "pageSize": size,
        "totalSize": (await services.parts.store.count_runs(query)).total,
    }


def _size(asked: int) -> int:
    if not 0 <= asked <= MOST_TASKS:
        raise bad_params(f"pageSize: from 1 to {MOST_TASKS}, or 0 for {_PAGE}")
    return asked or _PAGE


def _state(named: str, dialect: Dialect) -> State | None:
    if not named or named == dialect.any_state:
        return None
    for state in State:
        if dialect.state(state) == named:
            return state
    raise bad_params(f"status: there are {', '.join(map(dialect.state, State))}")


def _place(token: str) -> tuple[int, int] | None:
    """Return the place of a cursor.

    Raises:
        ProtocolError: no page of a list gave it out.
    """
    if not token:
        return None
    word, _, rest = decode_token(token).partition(":")
    numbers = rest.split(":")
    is_place = len(numbers) == 2 and all(one.isascii() and one.isdigit() and len(one) < _MOST_DIGITS for one in numbers)
    if word != _WORD or not is_place:
        raise foreign_cursor()
    return int(numbers[0]), int(numbers[1])
