"""What the tests of the history tools share: records written entry by entry, and runs that leave one behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harborage.identity import Identity
from harborage.planner import Finish
from harborage.runtime.durable.engine import RunFailedError
from harborage.runtime.durable.journal import (
    Arrived,
    Begun,
    Cut,
    Done,
    Ended,
    Entry,
    Failed,
    Joined,
    Patched,
    Rolled,
    Started,
    Waited,
    encode_entry,
    raw,
)
from harborage.runtime.host import Runtime
from harborage.runtime.loop.seam import RunRequest

ME = Identity("t", "u", "s")
WHO = ME.with_run("run-1")
T0 = datetime(2026, 1, 1, tzinfo=UTC)


class Writing:
    """A record that is written entry by entry, a second apart."""

    def __init__(self, goal: str = "the goal", **request: Any) -> None:
        self.entries: list[Entry] = []
        self.add(Started, request=raw(RunRequest(who=WHO, goal=goal, **request)))

    def add(self, kind: type[Entry], **fields: Any) -> Writing:
        """Write an entry of any kind."""
        self.entries.append(kind(at=T0 + timedelta(seconds=len(self.entries)), **fields))
        return self

    def begun(self, position: str, name: str, payload: Any) -> Writing:
        return self.add(Begun, position=position, name=name, key=f"run-1/{position}", payload=raw(payload))

    def done(self, position: str, name: str, result: Any) -> Writing:
        return self.add(Done, position=position, name=name, result=raw(result))

    def failed(self, position: str, name: str, error: str, message: str, **more: Any) -> Writing:
        return self.add(Failed, position=position, name=name, error=error, message=message, **more)

    def cut(self, position: str, name: str, reason: str) -> Writing:
        return self.add(Cut, position=position, name=name, reason=reason)

    def joined(self, position: str, *outcomes: str) -> Writing:
        return self.add(Joined, position=position, outcomes=list(outcomes))

    def arrived(self, position: str, arrivals: Any) -> Writing:
        return self.add(Arrived, position=position, arrivals=raw(arrivals))

    def waited(self, position: str, woken: Any) -> Writing:
        return self.add(Waited, position=position, woken=raw(woken))

    def patched(self, change: str) -> Writing:
        return self.add(Patched, change=change)

    def rolled(self, carry: RunRequest) -> Writing:
        return self.add(Rolled, carry=raw(carry))

    def ended(self, finish: Finish | None = None, error: str = "", message: str = "") -> Writing:
        return self.add(Ended, finish=None if finish is None else raw(finish), error=error, message=message)

    @property
    def record(self) -> list[bytes]:
        """The entries as they are stored."""
        return [encode_entry(one) for one in self.entries]


@pytest.fixture
def writing() -> type[Writing]:
    """Writes records by hand."""
    return Writing


Recording = Callable[..., Awaitable[list[bytes]]]


@pytest.fixture
def recorded() -> Recording:
    """Runs an agent to its end and gives the record."""

    async def run(goal: str = "the goal", **parts: Any) -> list[bytes]:
        async with Runtime(**parts) as runtime:
            started = await runtime.start(goal, who=ME)
            with suppress(RunFailedError):
                await started.finished()
            return await started.history()

    return run
