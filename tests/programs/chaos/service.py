"""The outside service of a chaos story: a socket on the loopback that does what tools ask of it, and counts.

It lives in the process that plays the story, which nobody kills. Workers also learn here which runs to begin, and say
here that a change was refused to them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from harborage import codec
from harborage.testing.simulation import ServiceCall

if TYPE_CHECKING:
    from tests.programs.chaos.kill_points import KillPoints

_AGAIN_S = 0.5


class Wanted(msgspec.Struct, frozen=True):
    """A requested run, by its number, in this session."""

    number: int
    goal: str
    session: str


class _Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker says: one of act, ask, want, begun and lost."""

    verb: str
    act: ServiceCall | None = None
    run_id: str = ""
    number: int = 0
    process: str = ""


class Held:
    """An act whose answer waits: `reached` gives the process that asked for it, `release` lets it have the answer."""

    def __init__(self) -> None:
        self._by: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._is_free = asyncio.Event()

    async def reached(self) -> str:
        """The process that asked for the act, which is done by then."""
        return await asyncio.shield(self._by)

    def release(self) -> None:
        """Give the answer."""
        self._is_free.set()

    async def keep(self, process: str) -> None:
        """Return when the answer may be given."""
        self._by.set_result(process)
        await self._is_free.wait()


class Service:
    """Does what comes under a key once, and all else as often as it is asked.

    `calls` are run and process of everything that was asked for runs, in order; `overlaps` the runs for which two
    processes asked at once; `lost` run and process of each change that was refused; `present` the workers that were
    heard of. While not `is_open` nobody is told to begin a run, and never one of a number from `limit` on.
    """

    def __init__(self, goals: Sequence[str], *, sessions: int = 1, delay_s: float = 0.0) -> None:
        self.acts: list[ServiceCall] = []
        self.asked: Counter[tuple[str, int]] = Counter()
        self.begun: dict[int, str] = {}
        self.calls: list[tuple[str, str]] = []
        self.overlaps: list[tuple[str, str, str]] = []
        self.lost: list[tuple[str, str]] = []
        self.has_reported = asyncio.Event()
        self.is_open = True
        self.limit = len(goals)
        self.present: set[str] = set()
        self._goals = goals
        self._sessions = sessions
        self._first = 0
        self._given: dict[int, float] = {}
        self._delay_s = delay_s
        self._keys: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._held: dict[str, Held] = {}
        self._ever_held: list[Held] = []
        self._busy: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[Any]] = set()

    async def open(self) -> int:
        """Begin to serve; the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def aclose(self) -> None:
        """Serve no longer."""
        if self._server is not None:
            self._server.close()
            for held in self._ever_held:
                held.release()
            await asyncio.gather(*self._serving)
            await self._server.wait_closed()

    def hold(self, what: str) -> Held:
        """Let the first act of that name be done, and its answer wait."""
        held = self._held[what] = Held()
        self._ever_held.append(held)
        return held

    def carriers(self, run_id: str) -> list[str]:
        """The processes that asked something for a run, each change of them in order."""
        found: list[str] = []
        for one, process in self.calls:
            if one == run_id and found[-1:] != [process]:
                found.append(process)
        return found

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            line = await reader.readline()
            if line.endswith(b"\n"):
                writer.write(codec.encode(await self._answer(codec.decode(line, _Asked))) + b"\n")
                await writer.drain()
        except ConnectionError:
            return  # the worker died meanwhile
        finally:
            self._serving.discard(task)
            writer.close()

    async def _answer(self, asked: _Asked) -> Any:
        match asked:
            case _Asked(verb="act", act=ServiceCall() as act):
                return await self._act(act)
            case _Asked(verb="ask"):
                self.asked[asked.run_id, asked.number] += 1
                await self._work(asked.run_id, asked.process)
                return None
            case _Asked(verb="want"):
                self.present.add(asked.process)
                self.has_reported.set()
                return self._wanted() if self.is_open else None
            case _Asked(verb="lost"):
                self.lost.append((asked.run_id, asked.process))
            case _:
                self.begun.setdefault(asked.number, asked.run_id)
        self.has_reported.set()
        return None

    def _wanted(self) -> Wanted | None:
        """The next run to begin; one that a worker was given is not given out again for a while."""
        now = time.monotonic()
        for number in range(self._first, min(self.limit, len(self._goals))):
            if number in self.begun:
                self._first += number == self._first
            elif now >= self._given.get(number, 0.0):
                self._given[number] = now + _AGAIN_S
                return Wanted(number, self._goals[number], f"session-{number % self._sessions}")
        return None

    async def _act(self, act: ServiceCall) -> str:
        keys = self._keys[act.run_id, act.what]
        if act.tool != "keyed" or act.key not in keys:
            keys.add(act.key)
            self.acts.append(act)
        held = self._held.pop(act.what, None)
        await self._work(act.run_id, act.process, held)
        return f"did {act.what}"

    async def _work(self, run_id: str, process: str, held: Held | None = None) -> None:
        """Take the time that it takes."""
        self.calls.append((run_id, process))
        self.has_reported.set()
        busy = self._busy[run_id]
        self.overlaps += [(run_id, process, other) for other in busy if other != process]
        busy[process] += 1
        try:
            if held is not None:
                await held.keep(process)
            elif self._delay_s:
                await asyncio.sleep(self._delay_s)
        finally:
            busy[process] -= 1
            if not busy[process]:
                del busy[process]


class Client:
    """A worker's way to the service, with a moment before, in the middle of and after everything it asks."""

    def __init__(self, port: int, points: KillPoints) -> None:
        self._port = port
        self._points = points

    async def act(self, act: ServiceCall) -> str:
        """Do it, or, under a key that came before, nothing."""
        return str(await self._say(_Asked("act", act=act)))

    async def ask(self, run_id: str, at: int, process: str) -> None:
        """A mind is asked for the step that comes after `at` others."""
        await self._say(_Asked("ask", run_id=run_id, number=at, process=process))

    async def want(self, process: str) -> Wanted | None:
        """A run that is to begin."""
        found = await self._say(_Asked("want", process=process))
        return None if found is None else codec.decode(codec.encode(found), Wanted)

    async def begun(self, wanted: Wanted, run_id: str) -> None:
        """It has begun."""
        await self._say(_Asked("begun", run_id=run_id, number=wanted.number))

    async def lost(self, run_id: str, process: str) -> None:
        """A change of the run was refused: another worker executes it."""
        await self._say(_Asked("lost", run_id=run_id, process=process))

    async def _say(self, asked: _Asked) -> Any:
        verb = asked.verb if asked.act is None else asked.act.tool
        self._points.reach(f"before {verb}")
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(codec.encode(asked) + b"\n")
            await writer.drain()
            self._points.reach(f"in {verb}")
            answer = await reader.readline()
        finally:
            writer.close()
        if not answer.endswith(b"\n"):
            raise ConnectionError("the service went away")
        self._points.reach(f"after {verb}")
        return codec.decode(answer)
