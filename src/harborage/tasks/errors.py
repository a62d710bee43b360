"""What can go wrong with tasks, groups and patches. `identity.IdentityRequiredError` is raised here too.

TaskError
├── RegistryClosedError          the registry was closed
├── InvalidRequestError          a request is malformed
├── TaskNotFoundError            no such task here
├── InvalidTransitionError       the task cannot go there from where it is
├── IdempotencyConflictError     the key was used for another request
├── TaskLimitError               the tree or its parent has as many tasks as it may
├── WaitCycleError               the task that is to be awaited waits for the caller
├── GroupNotFoundError           no such group here
├── GroupSealedError             the group takes no more members
├── GroupNotSealedError          the group must be sealed first
├── GroupInvalidTransitionError  the group or patch cannot go there from where it is
├── PatchNotFoundError           no such patch here
├── StaleChangeError             another process changed it first
├── TaskCorruptError             what is kept of it cannot be read
└── AcknowledgePublishError      acknowledged, but not every event went out
"""

from __future__ import annotations

from collections.abc import Sequence

from harborage.errors import HarborageError, NotFoundError


class TaskError(HarborageError):
    """A task operation failed."""


class RegistryClosedError(TaskError):
    """The task registry is closed; open a new one."""


class InvalidRequestError(TaskError):
    """A task request is malformed. `field` is the part to correct."""

    def __init__(self, field: str = "", reason: str = "") -> None:
        self.field = field
        super().__init__(f"{field}: {reason}" if field else reason)


class TaskNotFoundError(TaskError, NotFoundError):
    """No task of this session has this id. Tasks of other identities are not found either."""

    what = "task"
    fix = "use an id that `spawn` or `list` gave in this session"


class InvalidTransitionError(TaskError):
    """A task cannot go to this status from the one it is in. `prior` and `target` are the two statuses."""

    def __init__(self, prior: str = "", target: str = "", task_id: str = "", why: str = "") -> None:
        self.prior = prior
        self.target = target
        self.task_id = task_id
        named = f"task {task_id!r}: " if task_id else ""
        super().__init__(f"{named}cannot go from {prior} to {target}{f': {why}' if why else ''}")


class IdempotencyConflictError(TaskError):
    """An idempotency key was used again for a different request; use a new key or repeat the request unchanged."""

    def __init__(self, key: str = "", task_id: str = "") -> None:
        self.key = key
        self.task_id = task_id
        super().__init__(
            f"idempotency key {key!r} belongs to task {task_id!r}, made by a different request; use a new key"
        )


class GroupNotFoundError(TaskError, NotFoundError):
    """No group of this session has this id. Groups of other identities are not found either."""

    what = "task group"
    fix = "use the id of a group that was opened in this session"


class GroupSealedError(TaskError):
    """The group takes no more members. `status` is its status."""

    def __init__(self, group_id: str = "", status: str = "") -> None:
        self.group_id = group_id
        self.status = status
        super().__init__(f"task group {group_id!r} is {status}: only an open group takes members; open another one")


class GroupNotSealedError(TaskError):
    """The group is still open; seal it before resolving it."""

    def __init__(self, group_id: str = "") -> None:
        self.group_id = group_id
        super().__init__(f"task group {group_id!r} is open: seal it first")


class GroupInvalidTransitionError(TaskError):
    """A group or a patch cannot change from its status to that one. `subject` is its id, `status` its status."""

    def __init__(self, subject: str = "", status: str = "", wanted: str = "") -> None:
        self.subject = subject
        self.status = status
        self.wanted = wanted
        super().__init__(f"{subject!r} is {status}: {wanted} is not possible; read it again to see what is")


class TaskLimitError(TaskError):
    """A task may not be spawned: there are as many as the limits allow. `limit` names the limit, `most` its value."""

    def __init__(self, limit: str = "", most: int = 0, where: str = "") -> None:
        self.limit = limit
        self.most = most
        super().__init__(
            f"no task was spawned: {where} has as many as {limit} allows ({most}); "
            "do the work in this run, or raise the limit"
        )


class WaitCycleError(TaskError):
    """A wait was refused because it would never end. `path` is the circle: each id waits for the next one."""

    def __init__(self, path: Sequence[str] = ()) -> None:
        self.path = tuple(path)
        super().__init__(
            f"this wait would never end, because it would be a circle: {' waits for '.join(self.path)}; "
            "finish, or go on without it"
        )


class PatchNotFoundError(TaskError, NotFoundError):
    """No patch of this session has this id. Patches of other identities are not found either."""

    what = "patch"
    fix = "use the id of a patch that a task of this session proposed"


class StaleChangeError(TaskError):
    """Other processes changed it first, again and again; nothing was changed. `subject` is its id."""

    def __init__(self, subject: str = "") -> None:
        self.subject = subject
        super().__init__(f"{subject!r} was changed by another process meanwhile; nothing was changed, try again")


class TaskCorruptError(TaskError):
    """What the store keeps cannot be read; it was changed from outside. `kind` and `subject` say which record."""

    def __init__(self, kind: str = "", subject: str = "", why: str = "") -> None:
        self.kind = kind
        self.subject = subject
        super().__init__(f"the {kind} record of {subject!r} cannot be read: {why}; bring back a copy of the database")


class AcknowledgePublishError(TaskError):
    """Tasks were acknowledged, but some events could not be published. `count` of them are acknowledged; `errors` says
    why."""

    def __init__(self, count: int = 0, errors: Sequence[Exception] = ()) -> None:
        self.count = count
        self.errors = tuple(errors)
        joined = "; ".join(str(error) for error in self.errors)
        super().__init__(f"{count} task(s) acknowledged, {len(self.errors)} event(s) not published: {joined}")
