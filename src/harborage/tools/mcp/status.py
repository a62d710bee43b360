"""How the connection to a server has been: what an operator is shown of it."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from harborage.tools.mcp.values import ConnectionState

if TYPE_CHECKING:
    from harborage.clock import Clock

BUCKETS: Final = 60
"""Minutes of the past that are kept."""

_MINUTE: Final = timedelta(minutes=1)
_MOST_RECONNECTS: Final = 100


class Handshake(NamedTuple):
    """When a connection was opened, and how many milliseconds that took."""

    at: datetime
    ms: int


class Ended(NamedTuple):
    """When a connection had to be made again, and why."""

    at: datetime
    why: str


class Minute(NamedTuple):
    """The calls and failures of one minute."""

    at: datetime
    calls: int
    failures: int


class ServerStatus:
    """The state of the connection to one server, and its last hour."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._minutes: deque[Minute] = deque(maxlen=BUCKETS)
        self.state = ConnectionState.OFFLINE
        self.handshakes: deque[Handshake] = deque(maxlen=BUCKETS)
        self.reconnects: deque[Ended] = deque(maxlen=_MOST_RECONNECTS)
        self.latency_ms = 0
        self.why = ""

    def connected(self, took_s: float) -> None:
        """A connection was opened."""
        self.state, self.why = ConnectionState.ONLINE, ""
        self.handshakes.append(Handshake(self._clock.now(), int(took_s * 1_000)))

    def lost(self, why: str) -> None:
        """The connection that reads share has ended by itself."""
        self.state, self.why = ConnectionState.RECONNECTING, why
        self.reconnects.append(Ended(self._clock.now(), why))

    def failed(self, state: ConnectionState, why: str) -> None:
        """A connection could not be opened."""
        self.state, self.why = state, why

    def called(self, took_s: float, *, has_failed: bool) -> None:
        """A call has ended; `has_failed` says that the transport failed it."""
        self.latency_ms = int(took_s * 1_000)
        now = self._clock.now()
        if not self._minutes or now - self._minutes[-1].at >= _MINUTE:
            self._minutes.append(Minute(now, 1, int(has_failed)))
            return
        at, calls, failures = self._minutes[-1]
        self._minutes[-1] = Minute(at, calls + 1, failures + int(has_failed))

    @property
    def failures_per_minute(self) -> float:
        """The failures of the transport in the last minute."""
        recent = [one for one in self._minutes if self._clock.now() - one.at < _MINUTE]
        return float(sum(one.failures for one in recent))

    @property
    def failure_rate(self) -> float:
        """The part of the calls of the last hour that the transport failed, from 0 to 1."""
        hour = [one for one in self._minutes if self._clock.now() - one.at < BUCKETS * _MINUTE]
        calls = sum(one.calls for one in hour)
        return sum(one.failures for one in hour) / calls if calls else 0.0
