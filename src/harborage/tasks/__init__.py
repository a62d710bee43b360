"""Tasks: units of work that are spawned, tracked, grouped, cancelled by tree, and awaited by event.

A task is a record, not a coroutine: the registry says what is to be done and how it went, a host does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.exports import lazy_exports

if TYPE_CHECKING:
    from harborage.tasks.ends import GroupWatch as GroupWatch
    from harborage.tasks.ends import RetainTurnWaiter as RetainTurnWaiter
    from harborage.tasks.errors import AcknowledgePublishError as AcknowledgePublishError
    from harborage.tasks.errors import GroupInvalidTransitionError as GroupInvalidTransitionError
    from harborage.tasks.errors import GroupNotFoundError as GroupNotFoundError
    from harborage.tasks.errors import GroupNotSealedError as GroupNotSealedError
    from harborage.tasks.errors import GroupSealedError as GroupSealedError
    from harborage.tasks.errors import IdempotencyConflictError as IdempotencyConflictError
    from harborage.tasks.errors import InvalidRequestError as InvalidRequestError
    from harborage.tasks.errors import InvalidTransitionError as InvalidTransitionError
    from harborage.tasks.errors import PatchNotFoundError as PatchNotFoundError
    from harborage.tasks.errors import RegistryClosedError as RegistryClosedError
    from harborage.tasks.errors import StaleChangeError as StaleChangeError
    from harborage.tasks.errors import TaskCorruptError as TaskCorruptError
    from harborage.tasks.errors import TaskError as TaskError
    from harborage.tasks.errors import TaskLimitError as TaskLimitError
    from harborage.tasks.errors import TaskNotFoundError as TaskNotFoundError
    from harborage.tasks.errors import WaitCycleError as WaitCycleError
    from harborage.tasks.listing import IdentityMatch as IdentityMatch
    from harborage.tasks.listing import StatusStrip as StatusStrip
    from harborage.tasks.listing import TaskCost as TaskCost
    from harborage.tasks.listing import TaskDetail as TaskDetail
    from harborage.tasks.listing import TaskListFilter as TaskListFilter
    from harborage.tasks.listing import TaskListing as TaskListing
    from harborage.tasks.listing import TaskListRequest as TaskListRequest
    from harborage.tasks.listing import TaskPage as TaskPage
    from harborage.tasks.listing import TaskReader as TaskReader
    from harborage.tasks.listing import TaskRow as TaskRow
    from harborage.tasks.listing import list_page as list_page
    from harborage.tasks.model import GroupAction as GroupAction
    from harborage.tasks.model import GroupCompletion as GroupCompletion
    from harborage.tasks.model import GroupRequest as GroupRequest
    from harborage.tasks.model import GroupStatus as GroupStatus
    from harborage.tasks.model import MemberOutcome as MemberOutcome
    from harborage.tasks.model import PatchAction as PatchAction
    from harborage.tasks.model import PatchStatus as PatchStatus
    from harborage.tasks.model import Propagate as Propagate
    from harborage.tasks.model import SpawnRequest as SpawnRequest
    from harborage.tasks.model import SpawnToolRequest as SpawnToolRequest
    from harborage.tasks.model import Task as Task
    from harborage.tasks.model import TaskFailure as TaskFailure
    from harborage.tasks.model import TaskFilter as TaskFilter
    from harborage.tasks.model import TaskGroup as TaskGroup
    from harborage.tasks.model import TaskGroupID as TaskGroupID
    from harborage.tasks.model import TaskHandle as TaskHandle
    from harborage.tasks.model import TaskID as TaskID
    from harborage.tasks.model import TaskKind as TaskKind
    from harborage.tasks.model import TaskPatch as TaskPatch
    from harborage.tasks.model import TaskStatus as TaskStatus
    from harborage.tasks.model import TaskSummary as TaskSummary
    from harborage.tasks.port import TaskRegistry as TaskRegistry
    from harborage.tasks.registry import InProcessTaskRegistry as InProcessTaskRegistry
    from harborage.tasks.requests import DEFAULT_MAX_CHILDREN as DEFAULT_MAX_CHILDREN
    from harborage.tasks.requests import DEFAULT_MAX_TREE as DEFAULT_MAX_TREE
    from harborage.tasks.requests import TaskLimits as TaskLimits
    from harborage.tasks.rules import pending_order as pending_order
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "harborage.tasks.ends": "GroupWatch RetainTurnWaiter",
            "harborage.tasks.errors": (
                "AcknowledgePublishError GroupInvalidTransitionError GroupNotFoundError GroupNotSealedError "
                "GroupSealedError IdempotencyConflictError InvalidRequestError InvalidTransitionError "
                "PatchNotFoundError RegistryClosedError StaleChangeError TaskCorruptError TaskError TaskLimitError "
                "TaskNotFoundError WaitCycleError"
            ),
            "harborage.tasks.listing": (
                "IdentityMatch StatusStrip TaskCost TaskDetail TaskListFilter TaskListRequest TaskListing TaskPage "
                "TaskReader TaskRow list_page"
            ),
            "harborage.tasks.model": (
                "GroupAction GroupCompletion GroupRequest GroupStatus MemberOutcome PatchAction PatchStatus "
                "Propagate SpawnRequest SpawnToolRequest Task TaskFailure TaskFilter TaskGroup TaskGroupID "
                "TaskHandle TaskID TaskKind TaskPatch TaskStatus TaskSummary"
            ),
            "harborage.tasks.port": "TaskRegistry",
            "harborage.tasks.registry": "InProcessTaskRegistry",
            "harborage.tasks.requests": "DEFAULT_MAX_CHILDREN DEFAULT_MAX_TREE TaskLimits",
            "harborage.tasks.rules": "pending_order",
        },
    )
