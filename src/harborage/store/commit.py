"""A commit: everything that changes together, as one value. A store applies all of it or none.

Whoever writes a run holds its lease and says so with a `Guard`. Without one a commit may start runs, send controls,
settle pauses and change what no worker writes; each part carries the condition under which it is true.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from harborage.identity import Identity, missing_parts
from harborage.store.errors import CommitInvalidError
from harborage.store.rows import GroupLeft, GroupStatus, Lease, PauseStatus, SessionChange, Status

ABOUT: Final = 200
"""How many characters of a goal or a description a row keeps for lists."""


class Guard(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The right to write a run: its lease, and how many entries its journal has before this commit."""

    lease: Lease
    position: int


class NewRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run to start, with the first entries of its journal; without a parent not in a session that was closed.

    With `worker` it is claimed by that worker in the same commit; otherwise it is ready for any. One without entries is
    a task that no worker executes: it is never ready, and only a `Move` changes it. `parent` is the run
    that starts it, `root` the top of the tree; `max_children` and `max_tree` are how many runs the parent may have
    started and how many may be below the root, 0 for any number. A `key` makes the start repeatable within its session:
    a second one with the same fingerprint finds the first run. `goal` and `description` are cut for the row; `asked` is
    what else its caller wants to read of it.
    """

    run_id: str
    who: Identity
    entries: tuple[bytes, ...] = ()
    worker: str = ""
    agent: str = ""
    parent: str = ""
    root: str = ""
    group: str = ""
    kind: str = ""
    priority: int = 0
    status: Status = Status.PENDING
    description: str = ""
    goal: str = ""
    asked: bytes = b""
    deadline: int | None = None
    tags: str = ""
    key: str = ""
    fingerprint: str = ""
    is_cascading: bool = True
    notifies: bool = False
    retains_turn: bool = False
    max_children: int = 0
    max_tree: int = 0


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the worker that holds a run makes of its row; only with a guard.

    `status` None leaves it. A final status ends the lease, cancels the run's open pauses, counts it out of its group,
    and is refused while controls are left unread. With `release` the run is given back: at once ready again if
    `is_ready`, or if it has an unread control with a number above `seen_control`; otherwise it waits for `wake_at`, for
    what it `awaits`, or for the next control. `seen_control` is the last control that the worker has seen, where those
    up to it may stay unread until something else wakes the run; 0 where none may. `blocked` keeps it from being claimed
    until it is unblocked. `reason` and `awaits` None leave them, "" clears them.
    `progress` sets its attempts back to 0. `outcome` is the result or the error that it ended with. The counters are
    added.
    """

    status: Status | None = None
    reason: str | None = None
    outcome: bytes | None = None
    blocked: str | None = None
    wake_at: int | None = None
    awaits: str | None = None
    priority: int | None = None
    release: bool = False
    is_ready: bool = False
    seen_control: int = 0
    progress: bool = False
    tool_calls: int = 0
    tokens: int = 0
    cost: int = 0


