"""When a store in memory takes a commit: every condition is looked at before anything changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.store.commit import (
    Change,
    ChangeGroup,
    Commit,
    DecidePatch,
    Guard,
    Move,
    NewGroup,
    NewRun,
    SendControl,
    ending,
)
from harborage.store.errors import (
    ControlLimitError,
    ControlsLeftError,
    GroupClosedError,
    LeaseLostError,
    PauseSettledError,
    RowNotFoundError,
    RunCycleError,
    RunKnownError,
    RunLimitError,
    RunOverError,
    SessionOverError,
    StatusConflictError,
)
from harborage.store.rows import GroupStatus, PauseStatus

if TYPE_CHECKING:
    from harborage.identity import Identity
    from harborage.store.memory.tables import HeldRun, Tables
    from harborage.store.rows import RunRow


def _held(tables: Tables, guard: Guard) -> HeldRun:
    lease = guard.lease
    held = tables.runs.get(lease.run_id)
    if held is None or held.row.fence != lease.fence:
        raise LeaseLostError(*lease)
    return held


def _is_again(held: HeldRun, commit: Commit) -> bool:
    """Whether this commit was applied before: the journal ends with its entries already."""
    guard, row = commit.guard, held.row
    assert guard is not None
    if row.owner == guard.lease.worker and row.position == guard.position:
        return False
    count = len(commit.entries)
    is_same = count > 0 and held.entries[guard.position :] == list(commit.entries)
    if is_same and row.position == guard.position + count:
        return True
    raise LeaseLostError(*guard.lease)


def check(tables: Tables, commit: Commit) -> bool:
    """Look at every condition of a commit; False for one that was applied before.

    Raises:
        CommitRefusedError: a condition does not hold.
        RowNotFoundError: the commit names a row that is not there.
    """
    held = None if commit.guard is None else _held(tables, commit.guard)
    if held is not None and _is_again(held, commit):
        return False
    for start in commit.starts:
        _check_start(tables, start, commit)
    for move in commit.moves:
        _check_move(tables, move)
    for group in commit.groups:
        if isinstance(group, ChangeGroup):
            _check_group(tables, group, commit)
        elif group.is_sealed and (known := tables.groups.get(group.who, group.group_id)) is not None:
            raise StatusConflictError(f"group {group.group_id}", known.status, ("new",))
    for patch in commit.patches:
        _check_patch(tables, patch)
    for settle in commit.settles:
        pause = tables.pauses.get(settle.token)
        if pause.status is not PauseStatus.OPEN:
            raise PauseSettledError(pause)
    for send in commit.sends:
        _check_send(tables, send)
    if held is not None and commit.change is not None:
        _check_change(tables, held, commit, commit.change)
    return True


def _check_move(tables: Tables, move: Move) -> None:
    row = tables.run(move.run_id).row
    if row.status not in move.expected or (row.owner and move.status is not None):
        raise StatusConflictError(f"run {move.run_id}", row.status, move.expected)
    if move.awaits:
        _check_wait(tables, row, move.awaits)


def _check_start(tables: Tables, start: NewRun, commit: Commit) -> None:
    known = tables.runs.get(start.run_id)
    if known is None and start.key and (run_id := tables.keys.get((start.who, start.key))) is not None:
        known = tables.runs[run_id]
    if known is not None:
        raise RunKnownError(known.row)
    session = tables.sessions.get(start.who)
    if not start.parent and session is not None and session.closed_at is not None:
        raise SessionOverError(session)
    parent, root = tables.of_session(start.parent, start.who), tables.of_session(start.root, start.who)
    if start.max_children and parent is not None and parent.row.children >= start.max_children:
        raise RunLimitError(f"run {start.parent}", start.max_children)
    if start.max_tree and root is not None and root.row.tree >= start.max_tree:
        raise RunLimitError(f"the tree of run {start.root}", start.max_tree)
    if start.group:
        opened = any(isinstance(one, NewGroup) and one.group_id == start.group for one in commit.groups)
        group = tables.groups.get(start.who, start.group)
        if group is None and not opened:
            raise RowNotFoundError(start.group, what="group")
        if group is not None and group.status is not GroupStatus.OPEN:
            raise GroupClosedError(start.group, group.status)


def _check_group(tables: Tables, change: ChangeGroup, commit: Commit) -> None:
    group = tables.groups.get(change.who, change.group_id)
    if group is None:
        raise RowNotFoundError(change.group_id, what="group")
    if group.status not in change.expected:
        raise StatusConflictError(f"group {change.group_id}", group.status, change.expected)
    live = group.open_members
    if change.is_empty and live and live > _ending(tables, change, commit):
        raise StatusConflictError(f"group {change.group_id}", f"busy ({live} live)", ("empty",))
    if (change.members and change.members != group.members) or (change.owner and change.owner != group.owner):
        found = f"owned by {group.owner}, with {group.members} members"
        raise StatusConflictError(f"group {change.group_id}", found, ("as expected",))


def _ending(tables: Tables, change: ChangeGroup, commit: Commit) -> int:
    """How many members of the group the commit itself ends."""
    ended = (tables.run(run_id).row for run_id in ending(commit))
    return sum(row.who == change.who and row.group == change.group_id and not row.status.is_final for row in ended)


def _check_patch(tables: Tables, patch: DecidePatch) -> None:
    known = tables.patches.get((patch.who, patch.patch_id))
    if not patch.decision:
        return
    if known is None:
        raise RowNotFoundError(patch.patch_id, what="patch")
    if known.decision:
        raise StatusConflictError(f"patch {patch.patch_id}", known.decision, ("pending",))


def _check_send(tables: Tables, send: SendControl) -> None:
    held = tables.run(send.run_id)
    if held.row.status.is_final:
        raise RunOverError(send.run_id, held.row.status)
    if send.limit and held.row.unread >= send.limit and send.event_id not in held.event_ids:
        raise ControlLimitError(send.run_id, send.limit)
    if send.answers:
        tables.pauses.check_answer(send.answers, send.event_id)


def _check_change(tables: Tables, held: HeldRun, commit: Commit, change: Change) -> None:
    if change.status is not None and change.status.is_final:
        left = [held.controls[number] for number in sorted(held.controls.keys() - set(commit.consumed))]
        if left:
            raise ControlsLeftError(held.row.run_id, left)
    if change.awaits:
        _check_wait(tables, held.row, change.awaits)


def _check_wait(tables: Tables, row: RunRow, target: str) -> None:
    """Refuse a wait that leads back to the run: from run to what it awaits, from group to its members.

    A group is looked for in the session of the run that awaits it. What has ended leads nowhere.
    """
    seen: set[tuple[str, Identity]] = set()
    todo = [(target, row.who)]
    while todo:
        name, who = one = todo.pop()
        if name == row.run_id:
            raise RunCycleError(row.run_id, target)
        if one in seen:
            continue
        seen.add(one)
        run, group = tables.runs.get(name), tables.groups.get(who, name)
        if run is not None and run.row.awaits:
            todo.append((run.row.awaits, run.row.who))
        if group is not None and not group.status.is_final:
            members = tables.groups.members(who, name)
            todo += ((run_id, who) for run_id in members if not tables.runs[run_id].row.status.is_final)
