"""Ctrl-Z and `fg`: a run stops where its shell says so, and never once the shell has said to go on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from harborage.cli.job import Job
from harborage.cli.keyboard import signals
from tests.kit.tables import each_row

pytestmark = pytest.mark.anyio

CTRL_Z, FG = signal.SIGTSTP, signal.SIGCONT


class Shell:
    """Sends the signals of a shell to a job in this process, which only notes what it would do."""

    def __init__(self, *, meanwhile: Sequence[signal.Signals] = (), is_away: bool = False) -> None:
        self.done: list[str] = []
        self.job = Job(aside=self._aside, renew=self._renew, is_away=lambda: is_away, stop=self._stop)
        self._meanwhile = meanwhile

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Hear the signals as a run does."""
        with signals({CTRL_Z: self.job.stop, FG: self.job.go_on}, {FG: self.job.told}):
            yield

    @contextmanager
    def _aside(self) -> Iterator[None]:
        self.done.append("give back")
        for one in self._meanwhile:
            signal.raise_signal(one)
        yield
        self.done.append("take")

    def _renew(self) -> None:
        self.done.append("renew")

    def _stop(self) -> None:
        self.done.append("stop")
        signal.raise_signal(FG)  # a process that has stopped does no more until it is told to


STOP = ["give back", "stop", "take", "renew"]


@each_row(
    "sent, done",
    [
        ([CTRL_Z], STOP),
        ([FG], ["renew"]),
        ([CTRL_Z, FG], ["renew"]),
        ([FG, CTRL_Z], ["renew", *STOP]),
        ([CTRL_Z, FG, CTRL_Z], ["renew", *STOP]),
        ([CTRL_Z, FG, CTRL_Z, FG], ["renew", "renew"]),
    ],
)
async def test_signals_that_came_together_count_in_their_order(sent: list[signal.Signals], done: list[str]) -> None:
    """However many were sent while the event loop was busy, the last one says whether the process stops."""
    shell = Shell()
    with shell.heard():
        for one in sent:
            signal.raise_signal(one)
        await _settled()
    assert shell.done == done


async def test_a_word_that_the_loop_has_not_come_to_counts() -> None:
    """Told to go on between the loop's taking up Ctrl-Z and the stop, the process does not stop."""
    shell = Shell()
    with shell.heard():
        shell.job.stop()
        signal.raise_signal(FG)
        await _settled()
    assert shell.done == ["renew"]


async def test_a_word_while_the_terminal_is_given_back_counts() -> None:
    """Told to go on while the last lines are written, the process takes its terminal again without a stop."""
    shell = Shell(meanwhile=[FG])
    with shell.heard():
        signal.raise_signal(CTRL_Z)
        await _settled()
    assert shell.done == ["give back", "take", "renew"]


async def test_the_next_ctrl_z_stops_again() -> None:
    """Having gone on, the process stops at the next Ctrl-Z."""
    shell = Shell()
    with shell.heard():
        for times in (1, 2):
            signal.raise_signal(CTRL_Z)
            await _settled()
            assert shell.done == STOP * times


async def test_while_another_program_has_the_terminal_nothing_is_done() -> None:
    """An editor that was started from here stops and goes on by itself, and the terminal is its own."""
    shell = Shell(is_away=True)
    with shell.heard():
        signal.raise_signal(CTRL_Z)
        signal.raise_signal(FG)
        await _settled()
    assert shell.done == []


async def _settled() -> None:
    """Wait until the loop has come to all that was sent, and to what that led to."""
    for _ in range(3):
        last = asyncio.Event()
        with signals({signal.SIGUSR1: last.set}, {}):
            signal.raise_signal(signal.SIGUSR1)
            async with asyncio.timeout(60):
                await last.wait()
