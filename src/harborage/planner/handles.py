"""Live objects that tools need and that cannot be written down, each under a name.

A trajectory carries the names; the objects stay in the process that made them. This file must not persist anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from harborage.planner.errors import ToolContextLostError

if TYPE_CHECKING:
    from harborage.planner.trajectory import HandleID

__all__ = ["HandleRegistry", "ProcessLocalHandleRegistry"]


@runtime_checkable
class HandleRegistry(Protocol):
    """Keeps live objects by name. Safe for concurrent callers."""

    def set(self, handle: HandleID, value: Any) -> None:
        """Keep `value` under `handle`; what was there is replaced."""
        ...

    def get(self, handle: HandleID) -> Any:
        """The object under `handle`, the very one that was set.

        Raises:
            ToolContextLostError: nothing is kept under that name. Never: returns None for a miss.
        """
        ...

    def delete(self, handle: HandleID) -> None:
        """Forget `handle`; a name that is not there is no error."""
        ...


class ProcessLocalHandleRegistry:
    """Handles in the memory of this process; they are gone when it ends."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        # Each method is one dictionary operation, which Python makes atomic: no lock is needed, also across threads.
        self._values: dict[HandleID, Any] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, handle: object) -> bool:
        return handle in self._values

    def set(self, handle: HandleID, value: Any) -> None:
        """Keep `value` under `handle`; what was there is replaced."""
        self._values[handle] = value

    def get(self, handle: HandleID) -> Any:
        """The object under `handle`, the very one that was set.

        Raises:
            ToolContextLostError: nothing is kept under that name.
        """
        try:
            return self._values[handle]
        except KeyError:
            raise ToolContextLostError(handle) from None

    def delete(self, handle: HandleID) -> None:
        """Forget `handle`; a name that is not there is no error."""
        self._values.pop(handle, None)
