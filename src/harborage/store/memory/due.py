"""Which run in memory is due next: a heap for each agent, so that a look costs the same however many wait.

What no longer holds stays in its heap until it comes to the top, or until most of the heaps is such.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

_FEW: Final = 64


class _Entry(NamedTuple):
    at: int
    turn: int
    run_id: str


class Due:
    """The runs that wait for a time."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._heaps: dict[str, list[_Entry]] = {}
        self._turns = 0
        self._size = 0

    def put(self, run_id: str, agent: str, at: int) -> None:
        """Let a run of this agent wait until then, and for no other time."""
        known = self._entries.get(run_id)
        if known is not None and known.at == at:
            return
        self._turns += 1
        entry = self._entries[run_id] = _Entry(at, self._turns, run_id)
        heappush(self._heaps.setdefault(agent, []), entry)
        self._size += 1
        if self._size > 2 * len(self._entries) + _FEW:
            self._clean_up()

    def drop(self, run_id: str) -> None:
        """Let a run wait no longer."""
        self._entries.pop(run_id, None)

    def first(self, agents: Sequence[str]) -> int | None:
        """When the next run of these agents, or of none, is due; without a name the next of all. None: none waits."""
        tops = [heap[0].at for heap in self._of(agents)]
        return min(tops, default=None)

    def fallen(self, now: int, agents: Sequence[str]) -> list[str]:
        """The runs of these agents, or of none, that are due then; without a name all of them. They wait no longer."""
        found: list[str] = []
        while due := [heap for heap in self._of(agents) if heap[0].at <= now]:
            for heap in due:
                found.append(self._pop(heap).run_id)
                self.drop(found[-1])
        return found

    def _of(self, agents: Sequence[str]) -> list[list[_Entry]]:
        """The heaps of these agents, and of none, with what holds at their top; without a name all of them."""
        names = ("", *agents) if agents else (*self._heaps,)
        for name in names:
            heap = self._heaps.get(name, [])
            while heap and self._entries.get(heap[0].run_id) is not heap[0]:
                self._pop(heap)
            if not heap:
                self._heaps.pop(name, None)
        return [self._heaps[name] for name in names if name in self._heaps]

    def _pop(self, heap: list[_Entry]) -> _Entry:
        self._size -= 1
        return heappop(heap)

    def _clean_up(self) -> None:
        for agent, heap in self._heaps.items():
            # What is left of a sorted list is sorted, and so a heap.
            self._heaps[agent] = sorted(one for one in heap if self._entries.get(one.run_id) is one)
        self._size = len(self._entries)
