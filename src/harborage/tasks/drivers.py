"""What a configuration may say about tasks, which registries it can name, and how a name becomes an open one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from harborage.clock import SYSTEM_CLOCK, Clock
from harborage.drivers import DriverTable
from harborage.events import EventBus, Redactor
from harborage.state import StateStore
from harborage.tasks.errors import InvalidRequestError
from harborage.tasks.limits import TaskLimits
from harborage.tasks.port import TaskRegistry

__all__ = ["TASK_DRIVERS", "RegistryParts", "TaskFactory", "TasksConfig", "open_tasks"]


class TasksConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Which registry to open, how long a turn is held for its group, and how often a session may wake itself.

    The host reads the two limits; the registry needs neither.

    Raises:
        InvalidRequestError: a limit is not positive; `field` names it.
    """

    driver: str = "inprocess"
    retain_turn_timeout_s: float = 300.0
    continuation_hop_limit: int = 8

    def __post_init__(self) -> None:
        for field in ("retain_turn_timeout_s", "continuation_hop_limit"):
            if not getattr(self, field) > 0:
                raise InvalidRequestError(f"tasks.{field}", "must be greater than 0")


class RegistryParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a registry is built on; the parts stay their owner's to close."""

    bus: EventBus
    redactor: Redactor | None = None
    store: StateStore | None = None
    clock: Clock = SYSTEM_CLOCK
    limits: TaskLimits = TaskLimits()


TaskFactory: TypeAlias = Callable[[RegistryParts], Awaitable[TaskRegistry]]

TASK_DRIVERS: DriverTable[TaskFactory] = DriverTable("tasks", {"inprocess": "harborage.tasks.registry:make"})


async def open_tasks(
    config: TasksConfig, parts: RegistryParts, *, drivers: DriverTable[TaskFactory] = TASK_DRIVERS
) -> TaskRegistry:
    """The registry that `config` asks for, ready for use; a blank driver name means `inprocess`.

    Raises:
        DriverUnknownError: no such driver; the text lists those there are.
    """
    return await drivers.factory(config.driver or "inprocess")(parts)
