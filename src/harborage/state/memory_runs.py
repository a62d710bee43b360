"""Runs kept in memory: for tests, and for processes whose runs may end with them.

Also the plainest statement of what the ports mean: what another driver does in a transaction stands here in plain code.
It knows which runs are ready without looking at the others, so that ten thousand parked runs cost nothing.
"""

from __future__ import annotations

import asyncio
import builtins
import heapq
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime

import msgspec
from msgspec.structs import replace

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.state.errors import StoreClosedError
from harborage.state.runs import (
    Claim,
    EntryMissingError,
    Lease,
    LeaseLostError,
    QueueFullError,
    RunFilter,
    RunRecord,
    RunRecordNotFoundError,
    Sent,
    Stand,
    Standing,
    Write,
    check_bodies,
    check_body,
)

__all__ = ["MemoryRuns"]


class _Kept(msgspec.Struct, kw_only=True):
    """One run. `made` is its record as it was made; `sent` are the numbers of its controls that are not taken yet."""

    number: int
    made: RunRecord
    standing: Standing
    updated_at: datetime
    owner: str = ""
    fence: int = 0
    is_woken: bool = False
    entries: builtins.list[bytes] = []
    digests: set[str] = set()
    sent: builtins.list[int] = []
    event_ids: set[str] = set()

    @property
    def record(self) -> RunRecord:
        return replace(
            self.made,
            standing=self.standing,
            owner=self.owner,
            fence=self.fence,
            entries=len(self.entries),
            updated_at=self.updated_at,
        )

    @property
    def is_ready(self) -> bool:
        """Whether it may be claimed for what has happened to it; that its time has come is seen when one looks."""
        if self.owner:
            return False
        stand = self.standing.stand
        return stand is Stand.READY or (stand is Stand.PARKED and (self.is_woken or bool(self.sent)))


