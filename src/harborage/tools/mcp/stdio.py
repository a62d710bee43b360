"""A server that is a program of this machine: its process, and messages as lines on its standard input and output.

The official library reads lines of any length, in time that grows with the square of it, and lets the program write to
this terminal. Here a line has a limit, and what the program writes to its standard error is kept as a short tail.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
import mcp_types as types
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from harborage.tools.mcp.errors import cleaned

if TYPE_CHECKING:
    from types import TracebackType

_TAIL_BYTES: Final = 4_096
_EXIT_S: Final = 1.0
_TERMINATE_S: Final = 5.0
_CHUNK: Final = 64 * 1024


class LineTooLongError(Exception):
    """A line of the program is longer than the limit."""


class Program:
    """The process of a server. `tail` is the end of what it wrote to its standard error."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._tail = b""
        self._reading: asyncio.Task[None] | None = None

    @property
    def tail(self) -> str:
        """The end of what it wrote to its standard error, as a person may be shown it."""
        return cleaned(self._tail.decode(errors="replace").strip(), 500)

    async def read_errors(self) -> None:
        """Read its standard error until it ends, so that the program is never held up by it."""
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(_CHUNK):
            self._tail = (self._tail + chunk)[-_TAIL_BYTES:]

    async def stop(self) -> None:
        """End the process and those that it started: close its input, ask it to end, kill it."""
        stdin = self._process.stdin
        if stdin is not None:
            stdin.close()
        if not await self._has_ended(_EXIT_S):
            self._signal(signal.SIGTERM)
            if not await self._has_ended(_TERMINATE_S):
                self._signal(signal.SIGKILL)
                await self._has_ended(_TERMINATE_S)
        self._signal(signal.SIGKILL)  # those that it started and left behind
        transport: Any = getattr(self._process, "_transport", None)
        if transport is not None:
            transport.close()  # a process that is left may hold a pipe open

    def kill(self) -> None:
        """End the process and those that it started at once."""
        self._signal(signal.SIGKILL)

    async def _has_ended(self, within_s: float) -> bool:
        # Not `wait()`: it also waits for the pipes, which a process that is left behind may hold open.
        end = asyncio.get_running_loop().time() + within_s
        while self._process.returncode is None:
            if asyncio.get_running_loop().time() >= end:
                return False
            await asyncio.sleep(0.01)
        return True

    def _signal(self, which: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, which)


class _Reading:
    """The messages of a program, as the official library reads them."""

    def __init__(self, reader: asyncio.StreamReader, most: int, on_end: Callable[[str], None]) -> None:
        self._reader = reader
        self._most = most
        self._on_end = on_end
        self._is_closed = False

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message.

        Raises:
            EndOfStream: there is none; `on_end` was called with the reason.
        """
        while not self._is_closed:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return self._end("the server ended the connection")
            except asyncio.LimitOverrunError:
                return self._end(f"the server sent a line of more than {self._most:,} bytes, the limit of one message")
            except (OSError, ValueError):
                return self._end("the connection to the server broke")
            try:
                return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
            except (ValueError, RecursionError):
                if line.strip():
                    return ValueError("a line of the server is no message")
        raise anyio.EndOfStream

    def _end(self, why: str) -> Exception:
        self._is_closed = True
        self._on_end(why)
        raise anyio.EndOfStream

    async def aclose(self) -> None:
        self._is_closed = True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class _Writing:
    """Takes messages for a program, as the official library writes them."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message.

        Raises:
            BrokenResourceError: the program takes no more.
        """
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        try:
            self._writer.write(line)
            await self._writer.drain()
        except (OSError, RuntimeError) as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        self._writer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


@asynccontextmanager
async def stdio_transport(
    command: Sequence[str],
    env: Mapping[str, str],
    folder: str,
    *,
    most: int,
    on_end: Callable[[str], None],
    on_start: Callable[[Program], None],
) -> AsyncIterator[tuple[Any, Any]]:
    """Start a program, and give the streams of its messages; at the end of the block the program has ended.

    It gets the short safe environment of the official library and `env` above it. `most` are the bytes of one line;
    `on_end` is called with the reason why there are no more messages.

    Raises:
        OSError: it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=get_default_environment() | dict(env),
        cwd=folder or None,
        limit=most,
        start_new_session=True,
    )
    program = Program(process)
    on_start(program)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with anyio.create_task_group() as beside:
            beside.start_soon(program.read_errors)
            try:
                yield _Reading(process.stdout, most, on_end), _Writing(process.stdin)
            finally:
                with anyio.CancelScope(shield=True):
                    await program.stop()
                beside.cancel_scope.cancel()
    finally:
        if process.returncode is None:
            program.kill()
