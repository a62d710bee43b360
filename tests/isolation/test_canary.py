"""What one principal writes no other is shown, over every storage; with one filter gone the watch sees it."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from harborage.artifacts.memory import MemoryArtifactStore
from harborage.clock import SYSTEM_CLOCK
from harborage.errors import NotFoundError
from harborage.events import aggregation
from harborage.events.fanout import FanOut
from harborage.identity import Identity, Quadruple
from harborage.memory import SessionMemory
from harborage.runtime import host
from harborage.runtime.durable.pauses import coordinator
from harborage.sessions.registry import SessionRegistry
from harborage.state.errors import RecordNotFoundError
from harborage.state.memory import MemoryStateStore
from harborage.state.postgres import artifacts as postgres_artifacts
from harborage.state.postgres import records as postgres_records
from harborage.state.sqlite import SQLiteStateStore, records
from harborage.state.storage import Storage, open_storage
from harborage.store import RunQuery
from harborage.store.memory import MemoryStore, views
from harborage.store.postgres import reading as postgres_reading
from harborage.store.sql import lists
from harborage.store.sqlite import reading
from harborage.store.sqlite.connection import statements
from harborage.tasks import errors as tasks_errors
from harborage.tasks.listing import TaskListing
from harborage.tasks.registry import InProcessTaskRegistry
from tests.kit.isolation.canary import watch
from tests.kit.isolation.checked import EVERY
from tests.kit.isolation.operations import KINDS
from tests.kit.postgres_fixtures import opened_or_skipped
from tests.programs.chaos.databases import Databases, open_at

pytestmark = pytest.mark.anyio

ADMIN = frozenset({"admin"})


@pytest.fixture(scope="module")
def postgres() -> Iterator[Databases]:
    """Schemas of a real Postgres."""
    with opened_or_skipped(Databases("postgres")) as databases:
        yield databases


@asynccontextmanager
async def place(name: str, folder: Path) -> AsyncIterator[Storage | None]:
    """An empty storage of this name; none at all for `none`."""
    if name == "none":
        yield None
        return
    async with await open_storage("memory:" if name == "memory" else f"sqlite:{folder / 'runs.db'}") as storage:
        yield storage


@asynccontextmanager
async def of_server(postgres: Databases, name: str, folder: Path) -> AsyncIterator[Storage]:
    """An empty storage on a server."""
    async with postgres.fresh(f"canary_{name}", folder) as at, await open_at(at, SYSTEM_CLOCK) as storage:
        yield storage


async def test_no_mark_crosses(tmp_path: Path) -> None:
    """Twenty principals, every operation, with ids of their own and of others: none sees or changes another's data."""
    for name, operations in (("none", 2_000), ("memory", 2_000), ("sqlite", 800)):
        async with place(name, tmp_path) as storage:
            watched = await watch(storage, principals=20, operations=operations, seed=11)
        assert watched.leaks == [], name
        assert sum(watched.shown.values()) > operations / 8, "somebody must see something"


async def test_no_mark_crosses_on_postgres(postgres: Databases, tmp_path: Path) -> None:
    """The same over a real server, and over one whose statements have lost a part of the identity."""
    for column in ("", "tenant_id", "user_id", "session_id"):
        with pytest.MonkeyPatch.context() as patch:
            for module in (postgres_records, postgres_artifacts) if column else ():
                patch.setattr(module, "_SQL", widened(module._SQL, column))
            async with of_server(postgres, column, tmp_path) as storage:
                watched = await watch(storage, principals=20, operations=1_200, seed=2)
        assert bool(watched.leaks) == bool(column), (column, watched.leaks, watched.shown)


async def test_every_operation_shows_something_to_its_owner(tmp_path: Path) -> None:
    """Of an operation that never shows anything nothing can be learned."""
    async with place("memory", tmp_path) as storage:
        watched = await watch(storage, principals=4, operations=2_500, seed=3)
    # They show no value (numbers, flags, identities, ids), or seldom one.
    silent = {"artifacts.delete", "events.aggregate", "groups.seal", "runs.controls", "runs.events", "runs.steer",
              "sessions.get", "sessions.list", "sessions.visit", "sessions.open", "sessions.close", "sessions.touch",
              "sessions.inspect", "artifacts.exists", "memory.add_turn", "memory.restore", "memory.estimate_tokens",
              "memory.health", "memory.flush", "groups.apply", "groups.cancel", "groups.watch", "patches.create",
              "patches.apply", "tasks.acknowledge_background", "runs.replay", "state.delete", "state.save",
              "tasks.cancel", "tasks.list",
              "tasks.increment_tool_count", "tasks.mark_complete", "tasks.mark_failed", "tasks.mark_running",
              "tasks.prioritize", "tasks.spawn"}  # fmt: skip
    assert EVERY.keys() - watched.shown.keys() <= silent


