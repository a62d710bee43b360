"""The rows of the store of record: runs, groups, pauses, controls, events and sessions, as values.

Rows are read, never changed: a change travels as a `Commit`. Times are integers, microseconds since 1970 in UTC. Bytes
are JSON that the store keeps and never looks into.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from harborage.identity import Identity, Quadruple

EVENT_STEP: Final = 4096
"""Stored events are numbered in steps of this size; the numbers in between belong to deltas, which are not stored."""


class Status(StrEnum):
    """Where a run is. The order has a meaning: the first three are live, then comes the good end, then the bad ones."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def code(self) -> int:
        """The number that stands for it in a table."""
        return _CODES[self]

    @property
    def is_final(self) -> bool:
        """Whether the run will never move again."""
        return _CODES[self] >= _COMPLETE


_CODES: Final = {status: code for code, status in enumerate(Status)}
_COMPLETE: Final = _CODES[Status.COMPLETE]


CRASH: Final = ": "
"""What the reason of a run contains that ended with an error of its own: its class, this, and its text."""


LIVE: Final = (Status.PENDING, Status.RUNNING, Status.PAUSED)
"""The statuses of runs that have not ended."""


class GroupStatus(StrEnum):
    """Where a group of runs is: an open one takes members, a sealed one takes none, the last two are final.

    One that is `ending` takes none either: its members are being cancelled, and it is cancelled once they have ended.
    """

    OPEN = "open"
    SEALED = "sealed"
    ENDING = "ending"
    COMPLETED = "completed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether the group will never change again."""
        return self in {GroupStatus.COMPLETED, GroupStatus.CANCELLED}


class PauseStatus(StrEnum):
    """Where a pause is; every status but `open` is final."""

    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    ANSWERED = "answered"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Lease(NamedTuple):
    """The right of one worker to write a run; `fence` grows with each claim and ends all earlier leases."""

    run_id: str
    worker: str
    fence: int


class RunRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run, which is the same as its task; one without entries is a task that no worker executes.

    `number` grows with each run of the store. `about` and `description` are its goal and its description, cut to the
    length that lists show; the whole goal is in the first entry of its journal, which has `position` entries. `asked`
    and `outcome` are what else was said of it when it was started, and the result or error that it ended with; a query
    that is not for whole rows leaves both empty. `reason`
    is the short code of how it ended, or of what it waits for; `blocked` says why no worker may take it. `wake_at` is
    when a run that waits is looked at again, `awaits` the run or group whose end it waits for. `unread` counts the
    controls that it has not consumed; those with numbers up to `seen_control` its worker had seen when it released the
    run, and none of them wakes it. `children` counts the runs that it started, `tree` (of a root) all below it.
    `attempts` counts its claims since it last made progress. `cost` is in millionths of a US dollar. `tags` are what
    its caller marked it with, as `harborage.store.tags` writes them. A row that cannot be read is shown as far as it
    can, as one that `is_damaged`; `blocked` names its place.
    """

    number: int
    run_id: str
    who: Identity
    agent: str = ""
    parent: str = ""
    root: str = ""
    group: str = ""
    kind: str = ""
    priority: int = 0
    status: Status = Status.PENDING
    reason: str = ""
    blocked: str = ""
    description: str = ""
    about: str = ""
    asked: bytes = b""
    outcome: bytes = b""
    created_at: int
    updated_at: int
    wake_at: int | None = None
    deadline: int | None = None
    awaits: str = ""
    position: int = 0
    owner: str = ""
    fence: int = 0
    attempts: int = 0
    is_woken: bool = False
    unread: int = 0
    seen_control: int = 0
    children: int = 0
    tree: int = 0
    key: str = ""
    fingerprint: str = ""
    is_cascading: bool = True
    notifies: bool = False
    retains_turn: bool = False
    is_acknowledged: bool = False
    tool_count: int = 0
    tokens: int = 0
    cost: int = 0
    tags: str = ""
    is_damaged: bool = False

    @property
    def quadruple(self) -> Quadruple:
        """The identity of the run itself."""
        return self.who.with_run(self.run_id)

    @property
    def lease(self) -> Lease:
        """The lease under which its owner writes it."""
        return Lease(self.run_id, self.owner, self.fence)


class GroupRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group of runs; `members` counts those that joined, `open_members` those of them that have not ended.

    `outcome` is how its members stood, where it ended before they had.
    """

    number: int
    group_id: str
    who: Identity
    owner: str = ""
    retains_turn: bool = False
    fails_fast: bool = False
    description: str = ""
    status: GroupStatus = GroupStatus.OPEN
    reason: str = ""
    members: int = 0
    open_members: int = 0
    created_at: int
    sealed_at: int | None = None
    ended_at: int | None = None
    deadline: int | None = None
    outcome: bytes = b""


class GroupLeft(NamedTuple):
    """A group that a member has left by its end, as it stands then; the fields are those of its row."""

    run_id: str
    group_id: str
    status: GroupStatus
    members: int
    open_members: int
    fails_fast: bool
    retains_turn: bool


class PauseRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that waits for an answer. `data` is the question; `answer` and who gave it are there once settled.

    `answering` is the event id of the control that was sent to answer it and was not dropped; "" where there is none. A
    row that cannot be read is shown as far as it can, as one that `is_damaged`.
    """

    number: int
    token: str
    run_id: str
    who: Identity
    reason: str
    status: PauseStatus = PauseStatus.OPEN
    opened_at: int
    deadline: int | None = None
    settled_at: int | None = None
    settled_by: str = ""
    data: bytes = b""
    answer: bytes = b""
    answering: str = ""
    is_damaged: bool = False


class ControlRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A control that was sent to a run and that it has not consumed; `number` grows over all controls of the store."""

    number: int
    run_id: str
    event_id: str
    type: str
    sent_at: int
    data: bytes


class EventRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A stored event. `sequence` grows over the whole store; `place` counts the events of its session without a gap.

    One that is not what was kept is shown as far as it can be read, and `is_damaged`.
    """

    sequence: int
    who: Identity
    place: int
    run_id: str
    type: str
    at: int
    data: bytes
    is_damaged: bool = False


class SessionRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A conversation of one user of one tenant; `events` counts all events that it ever had.

    Runs and events have a row made for theirs, too; `is_opened` says that it was opened, with `context`, at
    `opened_at`. `seen_at` is when a run started in it, an event happened, or it was touched. A row that cannot be read
    is shown as far as it can, as one that `is_damaged`.
    """

    number: int
    who: Identity
    opened_at: int
    seen_at: int
    closed_at: int | None = None
    close_reason: str = ""
    events: int = 0
    is_opened: bool = False
    context: bytes = b""
    is_damaged: bool = False


class PatchRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change that waits for a decision, known by an id of its session; `decision` is empty until there is one."""

    patch_id: str
    who: Identity
    decision: str = ""
    created_at: int
    decided_at: int | None = None


class SessionChange(NamedTuple):
    """A session as it is now, None where it was never opened, and whether this call changed it.

    `first` and `place` are the numbers of the first event that the call has stored, as in `Committed`.
    """

    row: SessionRow | None
    is_changed: bool
    first: int = 0
    place: int = 0
