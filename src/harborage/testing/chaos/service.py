"""The outside service of a chaos story: a socket on the loopback that does what tools ask of it, and counts.

It lives in the process that plays the story, which nobody kills. Workers also learn here which runs to begin.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec

from harborage import codec
from harborage.testing.chaos.points import Points
from harborage.testing.simulation.world import Act

__all__ = ["Client", "Service", "Wanted"]


class Wanted(msgspec.Struct, frozen=True):
    """A run that somebody wants, by its number."""

    number: int
    goal: str


class _Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker says: one of act, ask, want and begun."""

    verb: str
    act: Act | None = None
    run_id: str = ""
    number: int = 0


class Service:
    """Does what comes under a key once, and all else as often as it is asked."""

    def __init__(self, goals: Sequence[str]) -> None:
        self.acts: list[Act] = []
        self.asked: Counter[tuple[str, int]] = Counter()
        self.begun: dict[int, str] = {}
        self._goals = goals
        self._keys: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._server: asyncio.Server | None = None

    async def open(self) -> int:
        """Begin to serve; the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def aclose(self) -> None:
        """Serve no longer."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            if line.endswith(b"\n"):
                writer.write(codec.encode(self._answer(codec.decode(line, _Asked))) + b"\n")
                await writer.drain()
        except ConnectionError:
            return  # the worker died meanwhile
        finally:
            writer.close()

    def _answer(self, asked: _Asked) -> Any:
        match asked:
            case _Asked(verb="act", act=Act() as act):
                return self._act(act)
            case _Asked(verb="ask"):
                self.asked[asked.run_id, asked.number] += 1
                return None
            case _Asked(verb="want"):
                numbers = (number for number in range(len(self._goals)) if number not in self.begun)
                number = next(numbers, None)
                return None if number is None else Wanted(number, self._goals[number])
            case _:
                self.begun.setdefault(asked.number, asked.run_id)
                return None

    def _act(self, act: Act) -> str:
        keys = self._keys[act.run_id, act.what]
        if act.tool != "keyed" or act.key not in keys:
            keys.add(act.key)
            self.acts.append(act)
        return f"did {act.what}"


class Client:
    """A worker's way to the service, with a moment before, in the middle of and after everything it asks."""

    def __init__(self, port: int, points: Points) -> None:
        self._port = port
        self._points = points

    async def act(self, act: Act) -> str:
        """Do it, or, under a key that came before, nothing."""
        return str(await self._say(_Asked("act", act=act)))

    async def ask(self, run_id: str, at: int, process: str) -> None:
        """A mind is asked for the step that comes after `at` others."""
        await self._say(_Asked("ask", run_id=run_id, number=at))

    async def want(self) -> Wanted | None:
        """A run that is to begin."""
        found = await self._say(_Asked("want"))
        return None if found is None else codec.decode(codec.encode(found), Wanted)

    async def begun(self, wanted: Wanted, run_id: str) -> None:
        """It has begun."""
        await self._say(_Asked("begun", run_id=run_id, number=wanted.number))

    async def _say(self, asked: _Asked) -> Any:
        self._points.reach()
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(codec.encode(asked) + b"\n")
            await writer.drain()
            self._points.reach()
            answer = await reader.readline()
        finally:
            writer.close()
        if not answer.endswith(b"\n"):
            raise ConnectionError("the service went away")
        self._points.reach()
        return codec.decode(answer)