IDENTITY = re.compile(r"\b(Identity|Quadruple|Who|ArtifactScope|PauseRequest|GroupRequest|StateRecord|Filter)\b")
PUBLIC: Mapping[type, set[str]] = {
    host.Runtime: set(),
    SessionMemory: set(),
    coordinator.Coordinator: {"withdraw"},
    # A run or its host calls these for itself, with the identity of the run.
    SessionRegistry: {"visiting"},
    InProcessTaskRegistry: {"begin_wait", "end_wait", "cancel_children", "settle_group", "mark_paused", "mark_resumed",
                            "register_retain_turn_waiter", "read", "on_ended", "spawn_alone"},
    MemoryStateStore: {"swap"},
    MemoryArtifactStore: {"put_bytes", "changes"},
    TaskListing: set(),
}  # fmt: skip
"""The public classes, each with the methods of which no principal has an operation."""


def takes_identity(method: Any) -> bool:
    """Whether a parameter of a method is an identity, or something that has one."""
    kinds = (str(one.annotation) for one in inspect.signature(method).parameters.values())
    return inspect.isfunction(method) and any(IDENTITY.search(kind) for kind in kinds)


async def test_every_method_that_takes_an_identity_has_an_operation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every such method of the public classes is called by an operation itself."""
    called: set[tuple[type, str]] = set()

    def noticed(owner: type, name: str, whole: Any) -> Any:
        def method(*args: Any, **more: Any) -> Any:
            if Path(sys._getframe(1).f_code.co_filename).parent == Path(inspect.getfile(watch)).parent:
                called.add((owner, name))
            return whole(*args, **more)

        return method

    wanted: set[tuple[type, str]] = set()
    for owner, others in PUBLIC.items():
        for name, whole in vars(owner).items():
            if not name.startswith("_") and name not in others and inspect.isfunction(whole) and takes_identity(whole):
                wanted.add((owner, name))
                monkeypatch.setattr(owner, name, noticed(owner, name, whole))
    async with place("memory", tmp_path) as storage:
        watched = await watch(storage, principals=4, operations=2_500, seed=3)
    assert watched.leaks == []
    assert wanted == called, sorted(f"{owner.__name__}.{name}" for owner, name in wanted - called)


# ── with one filter gone ────────────────────────────────────────────────────────────────────────────────────────────

Break = Callable[[pytest.MonkeyPatch], None]


def as_admin(owner: type, method: str) -> Break:
    """A method that takes every caller for an admin."""
    whole = getattr(owner, method)

    async def unchecked(self: Any, *args: Any, scopes: Any = None, **more: Any) -> Any:
        return await whole(self, *args, scopes=ADMIN, **more)

    return lambda patch: patch.setattr(owner, method, unchecked)


def anybody(patch: pytest.MonkeyPatch) -> None:
    """Every caller may resolve and see a pause."""
    patch.setattr(coordinator, "may_act", lambda *_: True)


def own_pauses(patch: pytest.MonkeyPatch) -> None:
    """A list of pauses is that of the whole tenant."""
    patch.setattr(coordinator, "narrow_to_caller", lambda wanted, *_: wanted)


def pauses_of_tenants(patch: pytest.MonkeyPatch) -> None:
    """A list of pauses is that of the tenants it names."""
    patch.setattr(coordinator, "select_tenants", lambda wanted, caller, _: wanted.tenants or (caller.tenant_id,))
    own_pauses(patch)


def queries(patch: pytest.MonkeyPatch) -> None:
    """A filter for the events of others needs no scope."""
    patch.setattr(aggregation, "needs_admin", lambda *_: False)


def live_events(patch: pytest.MonkeyPatch) -> None:
    """Live events go to everybody."""

    def deliver(self: Any, event: Any) -> None:
        for reader in self._all():
            reader.offer(event, 0.0)

    patch.setattr(FanOut, "deliver_to_session", deliver)


def replayed_events(patch: pytest.MonkeyPatch) -> None:
    """A bus in memory replays its whole window."""
    patch.setattr("harborage.events.memory_bus.matches", lambda *_: True)


def kept_events(patch: pytest.MonkeyPatch) -> None:
    """A store in memory knows sessions by their id alone."""

    async def events(self: Any, wanted: Any) -> Any:
        rows = [row for log in self._tables.events.values() for row in log if row.who.session_id == wanted.session]
        return views.find_events(rows, replace(wanted, tenant="", user=""))

    patch.setattr(MemoryStore, "events", events)


def kept_events_in_a_file(patch: pytest.MonkeyPatch) -> None:
    """A store in a file looks for events in every session."""
    whole = reading.Reading.events
    anybody = {"tenant": "", "user": "", "session": ""}
    patch.setattr(reading.Reading, "events", lambda self, tx, wanted: whole(self, tx, replace(wanted, **anybody)))


def kept_events_in_a_server(patch: pytest.MonkeyPatch) -> None:
    """A store in a server looks for events in every session."""
    whole = postgres_reading.Reading.events
    anybody = {"tenant": "", "user": "", "session": ""}
    patch.setattr(postgres_reading.Reading, "events", lambda self, wanted: whole(self, replace(wanted, **anybody)))


def kept_records(patch: pytest.MonkeyPatch) -> None:
    """A record store in memory knows slots by their kind alone."""

    whole = MemoryStateStore.load

    async def load(self: Any, identity: Any, kind: str) -> Any:
        if kind not in KINDS:  # on the others the runtime itself stands
            return await whole(self, identity, kind)
        if (found := next((one for (_, of), one in self._records.items() if of == kind), None)) is None:
            raise RecordNotFoundError
        return found

    patch.setattr(MemoryStateStore, "load", load)


def records_by_event(patch: pytest.MonkeyPatch) -> None:
    """A record store in memory knows event ids, whichever caller asks."""

    async def load(self: Any, event_id: str, *, who: Any = None) -> Any:
        return next((self._records[slot] for (_, of), slot in self._slots.items() if of == event_id), None)

    patch.setattr(MemoryStateStore, "load_by_event_id", load)


def artifacts(patch: pytest.MonkeyPatch) -> None:
    """An artifact is found whatever its scope is."""

    def find(self: Any, scope: Any, artifact_id: str) -> Any:
        held = [stored for session in self._sessions.values() for stored in session.values()]
        return next((stored[artifact_id] for stored in held if artifact_id in stored), None)

    patch.setattr(MemoryArtifactStore, "_find", find)


def listed_artifacts(patch: pytest.MonkeyPatch) -> None:
    """A list of artifacts is that of everybody."""
    patch.setattr("harborage.artifacts.memory.is_session", lambda _: False)
    patch.setattr("harborage.artifacts.memory.covers", lambda *_: True)


def tasks(patch: pytest.MonkeyPatch) -> None:
    """A task is found in whichever session it is."""

    async def row(self: Any, task_id: str, who: Any, what: str) -> Any:
        rows = (await self._store.runs(RunQuery(run_ids=(task_id,), is_whole=True, limit=1))).rows
        if not rows:
            raise tasks_errors.NotFoundError(task_id)
        return rows[0]

    patch.setattr(InProcessTaskRegistry, "_row", row)


def listed_tasks(patch: pytest.MonkeyPatch) -> None:
    """The tasks of a session are those of any session of that id."""
    patch.setattr(
        "harborage.tasks.registry._of_session", lambda session: RunQuery(session=session.session_id, is_whole=True)
    )


def one_run(patch: pytest.MonkeyPatch) -> None:
    """Any caller that knows the run's id gets a handle."""

    async def run(self: Any, run_id: str, *, who: Any) -> Any:
        status = await self.parts.engine.status(run_id)
        return self._handle(status.who, host.Scope.OWNER_USER)

    patch.setattr(host.Runtime, "run", run)


