"""The network is refused inside the block: to the block alone, or to the whole process, and never afterwards."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable

import pytest

from harborage.runtime.history import OfflineError, offline
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

NOBODY = ("127.0.0.1", 9)


def udp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", NOBODY)


WAYS: dict[str, Callable[[], object]] = {
    "a socket": socket.socket,
    "a datagram": udp,
    "a connection": lambda: socket.create_connection(NOBODY),
    "a name": lambda: socket.getaddrinfo("localhost", 80),
    "an old name": lambda: socket.gethostbyname("localhost"),
}


@each_row("way", WAYS)
@each_row("everywhere", [True, False])
def test_every_way_out_is_refused(way: str, everywhere: bool) -> None:
    """The error names the code that tried; what was tried is kept."""
    with (
        offline(everywhere=everywhere) as attempts,
        pytest.raises(OfflineError, match=r"test_surroundings\.py") as caught,
    ):
        WAYS[way]()
    assert attempts.refused == [caught.value]
    assert "test_surroundings.py" in caught.value.culprit


async def test_an_event_loop_reaches_no_network() -> None:
    """Neither a name nor an address; the code that asked is named, not the loop."""
    with offline():
        with pytest.raises(
            OfflineError, match=r"test_surroundings\.py:\d+ test_an_event_loop.* \(getaddrinfo localhost\)"
        ):
            await asyncio.open_connection("localhost", 9)
        with pytest.raises(OfflineError, match=r"\(a socket\)"):
            await asyncio.open_connection(*NOBODY)


def test_an_open_socket_sends_nowhere() -> None:
    """One that was made before the block may not begin to reach out in it."""
    with socket.socket() as before, offline():
        with pytest.raises(OfflineError, match=r"connect 127\.0\.0\.1:9"):
            before.connect(NOBODY)
        with pytest.raises(OfflineError, match=r"connect_ex 127\.0\.0\.1:9"):
            before.connect_ex(NOBODY)


def test_afterwards_everything_is_as_it_was() -> None:
    """Also after an error, and after blocks that overlapped."""
    before = dict(vars(socket.socket)), socket.getaddrinfo, vars(asyncio.BaseEventLoop)["getaddrinfo"]
    first, second = offline(), offline(everywhere=True)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    with pytest.raises(OfflineError):
        socket.socket()
    second.__exit__(None, None, None)
    after = dict(vars(socket.socket)), socket.getaddrinfo, vars(asyncio.BaseEventLoop)["getaddrinfo"]
    assert after == before
    with offline():
        pass
    socket.socket().close()


async def test_what_outlives_the_block_is_free() -> None:
    """A task that was started inside may use the network again, while others may not."""
    gate = asyncio.Event()

    async def late() -> None:
        await gate.wait()
        socket.socket().close()

    with offline():
        task = asyncio.create_task(late())
        await asyncio.sleep(0)
    with offline() as attempts:
        gate.set()
        await task
    assert attempts.refused == []


def test_the_block_alone_is_meant() -> None:
    """Another thread keeps the network; with `everywhere` it does not."""
    found: list[str] = []

    def reach() -> None:
        try:
            socket.socket().close()
        except OfflineError:
            found.append("refused")
        else:
            found.append("made")

    for everywhere in (False, True):
        with offline(everywhere=everywhere):
            thread = threading.Thread(target=reach)
            thread.start()
            thread.join()
    assert found == ["made", "refused"]


async def test_what_the_block_starts_is_meant() -> None:
    """Tasks and threads that are started inside, wherever they are awaited."""
    with offline() as attempts:
        for work in (asyncio.to_thread(socket.socket), asyncio.create_task(asyncio.open_connection(*NOBODY))):
            with pytest.raises(OfflineError):
                await work
    assert len(attempts.refused) == 2


def test_event_loops_may_be_made() -> None:
    """Their pairs of sockets reach no other machine."""
    with offline(everywhere=True) as attempts:
        assert asyncio.run(asyncio.sleep(0, "well")) == "well"
    assert attempts.refused == []
