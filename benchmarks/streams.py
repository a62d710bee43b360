"""Streams: a thousand readers of one server while events flow, and what each costs its process.

The server has a process of its own; the readers are sockets of this one, several to a session, as pages of one user
are. Every reader must get every event of its session in the order of the log, or be told which it does not get.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from benchmarks.measure import Row
from benchmarks.server import ServerSide, serving

if TYPE_CHECKING:
    from collections.abc import Sequence

_READERS: Final = 1_000
_PAGES: Final = 10
_RUNS: Final = 4
_SPARE_FILES: Final = 200
_OPENED_AT_ONCE: Final = 100
_MOST_KIB: Final = 64.0
_WITHIN_S: Final = 240.0
_QUIET_S: Final = 2.0
_KIB: Final = 1024


class _Reader:
    """One connection to the stream of a session: which stored events came, and what it was told of others."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.numbers: list[int] = []
        self.notices = 0
        self.bytes = 0
        self.opened = asyncio.Event()

    async def read(self, side: ServerSide, after: str = "") -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", side.port)
        head = f"GET /v1/events{after} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {side.token}\r\n"
        try:
            writer.write(f"{head}x-harbor-session: {self.session}\r\n\r\n".encode())
            status = await reader.readuntil(b"\r\n\r\n")
            if not status.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"a stream was refused: {status.splitlines()[0].decode()}")
            while line := await reader.readline():
                self._take(line)
        finally:
            writer.close()

    def _take(self, line: bytes) -> None:
        self.bytes += len(line)
        if line.startswith(b"retry: "):
            self.opened.set()
        elif line.startswith(b"event: bus.dropped"):
            self.notices += 1
        elif line.startswith(b"data: "):
            self.numbers.append(msgspec.json.decode(line[6:], type=_Numbered).sequence)


class _Numbered(msgspec.Struct):
    sequence: int


async def thousand_streams() -> list[Row]:
    """Memory a stream, and events a second to all of them, at a server whose log is in memory."""
    with _enough_files(_READERS + _SPARE_FILES):
        async with serving("ours") as side, asyncio.timeout(_WITHIN_S):
            return await _measured(side)


async def _measured(side: ServerSide) -> list[Row]:
    sessions = [f"page-{number}" for number in range(_READERS // _PAGES)]
    await asyncio.gather(*(_start(side, session) for session in sessions))  # what is made once is made
    before = side.memory()
    readers = [_Reader(session) for session in sessions for _ in range(_PAGES)]
    crew = [asyncio.create_task(one.read(side)) for one in readers]
    try:
        for at in range(0, len(readers), _OPENED_AT_ONCE):
            await asyncio.gather(*(one.opened.wait() for one in readers[at : at + _OPENED_AT_ONCE]))
        idle = side.memory()
        began = time.perf_counter()
        for _ in range(_RUNS):
            await asyncio.gather(*(_start(side, session) for session in sessions))
        took = await _all_read(readers, began)
        busy = side.memory()
    finally:
        for task in crew:
            task.cancel()
        failed = [one for one in await asyncio.gather(*crew, return_exceptions=True) if isinstance(one, Exception)]
    if failed:
        raise failed[0]
    lost = await _lost(side, readers)
    delivered = sum(len(one.numbers) for one in readers)
    return [
        Row(
            name=f"memory a stream, {_READERS:,} open",
            unit="KiB",
            ours=(idle - before) / _READERS / _KIB,
            most=_MOST_KIB,
            note=f"{_PAGES} to a session; {before / _KIB**2:.0f} MiB before, {idle / _KIB**2:.0f} MiB open",
        ),
        Row(
            name=f"memory a stream, {_READERS:,} open, after its events",
            unit="KiB",
            ours=(busy - before) / _READERS / _KIB,
            most=_MOST_KIB,
            note=f"{busy / _KIB**2:.0f} MiB; the log of {_RUNS * len(sessions)} runs included",
        ),
        Row(
            name=f"events lost without notice, {_READERS:,} streams",
            unit="events",
            ours=lost,
            most=0,
            note=f"{delivered:,} events in {sum(one.bytes for one in readers) / _KIB**2:.0f} MiB; "
            f"{sum(one.notices for one in readers)} notices",
        ),
        Row(name=f"events to {_READERS:,} streams", unit="events a second", ours=delivered / took),
    ]


async def _start(side: ServerSide, session: str) -> None:
    await side.ask("/v1/control/start", b'{"query":"say hello"}', session=session)


async def _all_read(readers: Sequence[_Reader], began: float) -> float:
    """Return the seconds until the last event came; it came when nothing more comes for a while."""
    count, last = -1, time.perf_counter()
    while time.perf_counter() - last < _QUIET_S:
        now = sum(len(one.numbers) for one in readers)
        if now != count:
            count, last = now, time.perf_counter()
        await asyncio.sleep(0.02)
    return last - began


async def _lost(side: ServerSide, readers: Sequence[_Reader]) -> int:
    """Return how many events readers neither got nor were told of, held against the log of their sessions."""
    lost = 0
    for at in range(0, len(readers), _PAGES):
        whole = _Reader(readers[at].session)
        task = asyncio.create_task(whole.read(side, "?after=0"))
        await whole.opened.wait()
        first = readers[at].numbers
        while first and (not whole.numbers or whole.numbers[-1] < first[-1]):  # noqa: ASYNC110 - it reads by itself
            await asyncio.sleep(0.002)
        task.cancel()
        await asyncio.wait([task])
        for one in readers[at : at + _PAGES]:
            wanted = [number for number in whole.numbers if number >= one.numbers[0]] if one.numbers else whole.numbers
            lost += 0 if one.notices else len(set(wanted) - set(one.numbers))
            lost += len(one.numbers) - len(set(one.numbers))
            lost += one.numbers != sorted(one.numbers)
    return lost


@contextmanager
def _enough_files(most: int) -> Iterator[None]:
    """Let this process open so many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


if __name__ == "__main__":
    sys.exit("run it as: python -m benchmarks streams")
