"""Receives the notices of other stores: on one connection, which is opened again when it breaks.

A notice carries no data, only that something may have changed: the listener that is called looks for itself. After
each break the listeners are called once, since notices may have been missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harborage.concurrency import Crew
from harborage.ids import new_id
from harborage.state.errors import DatabaseError

if TYPE_CHECKING:
    from harborage.state.postgres.database import Database
    from harborage.state.postgres.driver import Connection

CHANNEL = "harborage"

_PULSE_S = 10.0
_SHORTEST_BREAK_S = 0.05
_LONGEST_BREAK_S = 5.0

_logger = logging.getLogger(__name__)


class Notices:
    """The listeners of one store. `stamp` goes with every notice that the store sends, so that it ignores its own.

    It listens from the first listener on until it is closed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._place = f"{database.schema}/"
        self.stamp = self._place + new_id()
        self._listeners: list[Callable[[], None]] = []
        self._crew = Crew(lambda name, error: _logger.error("%s: %s", name, error))
        self._is_listening = False

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` on this event loop for every notice; returns a function that removes it."""
        self._listeners.append(listener)
        if not self._is_listening:
            self._is_listening = True
            self._crew.start(self._listen(), f"notices of {self._database.address}")

        def unlisten() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unlisten

    def notify(self) -> None:
        """Call every listener of this store."""
        for listener in tuple(self._listeners):
            listener()

    async def aclose(self) -> None:
        """Listen no more. Closing twice does nothing."""
        self._listeners.clear()
        await self._crew.aclose()

    async def _listen(self) -> None:
        """Hold a connection that listens, for as long as there is a database."""
        break_s = _SHORTEST_BREAK_S
        while not self._database.is_closed:
            try:
                connection = await self._database.connect()
            except DatabaseError as error:
                _logger.warning("notices: %s", error)
            else:
                break_s = _SHORTEST_BREAK_S
                await self._receive(connection)
            await asyncio.sleep(break_s)
            break_s = min(2 * break_s, _LONGEST_BREAK_S)

    async def _receive(self, connection: Connection) -> None:
        """Listen on this connection until it breaks."""
        is_broken = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: is_broken.set())
            await connection.add_listener(CHANNEL, self._received)
            self.notify()
            while not is_broken.is_set():
                try:
                    async with asyncio.timeout(_PULSE_S):
                        await is_broken.wait()
                except TimeoutError:
                    # A peer that vanished without a word is only noticed when it does not answer.
                    await connection.fetch("select", timeout=_PULSE_S / 2)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a broken connection has many faces; the next one is on its way
            _logger.warning("notices of %s: %s", self._database.address, error)
        finally:
            connection.terminate()

    def _received(self, connection: Any, pid: int, channel: str, payload: str) -> None:
        if payload != self.stamp and payload.startswith(self._place):
            self.notify()
