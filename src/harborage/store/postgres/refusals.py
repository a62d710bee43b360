"""Why the server did not take a commit, as the error that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.store.commit import ChangeGroup, Commit
from harborage.store.errors import (
    ControlLimitError,
    ControlsLeftError,
    GroupClosedError,
    LeaseLostError,
    PauseAnsweredError,
    PauseSettledError,
    RowNotFoundError,
    RunCycleError,
    RunKnownError,
    RunLimitError,
    RunOverError,
    SessionOverError,
    StatusConflictError,
    StoreError,
)
from harborage.store.rows import Status

if TYPE_CHECKING:
    from harborage.store.postgres.documents import Answer
    from harborage.store.postgres.reading import Reading

_STATUSES = tuple(Status)


async def refusal(commit: Commit, answer: Answer, reading: Reading) -> StoreError:
    """The error for a commit that was refused; the rows that it names are read."""
    at, found = answer.at, answer.found
    match answer.refused:
        case "known":
            return RunKnownError(await reading.run(found))
        case "session":
            row = await reading.session(commit.starts[at].who)
            assert row is not None, "a session that was closed is never deleted"
            return SessionOverError(row)
        case "settled":
            return PauseSettledError(await reading.pause(found))
        case "answered":
            return PauseAnsweredError(await reading.pause(found))
        case "left":
            run_id = _run_of(commit)
            left = await reading.controls(run_id, 0, None)
            return ControlsLeftError(run_id, [one for one in left if one.number not in commit.consumed])
        case "over":
            return RunOverError(commit.sends[at].run_id, _STATUSES[int(found)])
        case "full":
            return ControlLimitError(commit.sends[at].run_id, commit.sends[at].limit)
        case "children":
            return RunLimitError(f"run {commit.starts[at].parent}", commit.starts[at].max_children)
        case "tree":
            return RunLimitError(f"the tree of run {commit.starts[at].root}", commit.starts[at].max_tree)
        case "closed":
            return GroupClosedError(commit.starts[at].group, found)
        case "move":
            move = commit.moves[at]
            return StatusConflictError(f"run {move.run_id}", _STATUSES[int(found)], move.expected)
        case "group":
            group = commit.groups[at]
            expected = group.expected if isinstance(group, ChangeGroup) else ("new",)
            return StatusConflictError(f"group {group.group_id}", found, expected)
        case "group_busy":
            return StatusConflictError(f"group {commit.groups[at].group_id}", f"busy ({found} live)", ("empty",))
        case "group_other":
            return StatusConflictError(f"group {commit.groups[at].group_id}", found, ("as expected",))
        case "patch":
            return StatusConflictError(f"patch {commit.patches[at].patch_id}", found, ("pending",))
        case "no_run":
            return RowNotFoundError(found, what="run")
        case "no_pause":
            return RowNotFoundError(found, what="pause")
        case "no_group":
            return RowNotFoundError(found, what="group")
        case "no_patch":
            return RowNotFoundError(found, what="patch")
        case "cycle":
            waits = [part.awaits for part in (commit.change, *commit.moves) if part is not None and part.awaits]
            return RunCycleError(found, waits[0])
        case _:
            assert answer.refused == "lease", answer
            assert commit.guard is not None
            return LeaseLostError(*commit.guard.lease)


def _run_of(commit: Commit) -> str:
    assert commit.guard is not None
    return commit.guard.lease.run_id
