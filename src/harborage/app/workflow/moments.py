"""The moments between the operations of a workflow: the time, the numbers and the messages that its code sees there."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from random import Random


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