def listed_runs(patch: pytest.MonkeyPatch) -> None:
    """A list of runs is that of everybody."""

    async def runs(self: Any, *, who: Any) -> Any:
        return await self.parts.engine.list()

    patch.setattr(host.Runtime, "runs", runs)


def kept_runs(patch: pytest.MonkeyPatch) -> None:
    """A list of kept runs does not look whose they are."""
    patch.setattr(views, "_is_of", lambda *_: True)


def kept_runs_in_a_file(patch: pytest.MonkeyPatch) -> None:
    """A list of kept runs in a file begins at an index that knows no owners, and does not look whose they are."""
    ways = lists.run_ways

    def anywhere(wanted: Any) -> Any:
        return ways(msgspec.structs.replace(wanted, tenant="", user="", session=""))

    patch.setattr(lists, "run_ways", anywhere)


def without(module: Any, file: str, column: str) -> Break:
    """The statements of a file without one part of the identity; SQLite reads them when a store is opened."""

    def read(asked: str, package: str) -> dict[str, str]:
        found = statements(asked, package)
        return {name: one_row(sql) for name, sql in widened(found, column).items()} if asked == file else found

    return lambda patch: patch.setattr(module, "statements", read)


def one_row(sql: str) -> str:
    """The statement, of which one that reads finds one row where it would find several."""
    return f"{sql.rstrip().rstrip(';')} LIMIT 1" if re.match(r"\s*select", sql, re.IGNORECASE) else sql