class MemoryRuns:
    """`RunStore` and `RunQueue` for one process: whoever claims a run keeps it until it gives it back or ends."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._made = 0
        self._sent = 0
        self._runs: dict[str, _Kept] = {}
        self._ready: dict[str, _Kept] = {}
        self._due: defaultdict[str, builtins.list[tuple[datetime, int, str]]] = defaultdict(builtins.list)
        self._waiting: defaultdict[str, set[str]] = defaultdict(set)
        self._carried: defaultdict[str, dict[str, _Kept]] = defaultdict(dict)
        self._inbox: dict[int, Sent] = {}
        self._bodies: dict[str, bytes] = {}
        self._naming: defaultdict[str, set[str]] = defaultdict(set)
        self._alive: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)
        self._listeners: builtins.list[Callable[[], None]] = []
        self._is_closed = False

    # ── RunStore ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def create(self, record: RunRecord, write: Write) -> bool:
        self._check_open()
        if record.run_id in self._runs:
            return False
        check_bodies(write)
        self._made += 1
        kept = _Kept(number=self._made, made=record, standing=record.standing, updated_at=record.updated_at)
        self._runs[record.run_id] = kept
        self._apply(kept, write)
        self._stand(kept, write.standing or record.standing)
        self._tell()
        return True

    async def append(self, lease: Lease, write: Write) -> None:
        kept = self._held(lease)
        if write.bodies:
            check_bodies(write)
        self._apply(kept, write)
        if write.standing is not None:
            self._stand(kept, write.standing)
            self._tell()

    async def read(self, run_id: str, *, after: int = 0) -> builtins.list[bytes]:
        self._check_open()
        kept = self._runs.get(run_id)
        return [] if kept is None else kept.entries[after:]

    async def body(self, run_id: str, digest: str) -> bytes:
        self._check_open()
        kept = self._runs.get(run_id)
        data = self._bodies.get(digest)
        if kept is None or digest not in kept.digests or data is None:
            raise EntryMissingError(run_id=run_id, digest=digest)
        return check_body(run_id, digest, data)

    async def list(self, filter: RunFilter, *, after: str = "", limit: int = 100) -> builtins.list[RunRecord]:
        self._check_open()
        if after and after not in self._runs:
            raise RunRecordNotFoundError(f"no run {after} to list the runs behind")
        first = self._runs[after].number if after else 0
        found: builtins.list[RunRecord] = []
        for kept in self._runs.values():
            if len(found) < limit and kept.number > first and _matches(kept, filter):
                found.append(kept.record)
        return found

    async def forget(self, run_id: str) -> None:
        self._check_open()
        kept = self._runs.pop(run_id, None)
        if kept is None:
            return
        self._wake_waiting(run_id)
        self._take(kept, self._sent)
        for digest in kept.digests:
            self._naming[digest].discard(run_id)
            if not self._naming[digest]:
                del self._naming[digest], self._bodies[digest]
        self._carried[kept.owner].pop(run_id, None)
        self._waiting[kept.standing.waits_for].discard(run_id)
        self._ready.pop(run_id, None)
        self._tell()

    async def aclose(self) -> None:
        self._is_closed = True
        for signs in self._alive.values():
            for sign in signs:
                if not sign.done():
                    sign.set_exception(StoreClosedError())
        for kept in (self._runs, self._ready, self._due, self._inbox, self._bodies, self._listeners):
            kept.clear()

    # ── RunQueue ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def claim(
        self, worker: str, *, agent: str = "", limit: int = 100, blocked: bool = False, behind: str = ""
    ) -> builtins.list[Claim]:
        self._check_open()
        self._fall_due()
        ready = builtins.list(self._ready.values())
        if blocked:
            first = self._runs[behind].number if behind in self._runs else 0
            every = (kept for kept in self._runs.values() if kept.number > first)
            ready += [kept for kept in every if kept.standing.stand is Stand.BLOCKED and not kept.owner]
        if agent:
            ready = [kept for kept in ready if kept.made.agent in ("", agent)]
        claims: builtins.list[Claim] = []
        for kept in heapq.nsmallest(limit, ready, key=lambda one: one.number):
            run_id = kept.made.run_id
            kept.owner, kept.fence, kept.is_woken = worker, kept.fence + 1, False
            self._carried[worker][run_id] = kept
            self._ready.pop(run_id, None)
            claims.append(Claim(kept.record, Lease(run_id, worker, kept.fence)))
        return claims

    async def release(self, lease: Lease, standing: Standing) -> None:
        try:
            kept = self._held(lease)
        except LeaseLostError:
            return
        self._disown(kept)
        kept.updated_at = self._clock.now()
        self._stand(kept, standing)
        self._tell()

    async def send(self, run_id: str, event_id: str, data: bytes, *, limit: int = 0) -> bool:
        self._check_open()
        kept = self._runs.get(run_id)
        if kept is None or kept.standing.stand.is_final:
            raise RunRecordNotFoundError(f"no run {run_id} that could still take a control")
        if event_id in kept.event_ids:
            return False
        if limit and len(kept.sent) >= limit:
            raise QueueFullError(run_id, limit)
        self._sent += 1
        kept.event_ids.add(event_id)
        kept.sent.append(self._sent)
        self._inbox[self._sent] = Sent(self._sent, run_id, event_id, bytes(data))
        self._queue_up(kept)
        self._tell()
        return True

    async def arrived(self, worker: str, *, after: int = 0) -> builtins.list[Sent]:
        self._check_open()
        carried = self._carried.get(worker, {})
        return [sent for sent in self._inbox.values() if sent.number > after and sent.run_id in carried]

    async def wake(self, run_id: str) -> None:
        self._check_open()
        kept = self._runs.get(run_id)
        if kept is not None and (kept.owner or kept.standing.stand is Stand.PARKED):
            kept.is_woken = True
            self._queue_up(kept)
            self._tell()

    async def keep_alive(self, worker: str) -> None:
        self._check_open()
        sign: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        signs = self._alive[worker]
        signs.add(sign)
        try:
            await sign
        finally:
            signs.discard(sign)
            if not signs:
                for kept in builtins.list(self._carried.pop(worker, {}).values()):
                    self._disown(kept)
                    kept.is_woken = True
                    self._queue_up(kept)
                self._tell()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(listener)

        def unlisten() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unlisten

    async def next_wake(self, *, agent: str = "") -> datetime | None:
        self._check_open()
        wanted = {"", agent} if agent else set(self._due)
        return min((at for one in wanted if (at := self._next_of(one)) is not None), default=None)

    # ── Rules ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError()

    def _held(self, lease: Lease) -> _Kept:
        kept = self._runs.get(lease.run_id)
        if kept is None or kept.owner != lease.worker or kept.fence != lease.fence:
            self._check_open()
            raise LeaseLostError(lease.run_id, lease.worker, lease.fence)
        return kept

    def _apply(self, kept: _Kept, write: Write) -> None:
        kept.entries.extend(write.entries)
        kept.updated_at = self._clock.now()
        if write.taken:
            self._take(kept, write.taken)
        if write.bodies:
            for digest, data in write.bodies.items():
                self._bodies.setdefault(digest, data)
                self._naming[digest].add(kept.made.run_id)
                kept.digests.add(digest)

    def _take(self, kept: _Kept, upto: int) -> None:
        for number in kept.sent:
            if number <= upto:
                del self._inbox[number]
        kept.sent = [number for number in kept.sent if number > upto]

    def _stand(self, kept: _Kept, standing: Standing) -> None:
        run_id = kept.made.run_id
        self._waiting[kept.standing.waits_for].discard(run_id)
        kept.standing = standing
        if standing.stand is Stand.PARKED and standing.waits_for:
            target = self._runs.get(standing.waits_for)
            if target is not None and target.standing.stand.is_final:
                kept.is_woken = True
            self._waiting[standing.waits_for].add(run_id)
        if standing.stand.is_final:
            self._disown(kept)
            self._wake_waiting(run_id)
        self._queue_up(kept)

    def _disown(self, kept: _Kept) -> None:
        self._carried[kept.owner].pop(kept.made.run_id, None)
        kept.owner = ""

    def _queue_up(self, kept: _Kept) -> None:
        """Let the run be found by what may make it go on."""
        run_id, wake_at = kept.made.run_id, kept.standing.wake_at
        if kept.is_ready:
            self._ready[run_id] = kept
            return
        self._ready.pop(run_id, None)
        if wake_at is not None and self._waits_until(run_id, wake_at) is not None:
            heapq.heappush(self._due[kept.made.agent], (wake_at, kept.number, run_id))

    def _waits_until(self, run_id: str, at: datetime) -> _Kept | None:
        kept = self._runs.get(run_id)
        if kept is None or kept.owner or kept.standing.stand is not Stand.PARKED or kept.standing.wake_at != at:
            return None
        return kept

    def _next_of(self, agent: str) -> datetime | None:
        """When the next parked run of the agent is to be looked at."""
        due = self._due.get(agent, [])
        while due:
            at, _, run_id = due[0]
            if self._waits_until(run_id, at) is not None:
                return at
            heapq.heappop(due)
        return None

    def _fall_due(self) -> None:
        now = self._clock.now()
        for due in self._due.values():
            while due and due[0][0] <= now:
                at, _, run_id = heapq.heappop(due)
                if (kept := self._waits_until(run_id, at)) is not None:
                    kept.is_woken = True
                    self._queue_up(kept)

    def _wake_waiting(self, run_id: str) -> None:
        for waiting in self._waiting.pop(run_id, ()):
            kept = self._runs.get(waiting)
            if kept is not None:
                kept.is_woken = True
                self._queue_up(kept)

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()


def _matches(kept: _Kept, filter: RunFilter) -> bool:
    who = kept.made.who
    return (
        filter.run_id in ("", kept.made.run_id)
        and filter.tenant in ("", who.tenant_id)
        and filter.user in ("", who.user_id)
        and filter.session in ("", who.session_id)
        and filter.agent in ("", kept.made.agent)
        and (not filter.stands or kept.standing.stand in filter.stands)
    )