class Move(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of a run by others than its worker, true only while it is in one of the `expected` statuses.

    The status of a run that a worker holds stays as it is: a `status` is refused then. `awaits` is the run or group
    whose end it waits for, "" for none; a wait that would wait for itself is refused. Only a live run waits, and one
    commit lets only one run wait.
    """

    run_id: str
    expected: tuple[Status, ...]
    status: Status | None = None
    reason: str | None = None
    outcome: bytes | None = None
    awaits: str | None = None
    priority: int | None = None
    is_acknowledged: bool | None = None
    tool_calls: int = 0
    entries: tuple[bytes, ...] = ()


class NewGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group to open; one with this id in the session is left as it is.

    One that `is_sealed` takes no members but the runs that the same commit starts, and is refused where there is one.
    """

    group_id: str
    who: Identity
    owner: str = ""
    retains_turn: bool = False
    fails_fast: bool = False
    description: str = ""
    deadline: int | None = None
    is_sealed: bool = False


class ChangeGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group's next status, true only while it is in one of the `expected`; with `is_empty` only once no member is
    live but those that this commit ends, with `members` only while so many have joined, with `owner` only if it is
    that run's. `outcome` is how its members stood, for a group that ends before they have."""

    group_id: str
    who: Identity
    expected: tuple[GroupStatus, ...]
    status: GroupStatus
    reason: str = ""
    is_empty: bool = False
    members: int = 0
    owner: str = ""
    outcome: bytes = b""


class NewPause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pause to open; one with this token is left as it is. `data` is the question.

    `at` is when it was asked, and the moment of the commit where that is 0.
    """

    token: str
    run_id: str
    who: Identity
    reason: str
    deadline: int | None = None
    data: bytes = b""
    at: int = 0


class SettlePause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a pause, true only while it is open; it wakes the pause's run.

    `at` is when it was given, and the moment of the commit where that is 0.
    """

    token: str
    status: PauseStatus
    by: str = ""
    answer: bytes = b""
    at: int = 0


class SendControl(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A control for a run, which it wakes unless a worker holds it: that one looks for itself.

    One with the same event id was sent before and is not sent again.
    `limit` is how many unread controls the run may have with this one; 0 for any number. `answers` is the token of the
    pause that it answers: of an open pause only one answer is on its way, until that is dropped.
    """

    run_id: str
    event_id: str
    type: str
    data: bytes
    limit: int = 0
    answers: str = ""


class DropAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to a pause came to nothing: while the pause is open, another may be sent. `event_id` is its control's.

    Nothing changes where another answer is on its way.
    """

    token: str
    event_id: str


class NewEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An event of the commit's session; `at` is when it happened, and the moment of the commit where that is 0."""

    type: str
    data: bytes
    run_id: str = ""
    at: int = 0


class DecidePatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A patch to open (without a decision), or the decision about one, true only while there is none."""

    patch_id: str
    who: Identity
    decision: str = ""


class OpenSession(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session to open before all else, unless it was opened: with this `context`, `at` that time, in microseconds.

    `events` say that it is opened, and are stored only then. It may stay open where the commit is refused.
    """

    who: Identity
    context: bytes = b"{}"
    at: int | None = None
    events: tuple[NewEvent, ...] = ()


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change of the store.

    `guard` is the run that the caller writes: its `entries`, its `change` and the controls it `consumed`, by number.
    `wakes` are runs that have to look again. With `take` the run that a settled pause or a control wakes is claimed by
    that worker if no worker holds it. `events` are of the session `who`. `bodies` are what the entries name by SHA-256
    in hex: those of the guarded run, and without a guard those of the runs that are started. `session` is opened before
    all else.
    """

    guard: Guard | None = None
    entries: tuple[bytes, ...] = ()
    change: Change | None = None
    consumed: tuple[int, ...] = ()
    starts: tuple[NewRun, ...] = ()
    moves: tuple[Move, ...] = ()
    opens: tuple[NewPause, ...] = ()
    settles: tuple[SettlePause, ...] = ()
    sends: tuple[SendControl, ...] = ()
    drops: tuple[DropAnswer, ...] = ()
    groups: tuple[NewGroup | ChangeGroup, ...] = ()
    patches: tuple[DecidePatch, ...] = ()
    wakes: tuple[str, ...] = ()
    take: str = ""
    who: Identity | None = None
    events: tuple[NewEvent, ...] = ()
    bodies: Mapping[str, bytes] = {}
    session: OpenSession | None = None


class Committed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a store made of a commit.

    `first` is the sequence number of its first event, `place` the place of that event in its session; 0 without events.
    `sent` says of each control, `opened` of each pause, whether it is new. `taken` are the leases that `take` brought.
    `left` are the groups of the members that it has ended: first those of its moves, then that of the guarded run.
    `is_again` says that the very same commit was applied before, so that nothing was written this time. `session` is
    the one that it has opened, or found open, as it was before all else.
    """

    first: int = 0
    place: int = 0
    sent: tuple[bool, ...] = ()
    opened: tuple[bool, ...] = ()
    taken: tuple[Lease, ...] = ()
    left: tuple[GroupLeft, ...] = ()
    is_again: bool = False
    session: SessionChange | None = None


def about(text: str) -> str:
    """The part of a text that a row keeps for lists."""
    return text if len(text) <= ABOUT else text[: ABOUT - 1] + "…"


def is_news(commit: Commit) -> bool:
    """Whether a commit makes a run ready, ends one, or brings something that another process may wait for."""
    change = commit.change
    return bool(
        commit.sends
        or commit.settles
        or commit.wakes
        or commit.moves
        or commit.groups
        or any(not start.worker for start in commit.starts)
        or (change is not None and (change.release or (change.status is not None and change.status.is_final)))
    )


def ending(commit: Commit) -> set[str]:
    """The runs that a commit ends, as far as they have not ended before."""
    ended = {move.run_id for move in commit.moves if move.status is not None and move.status.is_final}
    change = commit.change
    if commit.guard is not None and change is not None and change.status is not None and change.status.is_final:
        ended.add(commit.guard.lease.run_id)
    return ended


def subject_of(commit: Commit) -> str:
    """The run that errors of a commit name: the one that is written, or else the first that it is about."""
    if commit.guard is not None:
        return commit.guard.lease.run_id
    named: list[NewRun | SendControl | Move | NewPause] = [*commit.starts, *commit.sends, *commit.moves, *commit.opens]
    return named[0].run_id if named else ""


def check_commit(commit: Commit) -> None:
    """Accept a commit that has a meaning, before any store looks at its conditions.

    Raises:
        CommitInvalidError: the message names the part.
    """
    if commit.guard is None and (commit.entries or commit.change is not None or commit.consumed):
        raise CommitInvalidError("entries, change and consumed are the owner's alone: give the guard of its lease")
    for digest, data in commit.bodies.items():
        if hashlib.sha256(data).hexdigest() != digest:
            raise CommitInvalidError(f"the body named {digest} has another SHA-256")
    if commit.events and (commit.who is None or missing_parts(commit.who)):
        raise CommitInvalidError("events need the session that they belong to: give who with tenant, user and session")
    if commit.take and not (commit.settles or commit.sends):
        raise CommitInvalidError("take claims what a settled pause or a control wakes, and there is neither")
    for start in commit.starts:
        if not start.run_id or missing_parts(start.who):
            raise CommitInvalidError(f"run {start.run_id!r} cannot be started without an id and a whole identity")
        if start.status.is_final:
            raise CommitInvalidError(f"run {start.run_id} cannot be started as {start.status}")
        if start.worker and not start.entries:
            raise CommitInvalidError(f"run {start.run_id} has no entries, and what no worker executes has none")
    _check_waits(commit)
    for settle in commit.settles:
        if settle.status is PauseStatus.OPEN:
            raise CommitInvalidError(f"pause {settle.token} cannot be settled as open")
    change = commit.change
    if change is not None:
        _check_change(change)


def _check_waits(commit: Commit) -> None:
    for move in commit.moves:
        if move.awaits and any(status.is_final for status in (*move.expected, move.status or Status.RUNNING)):
            raise CommitInvalidError(f"run {move.run_id} cannot wait for {move.awaits} once it has ended")
    waits = [part.awaits for part in (commit.change, *commit.moves) if part is not None and part.awaits]
    if len(waits) > 1:
        raise CommitInvalidError("a commit lets one run wait: two waits may be a circle that neither of them is alone")


def _check_change(change: Change) -> None:
    is_final = change.status is not None and change.status.is_final
    waits = change.wake_at is not None or bool(change.awaits)
    if is_final and (change.release or waits):
        raise CommitInvalidError(f"a run that is {change.status} is released by that and waits for nothing")
    if waits and not change.release:
        raise CommitInvalidError("a run that waits has to be released: give release")
    if (change.is_ready or change.seen_control) and not change.release:
        raise CommitInvalidError("only a released run is ready, or waits for its next control: give release")