def widened(found: Mapping[str, str], column: str) -> dict[str, str]:
    """The statements, of which those that read look no more at one column."""
    condition = re.compile(rf"\b{column} = (:\w+|\$\d)")
    return {
        name: condition.sub(rf"({column} = \1 OR TRUE)", sql) if re.match(r"\s*select", sql, re.IGNORECASE) else sql
        for name, sql in found.items()
    }


def forgets(owner: type, method: str, part: str) -> Break:
    """A method that takes every caller for one of the first tenant, user or session, by one part of its identity."""
    whole = getattr(owner, method)

    def blurred(who: Any) -> Any:
        return replace(who, **{part: FIRST[part]}) if isinstance(who, Identity | Quadruple) else who

    async def forgetful(self: Any, *args: Any, **more: Any) -> Any:
        return await whole(self, *map(blurred, args), **{name: blurred(one) for name, one in more.items()})

    return lambda patch: patch.setattr(owner, method, forgetful)


def as_somebody(method: str) -> Break:
    """A method that does for its caller what it would do for anybody else."""
    whole = getattr(InProcessTaskRegistry, method)

    async def unchecked(self: Any, *args: Any, who: Any = None) -> Any:
        refused: Exception | None = None
        for one in (who or args[0], *await self.sessions()):
            try:
                done = await (whole(self, one, *args[1:]) if who is None else whole(self, *args, who=one))
            except NotFoundError as error:
                refused = refused or error
                continue
            if done:
                return done
        if refused is not None:
            raise refused
        return done

    return lambda patch: patch.setattr(InProcessTaskRegistry, method, unchecked)


def artifacts_exist(patch: pytest.MonkeyPatch) -> None:
    """An artifact exists for everybody."""

    async def exists(self: Any, scope: Any, id: str) -> bool:
        return any(id in stored for session in self._sessions.values() for stored in session.values())

    patch.setattr(MemoryArtifactStore, "exists", exists)


def any_run(patch: pytest.MonkeyPatch) -> None:
    """A run is forked for whoever knows its id."""
    whole = host.Runtime.fork

    async def fork(self: Any, run_id: str, *, who: Any, **more: Any) -> Any:
        owner = (await self.parts.engine.status(run_id)).who.identity
        return await whole(self, run_id, who=owner, **more)

    patch.setattr(host.Runtime, "fork", fork)


FIRST: Mapping[str, str] = {"tenant_id": "tenant0", "user_id": "user0", "session_id": "session0"}
FORGETFUL: Sequence[tuple[type, str]] = [
    *((SessionMemory, name) for name in ("add_turn", "context", "snapshot", "restore", "estimate_tokens", "flush")),
    *((SessionRegistry, name) for name in ("touch", "inspect", "open", "close")),
    *((host.Runtime, name) for name in ("runs", "pending")),
    (coordinator.Coordinator, "list_open"),
]
"""The methods that find nothing but by the identity they are given."""
OF_TASKS = ("wait_ended", "acknowledge_background", "watch_group", "apply_group", "cancel_group", "apply_patch")

COMMON = ("pauses:", "tasks:", "runs:", "sessions:")
"""Filters above the stores, which are the same over each of them."""

