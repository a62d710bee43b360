"""How a planner learns that background work has ended, when its turn did not wait for it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from harborage.planner.enums import WakeMode

__all__ = ["WakeAware", "resolve_wake_mode"]


@runtime_checkable
class WakeAware(Protocol):
    """What a planner has that chose how it is woken. Never: gives another answer later in its life."""

    def wake_mode(self) -> WakeMode:
        """How this planner learns that a group of tasks has ended."""
        ...


def resolve_wake_mode(planner: object) -> WakeMode:
    """The planner's own wake mode when it declares one, else `push`."""
    return planner.wake_mode() if isinstance(planner, WakeAware) else WakeMode.PUSH
