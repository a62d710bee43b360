"""What a store of record refuses.

StoreError
├── CommitRefusedError                a condition of a commit does not hold; nothing was written
│   ├── LeaseLostError                another worker holds the run, or none does
│   ├── RunKnownError                 a run with that id, or that idempotency key, is there already
│   ├── RunOverError                  the run has ended
│   ├── StatusConflictError           the run, group or patch is not where the commit expects it
│   ├── ControlsLeftError             the run may not end before it has answered these controls
│   ├── ControlLimitError             the run has as many unread controls as it may
│   ├── PauseSettledError             the pause was settled before
│   ├── PauseAnsweredError            another answer to the pause is on its way
│   ├── GroupClosedError              the group takes no more members
│   ├── RunLimitError                 the parent, or the tree, has as many runs as it may
│   ├── SessionOverError              the session was closed, so no run starts in it
│   └── RunCycleError                 what the run would wait for waits for the run
├── RowNotFoundError                  no such run, group, pause or patch
├── CommitInvalidError                a commit that no driver accepts: a mistake of the caller
├── WorkerKnownError                  another process works under this name
└── EntryDamagedError                 an entry or a body is not there, or is not what was kept
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harborage.errors import HarborageError, NotFoundError

if TYPE_CHECKING:
    from harborage.store.rows import ControlRow, PauseRow, RunRow, SessionRow


class StoreError(HarborageError):
    """The store of record could not do what was asked; nothing was changed."""


class CommitRefusedError(StoreError):
    """A condition of the commit does not hold; nothing of it was written."""


class LeaseLostError(CommitRefusedError):
    """Another worker holds the run now, or none does; what this one wanted to write was not written."""

    def __init__(self, run_id: str = "", worker: str = "", fence: int = 0) -> None:
        self.run_id = run_id
        self.worker = worker
        self.fence = fence
        super().__init__(f"run {run_id}: worker {worker} no longer holds it (fence {fence})" if run_id else "")


class RunKnownError(CommitRefusedError):
    """There is a run with this id, or with this idempotency key in the session; `row` is that run."""

    def __init__(self, row: RunRow) -> None:
        self.row = row
        super().__init__(f"run {row.run_id} is there already; read it, or start one under another id and key")


class RunOverError(CommitRefusedError):
    """The run has ended, so it takes nothing more; start another to go on."""

    def __init__(self, run_id: str = "", status: str = "") -> None:
        self.run_id = run_id
        self.status = status
        super().__init__(f"run {run_id} has ended ({status}); start another to go on" if run_id else "")


class StatusConflictError(CommitRefusedError):
    """What the commit would change is not where the commit expects it: `found` is where it is."""

    def __init__(self, what: str = "", found: str = "", expected: Sequence[str] = ()) -> None:
        self.what = what
        self.found = found
        self.expected = tuple(expected)
        super().__init__(f"{what} is {found}, not {' or '.join(self.expected)}; read it again" if what else "")


class ControlsLeftError(CommitRefusedError):
    """The run has controls that it has not consumed, and may not end before it has answered them."""

    def __init__(self, run_id: str = "", controls: Sequence[ControlRow] = ()) -> None:
        self.run_id = run_id
        self.controls = tuple(controls)
        super().__init__(f"run {run_id}: {len(self.controls)} control(s) came before its end" if run_id else "")


class ControlLimitError(CommitRefusedError):
    """The run has as many unread controls as it may; send again once it has read some."""

    def __init__(self, run_id: str = "", limit: int = 0) -> None:
        self.run_id = run_id
        self.limit = limit
        super().__init__(
            f"run {run_id} has {limit} unread controls, which is the limit; send again once it has read some"
            if run_id
            else ""
        )


class PauseSettledError(CommitRefusedError):
    """The pause was settled before; `row` says how, by whom and when."""

    def __init__(self, row: PauseRow) -> None:
        self.row = row
        super().__init__(f"pause {row.token} was {row.status} already by {row.settled_by or 'another caller'}")


class PauseAnsweredError(CommitRefusedError):
    """Another answer to the pause is on its way; `row` is the pause."""

    def __init__(self, row: PauseRow) -> None:
        self.row = row
        super().__init__(f"pause {row.token} has an answer on its way")


class GroupClosedError(CommitRefusedError):
    """The group takes no more members."""

    def __init__(self, group_id: str = "", status: str = "") -> None:
        self.group_id = group_id
        self.status = status
        super().__init__(
            f"group {group_id} is {status} and takes no more members; open another one" if group_id else ""
        )


class RunLimitError(CommitRefusedError):
    """A parent, or a tree, has as many runs as it may."""

    def __init__(self, what: str = "", limit: int = 0) -> None:
        self.what = what
        self.limit = limit
        super().__init__(
            f"{what} has {limit} runs, which is the limit; wait until one ends, or raise it" if what else ""
        )


class SessionOverError(CommitRefusedError):
    """The session was closed, so no run starts in it; `row` is that session. Runs that go on in it may start others."""

    def __init__(self, row: SessionRow) -> None:
        self.row = row
        super().__init__(f"session {row.who.session_id!r} was closed; start in another one")


class RunCycleError(CommitRefusedError):
    """What the run would wait for waits for the run, directly or through others."""

    def __init__(self, run_id: str = "", awaits: str = "") -> None:
        self.run_id = run_id
        self.awaits = awaits
        super().__init__(f"run {run_id} cannot wait for {awaits}, which waits for it" if run_id else "")


class RowNotFoundError(StoreError, NotFoundError):
    """No such row; a row of another owner looks exactly the same. `what` is run, group, pause or patch."""

    what = "row"


class CommitInvalidError(StoreError):
    """A commit that no store accepts; its message names the part that is wrong."""


class WorkerKnownError(StoreError):
    """Another process is a worker under this name; choose another one."""


class EntryDamagedError(StoreError):
    """An entry of a run's journal, or a body that it names, is not there, or is not what was kept.

    `entry` is its place in the journal, counted from 0; None for a body that was asked for by its digest.
    """

    def __init__(self, run_id: str = "", entry: int | None = None, digest: str = "") -> None:
        self.run_id = run_id
        self.entry = entry
        self.digest = digest
        what = f"entry {entry}: it" if not digest else f"body {digest}: it"
        if digest and entry is not None:
            what = f"entry {entry}: its body {digest}"
        super().__init__(f"run {run_id}, {what} is not there, or not what was kept" if run_id else "")
