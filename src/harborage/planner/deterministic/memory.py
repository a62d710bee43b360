"""What a shared step remembers about each of the runs that visit it, for as long as that run lasts.

The key is the whole identity of the run. Nothing of a run stays once it has ended: the planner forgets it with its
finish, and the task registry tells of runs that ended in any other way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from harborage.identity import Quadruple
    from harborage.tasks import Task, TaskRegistry

__all__ = ["RunMemory"]

S = TypeVar("S")


class RunMemory(Generic[S]):
    """One value a run, made by `new` at its first visit.

    While it holds any it listens to `registry`, and forgets a run whose own task has ended. A run that has no task
    there, and ends without a finish, stays until somebody calls `forget`.
    """

    __slots__ = ("_new", "_registry", "_runs", "_unlisten")

    def __init__(self, registry: TaskRegistry, new: Callable[[], S]) -> None:
        self._registry = registry
        self._new = new
        self._runs: dict[Quadruple, S] = {}
        self._unlisten: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._runs)

    def of(self, who: Quadruple) -> S:
        """What is remembered of this run.

        Raises:
            RegistryClosedError: it is the first run, and the registry is closed.
        """
        found = self._runs.get(who)
        if found is None:
            if self._unlisten is None:
                self._unlisten = self._registry.on_ended(self._on_ended)
            found = self._runs[who] = self._new()
        return found

    def forget(self, who: Quadruple) -> None:
        """Remember nothing of this run any more; one that is not known changes nothing."""
        if self._runs.pop(who, None) is None or self._runs:
            return
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None

    def _on_ended(self, task: Task) -> None:
        self.forget(task.identity.identity.with_run(task.id))
