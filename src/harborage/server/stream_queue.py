"""What waits to be sent on one stream, in order and with its numbers; bounded, however slow the reader is.

Stored events carry their numbers. Deltas, which no log has, are numbered here: the last stored number that has passed,
plus 1, 2, …, so numbers grow strictly. Stored events that find no room are dropped and read again from the log; deltas
that find none are joined, and in the end given up with a notice. Pure but for the clock that is passed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from io import StringIO
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from harborage.events import BusDroppedPayload, Event, EventType, LLMCompletionChunkPayload
from harborage.identity import Quadruple
from harborage.store import EVENT_STEP

if TYPE_CHECKING:
    from harborage.server.event_log import Logged, Page, Wanted

MAX_STORED: Final = 512
"""How many stored events wait; more are read from the log."""

MANY: Final = 64
"""From so many waiting deltas on the reader counts as slow, and they are joined."""

MAX_DELTAS: Final = 1_024
MAX_TEXT: Final = 1024 * 1024
"""How many deltas, and how many characters of text in them, wait at most."""

FREE_NUMBERS: Final = EVENT_STEP // 2 - 1
"""So many deltas between two stored events are sent as they come; from then on they are joined."""

JOINED_EVERY_S: Final = 0.05

_LAST: Final = EVENT_STEP - 1
_RESERVE: Final = 255  # numbers that are kept for what waits when the next stored event comes
_BATCH: Final = 64


class _Stored(msgspec.Struct, gc=False):
    number: int
    event: Event | None
    first: int = 0
    lost: int = 0


class _Delta:
    """One delta, or several joined ones, behind the stored number `after`; or, with `lost`, as many that are lost."""

    __slots__ = ("_joined", "after", "count", "event", "lost", "size")

    def __init__(self, event: Event, after: int, lost: int = 0) -> None:
        self.event = event
        self.after = after
        self.lost = lost
        self.count = 1
        self.size = 0 if lost else _length(event)
        self._joined: StringIO | None = None

    @property
    def is_done(self) -> bool:
        return isinstance(self.event.payload, LLMCompletionChunkPayload) and self.event.payload.done

    def join(self, event: Event, payload: LLMCompletionChunkPayload) -> None:
        if self._joined is None:
            self._joined = StringIO()
            self._joined.write(_text(self.event))
        self._joined.write(payload.delta)
        self.event = event
        self.count += 1
        self.size += len(payload.delta)

    def whole(self) -> Event:
        payload = self.event.payload
        if self._joined is None or not isinstance(payload, LLMCompletionChunkPayload):
            return self.event
        return replace(self.event, payload=replace(payload, delta=self._joined.getvalue()))


def _text(event: Event) -> str:
    return event.payload.delta if isinstance(event.payload, LLMCompletionChunkPayload) else ""


def _length(event: Event) -> int:
    return len(_text(event))


class StreamQueue:
    """The events of one stream between the bus and the peer.

    `offer` takes live events; `fill` those of the log, whenever `is_behind`; `take` gives the next to be sent. Nothing
    is given before `start`. `number_of` gives the number of a live event, 0 for one that is not stored.
    """

    def __init__(self, wanted: Wanted, number_of: Callable[[Event], int], subscriber: int = 0) -> None:
        self._wanted = wanted
        self._number_of = number_of
        self._subscriber = subscriber
        self._stored: deque[_Stored] = deque()
        self._deltas: deque[_Delta] = deque()
        self._last_of: dict[tuple[str, str, str], _Delta] = {}  # behind the newest stored event, by run, task, kind
        self._behind_newest = 0
        self._text = 0
        self._latest = 0
        self._passed = self._used = 0
        self._read = 0
        self._asked = 0
        self._next_joined = 0.0
        self._gap: tuple[int, int, int, Quadruple] | None = None
        self._is_started = False
        self.is_behind = True

    def start(self, number: int, newest: int) -> None:
        """Begin behind `number`, which may be a delta's; `newest` is the number of the newest stored event."""
        self._passed = self._read = number - number % EVENT_STEP
        self._used = number % EVENT_STEP
        self._is_started = True
        self.is_behind = max(newest, self._latest) > self._passed

    def __len__(self) -> int:
        """How many events wait."""
        return len(self._stored) + len(self._deltas)

    # ── Events come ───────────────────────────────────────────────────────────────────────────────────────────────────

    def offer(self, event: Event) -> None:
        """Take a live event. Never: waits."""
        number = self._number_of(event)
        if not number:
            # The server itself stores who used a scope.
            if event.type != EventType.AUDIT_ADMIN_SCOPE_USED and self._wanted(event):
                self._add_delta(event)
            return
        if number <= self._latest:
            return
        self._latest = number
        self._last_of.clear()
        self._behind_newest = 0
        self._wanted.note(event)
        if not self.is_behind:
            self._add_stored(_Stored(number, event))
            if len(self._stored) > MAX_STORED:
                # What was passed over so far may be sent; the log has the rest, in the same order.
                self._stored.clear()
                self._read = self._passed
                self.is_behind = True

    def _add_stored(self, one: _Stored) -> None:
        if one.event is not None and not self._wanted(one.event):
            one = _Stored(one.number, None)
        waiting = self._stored
        if one.event is None and not one.lost and waiting and waiting[-1].event is None and not waiting[-1].lost:
            waiting[-1] = one
        else:
            waiting.append(one)

    def _add_delta(self, event: Event) -> None:
        payload = event.payload
        if isinstance(payload, LLMCompletionChunkPayload):
            key = (event.identity.run_id, payload.task_id, payload.kind)
            waiting = self._last_of.get(key)
            if waiting is not None and self._joins(waiting):
                waiting.join(event, payload)
            else:
                self._last_of[key] = self._append(event)
            self._text += len(payload.delta)
        else:
            self._append(event)
        while len(self._deltas) > MAX_DELTAS or self._text > MAX_TEXT:
            self._give_up_oldest()

    def _append(self, event: Event) -> _Delta:
        delta = _Delta(event, self._latest)
        self._deltas.append(delta)
        self._behind_newest += 1
        return delta

    def _joins(self, waiting: _Delta) -> bool:
        """Whether the next delta joins the one that waits. The end of an answer stays visible while numbers last."""
        numbers = self._behind_newest + (self._used if self._passed >= self._latest else 0)
        if numbers >= _LAST - _RESERVE:
            return True
        return not waiting.is_done and (len(self._deltas) >= MANY or numbers >= FREE_NUMBERS)

    def _give_up_oldest(self) -> None:
        """Count the oldest delta as lost, together with those that were lost before it."""
        lost = self._deltas.popleft().lost if self._deltas[0].lost else 0
        oldest = self._deltas.popleft()
        self._text -= oldest.size
        self._forget(oldest)
        self._deltas.appendleft(_Delta(oldest.event, oldest.after, lost + oldest.count))

    def _forget(self, gone: _Delta) -> None:
        """Let no later delta join one that is gone."""
        for key in [key for key, one in self._last_of.items() if one is gone]:
            del self._last_of[key]

    def next_read(self) -> tuple[int, int]:
        """Return behind which number the log is to be read next, and up to which one at least it has events."""
        self._asked = max(self._latest, self._read)
        return self._read, self._asked

    def fill(self, page: Page) -> None:
        """Take a page of the log that was read behind `next_read`."""
        for one in page.events:
            self._read = max(self._read, one.number)
            if one.event is not None:
                self._wanted.note(one.event)
            self._add_stored(_from_log(one))
        if page.is_last:
            self._read = max(self._read, self._asked)
            if self._latest <= self._read:
                self.is_behind = False
                self._add_stored(_Stored(self._read, None))

    # ── Events go ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, now: float, moment: Callable[[], datetime]) -> tuple[list[tuple[int, Event]], float | None]:
        """Return the next events with their numbers, and in how many seconds more may be had; None: when some come.

        None also where the log is to be read first. `now` is in monotonic seconds.
        """
        found: list[tuple[int, Event]] = []
        if not self._is_started:
            return found, None
        wait: float | None = None
        while len(found) < _BATCH:
            stored = self._stored[0] if self._stored else None
            delta = self._deltas[0] if self._deltas else None
            if stored is not None and (delta is None or self._comes_before(stored, delta)):
                self._stored.popleft()
                self._pass(stored, found, moment)
            elif delta is None or (stored is None and (wait := self._hold(delta, now)) != 0):
                break
            else:
                self._deltas.popleft()
                self._send_delta(delta, found, moment)
                if stored is None and self._used > FREE_NUMBERS:
                    self._next_joined = now + JOINED_EVERY_S
        else:
            wait = 0
        self._report_gap(found, moment)
        return found, wait

    def _comes_before(self, stored: _Stored, delta: _Delta) -> bool:
        """Whether a stored event is sent before a delta: the delta came later, or no number is left for it."""
        if self._used >= _LAST:
            delta.after = max(delta.after, stored.number)
        return delta.after >= stored.number

    def _hold(self, delta: _Delta, now: float) -> float | None:
        """How long a delta waits that no stored event follows here; None: until one does, or the log was read."""
        if delta.after > self._passed or self._used >= _LAST - _RESERVE:
            return None
        return 0 if self._used < FREE_NUMBERS else max(0.0, self._next_joined - now)

    def _pass(self, one: _Stored, found: list[tuple[int, Event]], moment: Callable[[], datetime]) -> None:
        if one.number <= self._passed:
            return
        self._passed, self._used = one.number, 0
        if one.lost:
            who = Quadruple("", "", "") if one.event is None else one.event.identity
            first, lost = (one.first, one.lost) if self._gap is None else (self._gap[0], self._gap[2] + one.lost)
            self._gap = (first, one.number, lost, who)
        elif one.event is not None:
            self._report_gap(found, moment)
            found.append((one.number, one.event))

    def _send_delta(self, delta: _Delta, found: list[tuple[int, Event]], moment: Callable[[], datetime]) -> None:
        self._report_gap(found, moment)
        self._forget(delta)
        if delta.after >= self._latest:
            self._behind_newest = max(0, self._behind_newest - 1)
        self._text -= delta.size
        if not self._wanted(delta.event):
            return
        self._used += 1
        number = self._passed + self._used
        if delta.lost:
            found.append((number, self._notice(number, number, delta.lost, delta.event.identity, moment())))
        else:
            found.append((number, delta.whole()))

    def _report_gap(self, found: list[tuple[int, Event]], moment: Callable[[], datetime]) -> None:
        if self._gap is not None:
            first, last, lost, who = self._gap
            self._gap = None
            found.append((last, self._notice(first, last, lost, who, moment())))

    def _notice(self, first: int, last: int, lost: int, who: Quadruple, at: datetime) -> Event:
        payload = BusDroppedPayload(first, last, lost, self._subscriber)
        return Event(EventType.BUS_DROPPED, who, payload, at)


def _from_log(one: Logged) -> _Stored:
    return _Stored(one.number, one.event, one.first, one.lost)
