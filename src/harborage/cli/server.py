"""The server that `--url` names: its token, its runs and open questions as rows, so that they are shown as stored ones.

Imported by commands that were given a url; help and commands over a database load nothing of it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harborage.cli.find import choose_run
from harborage.cli.storage import WrongUseError
from harborage.client import Patience, connect
from harborage.errors import InvalidOptionError
from harborage.identity import Identity
from harborage.runtime.durable.engine import RunNotFoundError
from harborage.store import RunRow, Status
from harborage.store.times import micros

if TYPE_CHECKING:
    from harborage.client import RemoteRuntime
    from harborage.client.answers import PauseSnapshot, TaskRow

TOKEN_VARIABLE: Final = "HARBORAGE_TOKEN"
_OTHER_TOKEN_VARIABLE: Final = "HARBOR_TOKEN"
_TOKEN_FILE: Final = Path(".harborage") / "token"
_PAGE: Final = 200
_PATIENCE: Final = Patience(total=5)
_MOST_ROWS: Final = 10_000
_SERVER: Final = "server"
_STATUSES: Final = {
    "pending": Status.PENDING,
    "running": Status.RUNNING,
    "paused": Status.PAUSED,
    "complete": Status.COMPLETE,
    "failed": Status.FAILED,
    "cancelled": Status.CANCELLED,
}


class TokenMissingError(WrongUseError):
    """A server takes a token, and none was found."""

    def __init__(self, where: str = "") -> None:
        super().__init__(
            f"no token for {where}; set {TOKEN_VARIABLE}, or write one into ~/{_TOKEN_FILE} "
            "(harborage token mints one for development)"
            if where
            else ""
        )


def read_token(environ: Mapping[str, str], where: str) -> str:
    """Return the token of this user: `HARBORAGE_TOKEN`, else what the file in the home folder has.

    Raises:
        TokenMissingError: there is none, or it is empty.
    """
    for name in (TOKEN_VARIABLE, _OTHER_TOKEN_VARIABLE):
        if token := environ.get(name, "").strip():
            return token
    try:
        token = (Path.home() / _TOKEN_FILE).read_text("utf-8").strip()
    except (OSError, RuntimeError, UnicodeDecodeError):
        token = ""
    if not token:
        raise TokenMissingError(where)
    return token


@asynccontextmanager
async def open_server(url: str) -> AsyncIterator[Server]:
    """The server at `url`, asked with the token of this user.

    Raises:
        WrongUseError: the url is none, or there is no token, or it names no user.
    """
    try:
        remote = connect(url, token=read_token(os.environ, url), patience=_PATIENCE)
    except InvalidOptionError as error:
        raise WrongUseError(str(error)) from error
    async with remote:
        yield Server(url, remote, await remote.identity(default_session="default"))


class Server:
    """A server as a command sees it: `who` is whom the token names."""

    def __init__(self, url: str, remote: RemoteRuntime, who: Identity) -> None:
        self.url = url
        self.remote = remote
        self.who = who

    async def runs(self, *, user: str = "", session: str = "", most: int = _MOST_ROWS, **narrowed: Any) -> list[RunRow]:
        """Return the newest runs of all sessions of the user, or of one session, the oldest first."""
        owner = {"tenant": self.who.tenant_id, "user": user or self.who.user_id}
        who = Identity(self.who.tenant_id, self.who.user_id, session) if session else self.who
        wanted = {"identities": [{**owner, "session": session} if session else owner], **narrowed}
        rows: list[TaskRow] = []
        after = ""
        while len(rows) < most:
            page, after = await self.remote.rows(who, wanted, limit=min(_PAGE, most - len(rows)), after=after)
            rows += page
            if not after:
                break
        return [row_of(row, self.who, number) for number, row in enumerate(reversed(rows), 1)]

    async def find(self, wanted: str, *, is_unfinished: bool = False) -> RunRow:
        """Return the run that a person named, as `harborage.cli.find` does it.

        Raises:
            RunNotFoundError, AmbiguousRunError: it names none, or several.
        """
        if not wanted:
            raise RunNotFoundError(message="an empty id names no run; 'harborage runs list' shows those there are")
        rows = await self.runs()
        exact = [row for row in rows if row.run_id == wanted]
        found = exact[0] if exact else choose_run(rows, wanted, where=self.url, is_unfinished=is_unfinished)
        if found is None:
            text = f"no run {wanted!r} at {self.url}; 'harborage runs list' shows those there are"
            raise RunNotFoundError(wanted, message=text)
        return found

    async def pauses(self, status: str = "paused", **narrowed: Sequence[str]) -> list[PauseSnapshot]:
        """Return the open pauses of all sessions that the token may see, newest first."""
        found: list[PauseSnapshot] = []
        after = ""
        while True:
            page, after = await self.remote.pauses(self.who, {"status": [status], **narrowed}, limit=_PAGE, after=after)
            found += page
            if not after:
                return found


def row_of(row: TaskRow, asked: Identity, number: int) -> RunRow:
    """Return a run of a server as a row of a store, for what shows rows; `number` is its place, the oldest first."""
    status = _STATUSES.get(row.status, Status.RUNNING)
    is_interrupted = row.condition == "interrupted"
    return RunRow(
        number=number,
        run_id=row.id,
        who=row.identity.identity(asked),
        agent=row.agent_name,
        parent=row.parent_task_id,
        kind=row.kind,
        priority=row.priority,
        status=status,
        reason=row.error_class or ("goal" if status is Status.COMPLETE else ""),
        blocked="needs other code, or a repair" if row.condition == "blocked" else "",
        description=row.description,
        about=row.query,
        created_at=_micros(row.started_at),
        updated_at=_micros(row.updated_at),
        owner=_SERVER if status is Status.RUNNING and not is_interrupted else "",
        is_woken=is_interrupted or status is Status.PENDING,
        tool_count=row.tool_count,
        cost=round((row.cost_usd or 0) * 1_000_000),
    )


def _micros(moment: datetime) -> int:
    return micros(max(moment, datetime(1970, 1, 1, tzinfo=UTC)))
