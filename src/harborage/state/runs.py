"""Where runs are kept so that they outlive their process: their records, who carries them, and what was sent to them.

Bytes and names only: what an entry or a control means is the runtime's business. Two ports over one database, since
what is true of a run (record, standing, controls taken) changes in one transaction. A call whose caller is cancelled
happened whole or not at all. A closed store refuses every call with StoreClosedError.

    StateError
    ├── DatabaseError and below           the database refused; drawn in state.errors
    └── RunStoreError
        ├── RunRecordNotFoundError        no such run
        ├── EntryMissingError             an entry or a body is not there, or is not what was kept
        ├── BodyMismatchError             a body is not what its name says
        ├── LeaseLostError                another worker carries the run
        └── QueueFullError                too many controls wait for the run
"""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import msgspec

from harborage.identity import Quadruple
from harborage.state.errors import StateError

__all__ = [
    "PROVIDER_UNAVAILABLE",
    "BodyMismatchError",
    "Claim",
    "EntryMissingError",
    "Lease",
    "LeaseLostError",
    "QueueFullError",
    "RunFilter",
    "RunQueue",
    "RunRecord",
    "RunRecordNotFoundError",
    "RunStore",
    "RunStoreError",
    "Sent",
    "Stand",
    "Standing",
    "Write",
    "check_bodies",
    "check_body",
]


class RunStoreError(StateError):
    """The store of runs could not do what was asked; the text names the run and the entry where there is one."""


class RunRecordNotFoundError(RunStoreError):
    """No run with that id is kept here."""


class EntryMissingError(RunStoreError):
    """An entry of a run, or a body that it names, is not there or not what was kept; nothing was changed.

    `run_id` is the run, `entry` the place of the entry counted from 0 (None for a body), `digest` the body's name.
    """

    def __init__(self, message: str = "", *, run_id: str = "", entry: int | None = None, digest: str = "") -> None:
        self.run_id = run_id
        self.entry = entry
        self.digest = digest
        what = f"body {digest}" if entry is None else f"entry {entry}"
        super().__init__(message or (f"run {run_id}, {what}: it is not there, or not what was kept" if run_id else ""))


class BodyMismatchError(RunStoreError):
    """A body is not what its name says: bodies are named by their SHA-256 in hex; nothing was changed."""


class QueueFullError(RunStoreError):
    """As many controls wait for the run as may; nothing was kept. `run_id` and `limit` say which."""

    def __init__(self, run_id: str = "", limit: int = 0) -> None:
        self.run_id = run_id
        self.limit = limit
        super().__init__(f"run {run_id}: {limit} controls wait for it, which is the limit; nothing was kept")


class LeaseLostError(RunStoreError):
    """Another worker carries the run now; what this one wanted to write was not written."""

    def __init__(self, run_id: str = "", worker: str = "", fence: int = 0) -> None:
        self.run_id = run_id
        self.worker = worker
        self.fence = fence
        super().__init__(f"run {run_id}: worker {worker} with fence {fence} no longer holds it; nothing was written")


PROVIDER_UNAVAILABLE: Final = "interrupted: provider unavailable"
"""How the reason of a parked run begins whose model's provider is down; at `wake_at` it is asked again."""


class Stand(StrEnum):
    """Where a kept run stands. `READY` wants to be carried, `PARKED` waits, `BLOCKED` needs other code."""

    READY = "ready"
    PARKED = "parked"
    BLOCKED = "blocked"
    FINISHED = "finished"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Whether the run will never move again."""
        return self in {Stand.FINISHED, Stand.FAILED}


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run without reading its record.

    `wake_at` is when a parked run is to be looked at again at the latest; `waits_for` is the id of the run whose end
    it waits for. A parked run is ready again when either comes (or has come already), when a control is sent to it,
    when it is woken, and when the worker that carried it dies. A final standing gives the lease back, and wakes the
    runs that wait for this one.
    """

    stand: Stand = Stand.READY
    reason: str = ""
    wake_at: datetime | None = None
    waits_for: str = ""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A kept run. `agent` is how its agent is found again, `owner` the worker that carries it ("" for nobody)."""

    run_id: str
    who: Quadruple
    goal: str
    agent: str = ""
    standing: Standing = Standing()
    owner: str = ""
    fence: int = 0
    entries: int = 0
    created_at: datetime
    updated_at: datetime


class Lease(NamedTuple):
    """The right to write a run's record. A newer one has a higher fence, and ends this one."""

    run_id: str
    worker: str
    fence: int


class Claim(NamedTuple):
    """A run that a worker may carry now, as it stood when it was claimed."""

    record: RunRecord
    lease: Lease


class Sent(NamedTuple):
    """A control that was sent to a run; `number` grows over all runs of the store."""

    number: int
    run_id: str
    event_id: str
    data: bytes


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a run, kept whole or not at all.

    `entries` are added to its record; `bodies` are what they name by SHA-256 in hex; `taken` is the number up to which
    its controls are dealt with, as these entries say; `standing` None leaves it as it is.
    """

    entries: Sequence[bytes] = ()
    bodies: Mapping[str, bytes] = {}
    taken: int = 0
    standing: Standing | None = None


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs are wanted; an empty field narrows nothing."""

    run_id: str = ""
    tenant: str = ""
    user: str = ""
    session: str = ""
    stands: tuple[Stand, ...] = ()
    agent: str = ""