BROKEN: Mapping[str, tuple[str, Break]] = {
    "pauses: the owner": ("none", anybody),
    "pauses: the user of a list": ("none", own_pauses),
    "pauses: the tenant of a list": ("none", pauses_of_tenants),
    "pauses: the scope of a list": ("none", as_admin(coordinator.Coordinator, "list")),
    "events: the scope of a query": ("none", queries),
    "events: live": ("none", live_events),
    "events: replay in memory": ("none", replayed_events),
    "events: the kept ones": ("memory", kept_events),
    "events: the kept ones in a file": ("sqlite", kept_events_in_a_file),
    "state: slots in memory": ("memory", kept_records),
    "state: event ids in memory": ("memory", records_by_event),
    "artifacts: one": ("none", artifacts),
    "artifacts: the list": ("none", listed_artifacts),
    "tasks: one": ("none", tasks),
    "tasks: the list": ("none", listed_tasks),
    "tasks: the scope of a page": ("none", as_admin(TaskListing, "list")),
    **{
        f"{where}: InProcessTaskRegistry.{method}": (where, as_somebody(method))
        for where in ("memory", "sqlite")
        for method in OF_TASKS
    },
    "artifacts: whether one exists": ("none", artifacts_exist),
    "runs: the fork": ("none", any_run),
    **{
        f"{where}: {owner.__name__}.{method}: {part}": (where, forgets(owner, method, part))
        for where in ("memory", "sqlite")
        for owner, method in (*FORGETFUL, (MemoryStateStore if where == "memory" else SQLiteStateStore, "delete"))
        for part in FIRST
        if (method, part) != ("open", "session_id")  # it is compared with the id that is passed beside it
    },
    "sessions: the scope of a list": ("none", as_admin(SessionRegistry, "list")),
    "runs: one": ("none", one_run),
    "runs: the list": ("none", listed_runs),
    "runs: the kept ones": ("memory", kept_runs),
    "runs: the kept ones in a file": ("sqlite", kept_runs_in_a_file),
    **{
        f"sqlite: {column} of {file}": ("sqlite", without(module, file, column))
        for module, file in ((records, "records"),)
        for column in ("tenant_id", "user_id", "session_id")
    },
}


OVER_POSTGRES: Mapping[str, Break] = {
    **{name: broken for name, (where, broken) in BROKEN.items() if where == "none" and name.startswith(COMMON)},
    **{f"postgres: InProcessTaskRegistry.{method}": as_somebody(method) for method in OF_TASKS},
    "events: the kept ones": kept_events_in_a_server,
    "runs: the kept ones": kept_runs_in_a_file,
    "sessions: one": forgets(SessionRegistry, "inspect", "user_id"),
    "memory: one": forgets(SessionMemory, "context", "session_id"),
}
PARTS = 8
"""In how many tests the filters are taken away: each of them takes seconds where nothing crosses."""


ABOUT: Mapping[str, tuple[str, ...]] = {
    "SessionRegistry": ("sessions.",),
    "SessionMemory": ("memory.",),
    "StateStore.delete": ("memory.", "state."),
    "InProcessTaskRegistry": ("tasks.", "groups.", "patches."),
    "Runtime.pending": ("runs.list", "runs.start", "pauses."),
    "Coordinator": ("runs.", "pauses."),
    "Runtime": ("runs.",),
    "runs:": ("runs.",),
    "tasks:": ("tasks.",),
    "artifacts:": ("artifacts.", "runs."),
}
"""With which words the operations begin that come upon a filter soon, by a part of its name."""


async def is_seen(name: str, broken: Break, opened: AbstractAsyncContextManager[Storage | None]) -> str:
    """Why a filter that is gone is not noticed over a storage; empty if it is."""
    about = next((words for part, words in ABOUT.items() if part in name), ("",))
    with pytest.MonkeyPatch.context() as patch:
        broken(patch)
        async with opened as storage:
            try:
                watched = await watch(storage, principals=12, operations=400, seed=7, about=about)
                if not watched.leaks:  # among all operations it is certain to be met, and later
                    watched = await watch(storage, principals=20, operations=1_500, seed=7)
            except Exception as error:
                return repr(error)
    return "" if watched.leaks else "nobody saw what is another's"


@pytest.mark.parametrize("part", range(PARTS))
async def test_a_filter_that_is_gone_is_seen(part: int, tmp_path: Path) -> None:
    """Each identity filter is taken away by itself, and each time a principal sees the data of another."""
    unseen = {}
    for at, (name, (where, broken)) in enumerate(list(BROKEN.items())[part::PARTS]):
        if why := await is_seen(name, broken, place(where, tmp_path / str(at))):
            unseen[name] = why
    assert not unseen


@pytest.mark.parametrize("part", range(PARTS))
async def test_a_filter_that_is_gone_is_seen_over_postgres(part: int, postgres: Databases, tmp_path: Path) -> None:
    """The same over a real server."""
    unseen = {}
    for at, (name, broken) in enumerate(list(OVER_POSTGRES.items())[part::PARTS]):
        if why := await is_seen(name, broken, of_server(postgres, f"filter_{part}_{at}", tmp_path)):
            unseen[name] = why
    assert not unseen
