"""A schema of its own in a real Postgres, and a way to that server which breaks on request."""

from __future__ import annotations

import asyncio
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from tests.kit.postgres import PostgresServer

PATIENCE_S = 20.0


class Closable(Protocol):
    """What is opened at a place."""

    async def aclose(self) -> None: ...


T = TypeVar("T", bound=Closable)


class Place(Generic[T]):
    """A fresh schema: as many stores over it as wanted, and a connection, `admin`, to look beneath them."""

    admin: Any

    def __init__(self, server: PostgresServer, schema: str) -> None:
        self.server = server
        self.schema = schema
        self._opened: list[T] = []

    @property
    def url(self) -> str:
        """What opens a store here."""
        return self.server.url_with(search_path=self.schema, application_name=self.schema)

    async def open(self) -> T:
        """One more store, as another process would have it."""
        raise NotImplementedError

    def keep(self, one: T) -> T:
        """Close this one, too, at the end."""
        self._opened.append(one)
        return one

    async def __aenter__(self) -> Self:
        await self.connect()
        await self.admin.execute(f"create schema {self.schema}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._opened:
            await one.aclose()
        await self.admin.execute("set client_min_messages to warning")
        await self.admin.execute(f"drop schema {self.schema} cascade")
        await self.admin.close()

    async def connect(self) -> None:
        """Open the connection beneath again, after the server was away."""
        self.admin = await import_module("asyncpg").connect(self.server.url_with(search_path=self.schema))

    async def has_come(self, query: str, *args: Any) -> None:
        """Ask until the first value is true, but not for ever; the query itself may take its time."""
        async with asyncio.timeout(PATIENCE_S):
            while not await self.admin.fetchval(query, *args):
                continue

    async def break_connections(self) -> int:
        """End every connection of the stores here, as a network or an operator would; returns how many."""
        query = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = $1"
        broken: int = await self.admin.fetchval(query, self.schema)
        return broken


class BreakingProxy:
    """Passes bytes on in both directions. After `cut_after(n)` the answer behind the next `n` ones is lost, and with it
    its connection; `is_open` False refuses new ones."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._left: int | None = None
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.is_open = True
        self.cuts = 0

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def cut_after(self, answers: int) -> None:
        """Lose the answer that comes after so many more."""
        self._left = answers

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.is_open:
            writer.transport.abort()
            return
        behind, ahead = await asyncio.open_connection(*self._target)
        pair = {writer, ahead}
        self._writers |= pair
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, ahead, pair))
                group.create_task(self._pass(behind, writer, pair, is_answer=True))
        finally:
            self._writers -= pair
            for one in pair:
                one.transport.abort()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pair: set[asyncio.StreamWriter],
        *,
        is_answer: bool = False,
    ) -> None:
        try:
            while data := await reader.read(1 << 20):
                if is_answer and self._is_lost():
                    break
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        for one in pair:
            one.transport.abort()

    def _is_lost(self) -> bool:
        if self._left is None:
            return False
        self._left -= 1
        if self._left >= 0:
            return False
        self._left = None
        self.cuts += 1
        return True
