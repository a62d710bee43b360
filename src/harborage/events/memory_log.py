"""Events kept in memory: for tests, and for processes whose events may end with them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

import msgspec

from harborage.events.errors import LogClosedError, SequenceTakenError
from harborage.events.log import Logged
from harborage.identity import Identity, require_triple

__all__ = ["MemoryEventLog"]

_SEQUENCE = attrgetter("sequence")


class _Line(msgspec.Struct):
    """The events of one session: in order, and by number."""

    ordered: list[Logged] = []
    numbered: dict[int, bytes] = {}


class MemoryEventLog:
    """An event log for one event loop; nothing outlives the process."""

    def __init__(self) -> None:
        self._lines: dict[Identity, _Line] = {}
        self._is_closed = False

    async def append(self, events: Sequence[Logged]) -> None:
        self._check_open()
        new: dict[tuple[Identity, int], bytes] = {}
        for who, sequence, data in events:
            require_triple(who, "event_log.append")
            line = self._lines.get(who)
            kept = new.get((who, sequence), None if line is None else line.numbered.get(sequence))
            if kept is None:
                new[who, sequence] = bytes(data)
            elif kept != data:
                raise SequenceTakenError(who.session_id, sequence)
        for (who, sequence), data in new.items():
            self._keep(Logged(who, sequence, data))

    async def last(self, who: Identity) -> int:
        line = self._line("event_log.last", who)
        return line.ordered[-1].sequence if line is not None and line.ordered else 0

    async def read(self, who: Identity, *, after: int = 0, limit: int = 1000) -> list[Logged]:
        line = self._line("event_log.read", who)
        if line is None:
            return []
        first = bisect_right(line.ordered, after, key=_SEQUENCE)
        return line.ordered[first : first + limit]

    async def forget(self, who: Identity) -> None:
        self._line("event_log.forget", who)
        self._lines.pop(who, None)

    async def aclose(self) -> None:
        self._is_closed = True
        self._lines.clear()

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosedError()

    def _line(self, what: str, who: Identity) -> _Line | None:
        self._check_open()
        require_triple(who, what)
        return self._lines.get(who)

    def _keep(self, event: Logged) -> None:
        line = self._lines.setdefault(event.who, _Line())
        line.numbered[event.sequence] = event.data
        if not line.ordered or line.ordered[-1].sequence < event.sequence:
            line.ordered.append(event)
            return
        line.ordered.insert(bisect_right(line.ordered, event.sequence, key=_SEQUENCE), event)
