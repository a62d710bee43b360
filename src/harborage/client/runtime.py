"""`connect`: a runtime on a server, with the face of `harborage.Runtime`: run, start, session, get, runs, pending."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, TypeVar, Unpack, overload
from weakref import WeakValueDictionary

import msgspec

from harborage.artifacts.media import split_goal
from harborage.client.answers import PausePage, PauseSnapshot, Started, TaskPage, TaskRow, owner_of_token
from harborage.client.connection import Connection, Patience, Token
from harborage.client.events import EventStream, StreamOptions
from harborage.client.run import RemoteRun
from harborage.errors import InvalidOptionError, UnknownOptionError, at_least, known_options, one_of
from harborage.identity import Identity, IdentityRequiredError, require_triple
from harborage.ids import new_id
from harborage.runtime.chat import Busy, Chat, SessionBusyError
from harborage.runtime.durable.engine import RunFailedError, RunStatus
from harborage.runtime.effects.options import check_key, checked_tags
from harborage.runtime.listing import Page, RunFilter
from harborage.runtime.loop.controls import Scope
from harborage.runtime.loop.limits import Limits
from harborage.runtime.messages import Message, checked_messages
from harborage.runtime.pending import Pending
from harborage.runtime.starting import MESSAGE, RunOptions
from harborage.tasks.rules import check_priority

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from typing_extensions import TypeForm

    from harborage.artifacts.media import Goal
    from harborage.events import Event
    from harborage.runtime.pending import TakesAnswers

T = TypeVar("T")

MOST: Final = 200
"""How many runs or questions a page of a server has at most."""

_STATUSES: Final[Mapping[RunFilter, str]] = {
    RunFilter.PENDING: "pending",
    RunFilter.RUNNING: "running",
    RunFilter.WAITING: "paused",
    RunFilter.BLOCKED: "paused",
    RunFilter.COMPLETE: "complete",
    RunFilter.FAILED: "failed",
    RunFilter.CANCELLED: "failed",
}
_LIVE: Final = ("pending", "running", "paused")


class RemoteOptions(TypedDict, total=False):
    """The options of `RemoteRuntime.start`: those of a local start that travel."""

    who: Identity
    priority: int
    input_artifacts: Iterable[str]
    scope: Scope
    key: str
    description: str
    limits: Limits | None
    tags: Mapping[str, str]
    messages: Sequence[Message]


def connect(
    url: str | Sequence[str],
    *,
    token: Token = "",
    headers: Mapping[str, str] = {},
    patience: Patience = Patience(),  # noqa: B008 - a frozen value
) -> RemoteRuntime:
    """Return the runtime of a server: `async with connect("https://…", token=…) as remote: await remote.start(…)`.

    Nothing is sent before the first request. `token` is a text, or a function that gives one that has not expired. Of
    several urls, which must be servers over the same database, the next is asked when one does not answer. `headers`
    are sent with every request, for a proxy in front of the server.

    Raises:
        InvalidOptionError: a url is no http or https url.
    """
    return RemoteRuntime(Connection(url, token=token, headers=headers, patience=patience))


class RemoteRuntime:
    """The runs of a server; see `connect`. It holds no state but its connections."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._turns: WeakValueDictionary[Identity, _Turns] = WeakValueDictionary()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; runs go on. Closing twice does nothing."""
        await self.connection.aclose()

    async def identity(self, *, default_session: str = "") -> Identity:
        """Return whom the token names, in the session that it names, else in the default one.

        Raises:
            IdentityRequiredError: the token names no tenant, user or session.
        """
        named = owner_of_token(_claims(await self.connection.token()))
        found = Identity(named.tenant_id, named.user_id, named.session_id or default_session)
        if not (found.tenant_id and found.user_id and found.session_id):
            raise IdentityRequiredError("the token names no tenant, user and session; say who=Identity(…)")
        return found

    @overload
    async def start(self, goal: Goal, /, **options: Unpack[RemoteOptions]) -> RemoteRun[Any]: ...

    @overload
    async def start(self, agent: str, goal: Goal, /, **options: Unpack[RemoteOptions]) -> RemoteRun[Any]: ...

    @overload
    async def start(
        self, agent: str, goal: Goal, /, *, output: TypeForm[T], **options: Unpack[RemoteOptions]
    ) -> RemoteRun[T]: ...

    async def start(
        self, agent: Any, goal: Goal | None = None, /, *, output: Any = str, **options: Unpack[RemoteOptions]
    ) -> RemoteRun[Any]:
        """Start a run of the agent with this name towards `goal`; return its handle at once.

        Without a name it is the server's first agent. `output` is the type as which the result is read. `who` is by
        default whom the token names. A start with the `key` of an earlier one in the session returns that run; without
        one the client makes its own, so that a start that is sent again after a lost answer starts one run. `limits`
        count where those of the server's agent are not lower.

        Raises:
            UnknownOptionError: the option does not travel, or there is none of that name.
            InvalidOptionError: a value is invalid; nothing was sent.
            RemoteError: the server refused: there is no such agent (`not_found`), the session was closed, or the key
                was used for another request (`invalid_request`).
            RemoteUnreachableError: no server answered.
        """
        _check_options(options)
        name, wanted = ("", agent) if goal is None else (agent, goal)
        if not isinstance(name, str):
            raise InvalidOptionError("agent", getattr(name, "name", name), "the name of an agent of the server")
        decode = _reader(output)
        who = options.get("who") or await self.identity()
        require_triple(who, "start")
        scope = one_of(Scope, options.get("scope", Scope.OWNER_USER), "scope")
        body = await self._start_body(name, wanted, who, options)
        found = await self._ask("start", body, Started, who)
        return RemoteRun(who.with_run(found.task_id), self.connection, scope=scope, decode=decode)

    async def _start_body(self, agent: str, goal: Any, who: Identity, options: RemoteOptions) -> dict[str, Any]:
        text, media = split_goal(goal)
        if not isinstance(text, str) or not text.strip():
            raise InvalidOptionError("goal", text, "a text that says what to do")
        priority = options.get("priority", 0)
        check_priority(priority, "priority")
        check_key(key := options.get("key", ""))
        inputs = [*options.get("input_artifacts", ())]
        for one in media:
            from harborage.client.artifacts import upload  # loaded by the first run that is given a file

            inputs.append(await upload(self.connection, who, one))
        body: dict[str, Any] = {"query": text, "idempotency_key": key or new_id()}
        if agent:
            body["agent"] = agent
        if priority:
            body["priority"] = priority
        if inputs:
            body["input_artifact_ids"] = inputs
        if description := options.get("description", ""):
            body["description"] = description
        if (limits := Limits().replaced(options.get("limits"))) != Limits():
            body["limits"] = _wire_limits(limits)
        if tags := checked_tags(options.get("tags", {}), "tags"):
            body["tags"] = dict(tags)
        if messages := checked_messages(options.get("messages", ())):
            body["messages"] = msgspec.to_builtins(messages)
        return body

    def session(
        self, agent: str, *, who: Identity, busy: Busy | str = "wait", output: TypeForm[T] | Any = str
    ) -> Chat[Any]:
        """Return the conversation with the agent of this name in the session of `who`. It goes on where it was left.

        A message that comes while the one before is being answered waits in turn; with `busy="refuse"` it is refused.

        Raises:
            IdentityRequiredError: `who` is incomplete.
            InvalidOptionError: `busy` is neither.
        """
        require_triple(who, "session")

        async def start(text: Goal, busy: Busy) -> Any:
            turns = self._turns.setdefault(who, _Turns(self, who))
            return await turns.take(agent, text, output, busy)

        return Chat(who.session_id, start, busy=busy)

    async def run(self, run_id: str, *, who: Identity, scope: Scope = Scope.OWNER_USER, output: Any = str) -> RemoteRun:
        """Return a handle on a run of `who`.

        Raises:
            RunNotFoundError: no such run, or another owner's.
        """
        found = self.get(run_id, who=who, scope=scope, output=output)
        await found.status()
        return found

    def get(self, run_id: str, *, who: Identity, scope: Scope = Scope.OWNER_USER, output: Any = str) -> RemoteRun[Any]:
        """Return a handle on a run of `who` at once: `await remote.get(run_id, who=who).approve()`.

        Its first use looks the run up, and raises RunNotFoundError for one that is not there, or another owner's.

        Raises:
            IdentityRequiredError: `who` is incomplete.
        """
        require_triple(who, "get")
        if not run_id:
            raise InvalidOptionError("run_id", run_id, "the id of a run")
        scope = one_of(Scope, scope, "scope")
        return RemoteRun(who.with_run(run_id), self.connection, scope=scope, decode=_reader(output))

    async def runs(
        self,
        *,
        who: Identity,
        status: RunFilter | str = "",
        tags: Mapping[str, str] = {},
        limit: int = 50,
        after: str = "",
    ) -> Page[RunStatus]:
        """Return a page of the runs of `who`, newest first: all of them, or those in a status or with all these tags.

        `after` is the `next` of the page before.

        Raises:
            InvalidOptionError: there is no such status, or another value is invalid.
        """
        require_triple(who, "runs")
        wanted = one_of(RunFilter, status, "runs: status") if status else None
        narrowed: dict[str, Any] = {} if wanted is None else {"statuses": _wire_statuses(wanted)}
        if checked_tags(tags, "runs: tags"):
            narrowed["tags"] = dict(tags)
        rows, place = await self.rows(who, narrowed, limit=limit, after=after)
        found = [row for row in rows if wanted is None or _is_in(row, wanted)]
        return Page([row.status_for(who) for row in found], place)

    async def rows(
        self, who: Identity, narrowed: Mapping[str, Any], *, limit: int = 50, after: str = ""
    ) -> tuple[list[TaskRow], str]:
        """Return a page of runs as the server lists them, newest first, and where the next page begins.

        `narrowed` is the filter of `tasks.list`.

        Raises:
            InvalidOptionError: a value is invalid.
        """
        body: dict[str, Any] = {"page_size": _size(limit, "runs")}
        if narrowed:
            body["filter"] = narrowed
        if after:
            body["cursor"] = {"next_page_token": after}
        page: TaskPage = await self._ask("tasks.list", body, TaskPage, who)
        return page.rows, page.cursor.next_page_token

    async def pending(self, *, who: Identity, limit: int = 50, after: str = "") -> Page[Pending]:
        """Return a page of what the runs of `who` wait for a person to answer, newest first; each has the methods that
        answer it.

        Raises:
            InvalidOptionError: a value is invalid.
        """
        require_triple(who, "pending")
        snapshots, place = await self.pauses(who, {"session_ids": [who.session_id]}, limit=limit, after=after)
        pauses = [one.pause_for(who) for one in snapshots]
        return Page([Pending(self._run_of(one.identity), one) for one in pauses], place)

    async def pauses(
        self, who: Identity, narrowed: Mapping[str, Any], *, limit: int = 50, after: str = ""
    ) -> tuple[list[PauseSnapshot], str]:
        """Return a page of pauses as the server lists them, newest first, and where the next page begins.

        `narrowed` is the filter of `pause.list`.

        Raises:
            InvalidOptionError: a value is invalid.
        """
        if after and not (after.isascii() and after.isdigit() and len(after) < 10):
            raise InvalidOptionError("pending: after", after, "the `next` of the page before")
        number = int(after or 1)
        body = {"filter": dict(narrowed), "page": number, "page_size": _size(limit, "pending")}
        page: PausePage = await self._ask("pause.list", body, PausePage, who)
        return page.snapshots, str(number + 1) if number < page.page_count else ""

    def events(
        self,
        *,
        who: Identity,
        run_id: str = "",
        children: bool = True,
        types: Sequence[str] = (),
        after: int | None = None,
        admin: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of the session of `who` as they come, until the caller stops.

        `run_id` narrows them to one run, `types` to some kinds. `after` is the last number that was read: 0 for all
        that the server keeps. `admin` are those of all identities.

        Raises:
            RemoteUnreachableError: the server did not come back in time.
            IdentityScopeRequiredError: the token lacks the scope for `admin`.
        """
        options = StreamOptions(run=run_id, children=children, types=tuple(types), after=after, admin=admin)
        return EventStream(self.connection, who, options).read()

    def _run_of(self, who: Any) -> TakesAnswers:
        return RemoteRun(who, self.connection)

    async def _ask(self, method: str, body: Mapping[str, Any], answer: type[T], who: Identity) -> T:
        named = {"tenant": who.tenant_id, "user": who.user_id, "session": who.session_id}
        return await self.connection.ask(method, {"identity": named, **body}, answer, who=who)


class _Turns:
    """Whose turn it is in one session: a message is answered after those before it, of other clients, too."""

    def __init__(self, remote: RemoteRuntime, who: Identity) -> None:
        self._remote = remote
        self._who = who
        self._lock = asyncio.Lock()

    async def take(self, agent: str, text: Goal, output: Any, busy: Busy) -> RemoteRun[Any]:
        """Start the run of a message when the runs of the messages before it have ended.

        Raises:
            SessionBusyError: one goes on, and `busy` says that the message is refused then.
        """
        if self._lock.locked() and busy is Busy.REFUSE:
            raise SessionBusyError(await self._live() or "another message")
        async with self._lock:
            while (run_id := await self._live()) is not None:
                if busy is Busy.REFUSE:
                    raise SessionBusyError(run_id)
                await self._ended(run_id)
            return await self._remote.start(agent, text, who=self._who, description=MESSAGE, output=output)

    async def _live(self) -> str | None:
        """The oldest run that a message started in this session and that goes on; None when there is none."""
        narrowed = {"statuses": list(_LIVE), "kinds": ["foreground"]}
        rows, _ = await self._remote.rows(self._who, narrowed, limit=MOST)
        return next((row.id for row in reversed(rows) if row.description == MESSAGE), None)

    async def _ended(self, run_id: str) -> None:
        try:
            await self._remote.get(run_id, who=self._who).finished()
        except RunFailedError:
            return


def _check_options(given: Mapping[str, Any]) -> None:
    """Accept the options of a start that travel.

    Raises:
        UnknownOptionError: one does not, or there is no such option.
    """
    for option in given:
        if option in RunOptions.__annotations__ and option not in RemoteOptions.__annotations__:
            raise UnknownOptionError(option, ..., "the protocol has no such option; the agents of the server have it")
    known_options(given, RemoteOptions.__annotations__, {})


def _wire_limits(limits: Limits) -> dict[str, float]:
    given = {("usd" if name == "cost" else name): getattr(limits, name) for name in limits.__struct_fields__}
    return {name: value for name, value in given.items() if value is not None}


def _wire_statuses(wanted: RunFilter) -> list[str]:
    also = ["cancelled"] if wanted is RunFilter.CANCELLED else []
    return [_STATUSES[wanted], *also]


def _is_in(row: TaskRow, wanted: RunFilter) -> bool:
    """Whether a run is in a status, which on the wire may be another one with a condition."""
    return row.word == ("running" if row.word == "interrupted" and wanted is RunFilter.RUNNING else wanted)


def _size(limit: int, method: str) -> int:
    at_least(1, limit, f"{method}: limit", is_whole=True)
    if limit > MOST:
        raise InvalidOptionError(f"{method}: limit", limit, f"a number up to {MOST}; read on with after=page.next")
    return limit


def _reader(output: Any) -> Callable[[Any], Any] | None:
    """What makes a value of the type `output` of what a run gave; None for what it is.

    Raises:
        UnsupportedTypeError: it is no type, or one without a JSON form.
    """
    if output is str:
        return None
    from harborage.runtime.outputs import output_type  # loaded for other outputs than text

    return output_type(output)


def _claims(token: str) -> dict[str, Any]:
    """What a token says of its owner, not verified: the server does that."""
    parts = token.split(".")
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (IndexError, ValueError, msgspec.DecodeError):
        return {}
    return found if isinstance(found, dict) else {}
