"""How a planner learns that background work has ended, when its turn did not wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from harborage.callables import require_sync
from harborage.planner.enums import WakeMode
from harborage.planner.errors import InvalidConfigError

if TYPE_CHECKING:
    from harborage.tasks import TaskRegistry

__all__ = ["RegistryAware", "WakeAware", "resolve_wake_mode"]


@runtime_checkable
class RegistryAware(Protocol):
    """What a planner has that looks at task groups itself, in the registry of the runtime that it decides for."""

    def attach_registry(self, registry: TaskRegistry | None) -> None:
        """Use this registry; the runtime calls it when it opens, and with None when it closes."""
        ...


@runtime_checkable
class WakeAware(Protocol):
    """What a planner has that chose how it is woken. Never: gives another answer later in its life."""

    def wake_mode(self) -> WakeMode:
        """How this planner learns that a group of tasks has ended."""
        ...


def resolve_wake_mode(planner: object) -> WakeMode:
    """The planner's own wake mode when it declares one, as a method or as a plain attribute, else `push`.

    Raises:
        InvalidConfigError: it declares something else.
    """
    declared = getattr(planner, "wake_mode", None)
    if declared is None:
        return WakeMode.PUSH
    mode = declared
    if callable(declared):
        require_sync(declared, f"{type(planner).__name__}.wake_mode")
        mode = declared()
    if mode not in WakeMode:
        raise InvalidConfigError(f"{type(planner).__name__}.wake_mode is {mode!r}; use one of {', '.join(WakeMode)}")
    return WakeMode(mode)
