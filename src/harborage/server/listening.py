"""A socket on which a server listens, and the connections on it: uvicorn's, with bounds on what a peer may hold."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from harborage.errors import HarborageError, InvalidOptionError

_HEADERS_WITHIN_S: Final = 10.0
_IDLE_S: Final = 120
_MOST_HEADER_BYTES: Final = 64 * 1024
_HEADER_PART_BYTES: Final = 16 * 1024
_BACKLOG: Final = 2048


class BindError(HarborageError):
    """The address cannot be listened on. `address` is the one that was asked for."""

    def __init__(self, address: str = "", reason: str = "") -> None:
        self.address = address
        super().__init__(f"cannot listen on {address}: {reason}; name another with --bind, or port 0 for a free one")


class Address(NamedTuple):
    """Where a server listens; port 0 takes a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str, option: str = "bind") -> Address:
    """Return the address that `HOST:PORT` spells; an IPv6 host stands in brackets.

    Raises:
        InvalidOptionError: it is none.
    """
    found = re.fullmatch(r"(\[[0-9a-fA-F:.%]+\]|[^:\[\]\s]+):(\d{1,5})", text)
    if found is None or int(found[2]) > 65_535:
        raise InvalidOptionError(option, text, "HOST:PORT, such as 127.0.0.1:18080")
    return Address(found[1].strip("[]"), int(found[2]))


def listen(address: Address) -> socket.socket:
    """Return a socket that listens on an address; requests that come before a server takes it wait.

    Raises:
        BindError: the address is taken, or not one of this machine.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named. Without it, an answer whose head and body are written
    # apart waits about 40 ms for the peer's acknowledgement of the head.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(_BACKLOG)
    except OSError as error:
        opened.close()
        raise BindError(str(address), error.strerror or str(error)) from error
    opened.setblocking(False)
    return opened


def bound_address(opened: socket.socket) -> Address:
    """Return where a socket listens, with the port that it got."""
    return Address(*opened.getsockname()[:2])


class Listener:
    """Serves an ASGI application on a socket until it is stopped."""

    def __init__(self, app: Any, opened: socket.socket, *, grace: float = 30) -> None:
        """`grace` is how many seconds requests have to end once it is stopped."""
        config = uvicorn.Config(
            app,
            http=_Connection,
            ws="none",
            lifespan="off",
            access_log=False,
            server_header=False,
            log_config=None,
            proxy_headers=False,
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=max(1, round(grace)),
        )
        self._server = _Uvicorn(config)
        self._socket = opened

    async def serve(self) -> None:
        """Answer requests until `stop`; returns when the last connection has ended."""
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        await self._server.serve([self._socket])

    def stop(self) -> None:
        """Accept no more requests, and end once those that were accepted are answered."""
        self._server.should_exit = True


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the command, which knows what else must stop."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Connection(HttpToolsProtocol):
    """Closes a connection whose next request's headers do not come, or do not end."""

    _deadline: asyncio.TimerHandle | None = None
    _unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.access_log = False  # whatever loggers there are: the library asks them, not its own setting
        super().connection_made(transport)
        self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        if self._deadline is None and self.headers is None:
            self._wait_for_headers()
        # Headers and body may come as one piece: it is handed on in parts, so that only headers are counted as such.
        while self._deadline is not None and data and not self.transport.is_closing():
            part, data = data[:_HEADER_PART_BYTES], data[_HEADER_PART_BYTES:]
            self._unread += len(part)
            if self._unread > _MOST_HEADER_BYTES:
                self.send_400_response("The headers are too long.")
                return
            super().data_received(part)
        if data and not self.transport.is_closing():
            super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._deadline is None:
            self._wait_for_headers()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_headers(self) -> None:
        self._unread = 0
        self._deadline = asyncio.get_running_loop().call_later(_HEADERS_WITHIN_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        with suppress(OSError):
            self.transport.close()