class RunStore(Protocol):
    """Keeps what runs are. Never: changes, reorders or drops a single entry of a run that it keeps."""

    async def create(self, record: RunRecord, write: Write) -> bool:
        """Keep a new run with its first entries, carried by nobody; False, and nothing done, for an id that is kept."""
        ...

    async def append(self, lease: Lease, write: Write) -> None:
        """Change a run; it is on disk once this returns.

        Raises:
            LeaseLostError: another worker holds the run, or it is gone; nothing was written.
            BodyMismatchError: a body is not what its name says; nothing was written.
            DatabaseError: the disk is full, the file locked or read-only, …; nothing was written.
        """
        ...

    async def read(self, run_id: str, *, after: int = 0) -> builtins.list[bytes]:
        """A run's entries in order, without the first `after`; empty for an unknown run.

        Raises:
            EntryMissingError: an entry that was kept is not there, or is not what was kept.
        """
        ...

    async def body(self, run_id: str, digest: str) -> bytes:
        """The body that the run's entries name by this digest.

        Raises:
            EntryMissingError: it is not there, or it is not what was kept, or only other runs name it.
        """
        ...

    async def list(self, filter: RunFilter, *, after: str = "", limit: int = 100) -> builtins.list[RunRecord]:
        """Kept runs in the order of their making; with `after`, a run's id, only those that were made after that one.

        Raises:
            RunRecordNotFoundError: `after` names no run.
        """
        ...

    async def forget(self, run_id: str) -> None:
        """Drop a run whole, with what only it names; an unknown one is nothing to drop.

        Whoever carries it loses it, and what waits for its end is woken.
        """
        ...

    async def aclose(self) -> None:
        """Release what the store holds. Closing twice does nothing."""
        ...


class RunQueue(Protocol):
    """Says who carries which run, and carries what is sent to runs from any process.

    A worker lives from its first `keep_alive` or `claim` on, and for as long as it gives signs of life: begin
    `keep_alive` before the first claim and keep it until every run is given back. Where it ends, and where the process
    dies, the worker's runs are free at once; a worker that only freezes loses them when its last sign has grown old.
    """

    async def claim(
        self, worker: str, *, agent: str = "", limit: int = 100, blocked: bool = False, behind: str = ""
    ) -> builtins.list[Claim]:
        """Take runs that are ready and carried by nobody who lives, oldest first, each with a new fence.

        With `agent` only runs of that agent, and those of none. With `blocked` those that need other code are taken,
        too, but of them only those that were made after the run `behind`: whoever asks on behind the last one gets each
        once. A run that is claimed keeps its standing until it is changed.
        """
        ...

    async def release(self, lease: Lease, standing: Standing) -> None:
        """Carry the run no longer; a lease that was lost is nothing to give back.

        A run that is given back parked is ready at once when controls wait that were not taken, or when it was woken
        since it was claimed.
        """
        ...

    async def send(self, run_id: str, event_id: str, data: bytes, *, limit: int = 0) -> bool:
        """Keep a control for a run; False for an event id that was sent to it before, taken or not.

        `limit` is how many controls may wait for the run with this one, 0 for any number.

        Raises:
            RunRecordNotFoundError: no such run, or it has ended.
            QueueFullError: so many wait already, and this one is new; nothing was kept.
        """
        ...

    async def arrived(self, worker: str, *, after: int = 0) -> builtins.list[Sent]:
        """Controls behind number `after`, not taken yet, for the runs that the worker carries, in order of number.

        A run that is claimed may bring controls with smaller numbers than those of the runs carried already.
        """
        ...

    async def wake(self, run_id: str) -> None:
        """Make a parked run ready; one that is carried will be once it is given back parked. Others are left alone."""
        ...

    async def keep_alive(self, worker: str) -> None:
        """Give the worker's sign of life until cancelled; then its runs are free. It outlasts a database that refuses.

        It also notices what other processes do, for `on_change`, and frees the runs of workers that died.

        Raises:
            StoreClosedError: the queue was closed meanwhile.
        """
        ...

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener`, on this event loop, when runs may have become ready or ended or controls arrived.

        What this process does is told at once; what others do, while some worker of this process is kept alive. It may
        be called without a reason, and not at all for what time alone brings. Returns what calls it off.
        """
        ...

    async def next_wake(self, *, agent: str = "") -> datetime | None:
        """When the next parked run that nobody carries is to be looked at; None when none waits for a time.

        With `agent` only runs of that agent count, and those of none.
        """
        ...

    async def aclose(self) -> None:
        """Release what the queue holds. Closing twice does nothing."""
        ...


def check_body(run_id: str, digest: str, data: bytes) -> bytes:
    """The body, as long as it is what its name says.

    Raises:
        EntryMissingError: it is not.
    """
    if hashlib.sha256(data).hexdigest() != digest:
        raise EntryMissingError(run_id=run_id, digest=digest)
    return data


def check_bodies(write: Write) -> None:
    """Accept a write whose bodies are what their names say: a body is shared by all runs that name it.

    Raises:
        BodyMismatchError: one is not.
    """
    for digest, data in write.bodies.items():
        if hashlib.sha256(data).hexdigest() != digest:
            raise BodyMismatchError(f"the body named {digest} has another SHA-256; nothing was written")
