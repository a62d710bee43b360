"""The moments between the operations of a workflow: the time, the numbers and the messages that its code sees there."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine, Generator
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from harborage.app.workflow.errors import WorkflowInvalidError


class Moment:
    """What the code between two operations sees of its surroundings: recorded, or new and yet to be recorded."""

    def __init__(
        self, at: datetime, seed: str, changes: frozenset[str] | None, taken: dict[str, bool], messages: deque[str]
    ) -> None:
        self.at = at
        self._messages = messages
        self._seed = seed
        self._changes = changes
        self._taken = taken
        self._random: Random | None = None
        self.marks: list[str] = []

    @property
    def random(self) -> Random:
        """The numbers of this moment."""
        if self._random is None:
            self._random = Random(self._seed)
        return self._random

    @property
    def used_seed(self) -> str:
        """The seed, if numbers were drawn; it is recorded then."""
        return "" if self._random is None else self._seed

    def next_message(self) -> str | None:
        """The next message that the user has sent by now and that was not received; None when there is none."""
        return self._messages.popleft() if self._messages else None

    def takes(self, change: str) -> bool:
        """Whether the run takes a change of the code."""
        if change not in self._taken:
            self._taken[change] = self._changes is None or change in self._changes
        if self._taken[change] and self._changes is None:
            self.marks.append(change)
        return self._taken[change]


T = TypeVar("T")


class Spawning(Coroutine[Any, Any, T]):
    """The start of a child, to be awaited; who takes it for the child itself is told so."""

    def __init__(self, code: Coroutine[Any, Any, T], agent: str) -> None:
        self._code = code
        self._agent = agent

    def __await__(self) -> Generator[Any, Any, T]:
        return self._code.__await__()

    def send(self, value: Any, /) -> Any:
        return self._code.send(value)

    def throw(self, *error: Any) -> Any:
        return self._code.throw(*error)

    def close(self) -> None:
        self._code.close()

    if not TYPE_CHECKING:  # checkers refuse such names by themselves

        def __getattr__(self, name: str) -> Any:
            if name not in {"result", "run_id"}:
                raise AttributeError(f"ctx.spawn gives what is to be awaited; it has no {name!r}")
            self._code.close()
            raise WorkflowInvalidError(
                f"ctx.spawn({self._agent}, …) is not awaited; write: child = await ctx.spawn({self._agent}, …)"
            )
