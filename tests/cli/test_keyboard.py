"""Owning a terminal for a while, and giving it back."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import termios
from collections.abc import Iterator

import pytest

from harborage.cli.keyboard import Keyboard, can_ask, signals

pytestmark = pytest.mark.anyio


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal: the person's and the program's."""
    person, program = pty.openpty()
    yield person, program
    os.close(person)
    os.close(program)


class Heard:
    """What a keyboard told."""

    def __init__(self, program: int, *, is_echoing: bool = False) -> None:
        self.lines: list[str] = []
        self.is_gone = False
        self.changed = asyncio.Event()
        self.keyboard = Keyboard(
            program, on_line=self.lines.append, on_change=self.changed.set, on_gone=self._gone, is_echoing=is_echoing
        )

    def _gone(self) -> None:
        self.is_gone = True
        self.changed.set()

    async def wait(self) -> None:
        """Wait for the next thing that is told."""
        async with asyncio.timeout(30):
            await self.changed.wait()
        self.changed.clear()


def echoes(program: int) -> bool:
    """Whether the terminal itself shows what is typed."""
    return bool(termios.tcgetattr(program)[3] & termios.ECHO)


async def test_keys_become_lines(terminal: tuple[int, int]) -> None:
    """Finished lines are told, characters that come in pieces are put together, and the rest stays on the line."""
    person, program = terminal
    heard = Heard(program)
    with heard.keyboard.opened():
        os.write(person, "naïve".encode()[:3])
        await heard.wait()
        os.write(person, "naïve".encode()[3:] + b"\rrest")
        while heard.keyboard.editor.text != "rest":
            await heard.wait()
    assert heard.lines == ["naïve"]


async def test_the_terminal_is_owned_and_given_back(terminal: tuple[int, int]) -> None:
    """While it is owned the terminal echoes nothing and the program's own input is empty; then all is as before."""
    _, program = terminal
    before = termios.tcgetattr(program)
    heard = Heard(program)
    with heard.keyboard.opened():
        assert os.read(program, 10) == b""
        with heard.keyboard.suspended() as keys:
            assert termios.tcgetattr(keys) == before
        assert not echoes(keys)
    assert termios.tcgetattr(program) == before
    heard.keyboard.close()


async def test_a_terminal_that_echoes_is_left_as_it_is(terminal: tuple[int, int]) -> None:
    """Where nothing is drawn the terminal's own line editing is used, and an end of input is no end of the terminal."""
    person, program = terminal
    before = termios.tcgetattr(program)
    heard = Heard(program, is_echoing=True)
    with heard.keyboard.opened():
        os.write(person, b"\x04one\n")
        await heard.wait()
    assert heard.lines == ["one"]
    assert not heard.is_gone
    assert termios.tcgetattr(program) == before


async def test_a_terminal_that_goes_away_is_told() -> None:
    """When the other end of the terminal is closed, that is told once and nothing fails."""
    person, program = pty.openpty()
    heard = Heard(program)
    with heard.keyboard.opened():
        os.close(person)
        await heard.wait()
        assert heard.is_gone
    os.close(program)


async def test_signals_are_heard_for_a_while() -> None:
    """Handlers run in the loop, or at once, inside the block; what was there before is back after it."""
    before = [signal.getsignal(one) for one in (signal.SIGUSR1, signal.SIGUSR2)]
    heard = asyncio.Event()
    at_once: list[str] = []
    with signals({signal.SIGUSR1: heard.set}, {signal.SIGUSR2: lambda: at_once.append("heard")}):
        os.kill(os.getpid(), signal.SIGUSR2)
        assert at_once == ["heard"]
        os.kill(os.getpid(), signal.SIGUSR1)
        async with asyncio.timeout(30):
            await heard.wait()
    assert [signal.getsignal(one) for one in (signal.SIGUSR1, signal.SIGUSR2)] == before


async def test_only_ones_own_terminal_can_be_asked(terminal: tuple[int, int]) -> None:
    """A pipe cannot be asked, nor a terminal that belongs to others."""
    reader, writer = os.pipe()
    assert not can_ask(reader)
    assert not can_ask(terminal[1])
    os.close(reader)
    os.close(writer)
    assert not can_ask(reader)
