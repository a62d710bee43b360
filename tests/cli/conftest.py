"""What the command line's tests share: agents written to a file, the command in a pipe, the command on a terminal.

Nothing here sleeps: a test reads until what it waits for is there, and gives up at a deadline.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kit.forked import COMMAND, TAKE_TERMINAL, Interpreter, start

DEADLINE_S = 60.0
SIZE = (50, 110)
SHELL = f'{TAKE_TERMINAL}; os.execvp("bash", ["bash", "--norc", "-i"])'
ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[^\[])")

AGENT = '''
import asyncio, json, os, sys, time
from harborage import *
from harborage.app import Agent, AgentNotReadyError
from harborage.runtime.approval import AlwaysDeny
from harborage.runtime.effects.options import RuntimeOptions

print("the agent's file is read")

@tool(effects=SideEffect.READ)
async def tick() -> str:
    """Take a moment."""
    await asyncio.sleep(0.02)
    return "tock"

@tool(effects=SideEffect.READ)
async def linger() -> str:
    """Take for ever."""
    await asyncio.Event().wait()

@tool(effects=SideEffect.READ)
async def stubborn() -> str:
    """Take for ever, and not stop when told to."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

@tool(effects=SideEffect.READ)
async def freeze() -> str:
    """Block the event loop for ever."""
    print("freezing")
    while True:
        time.sleep(60)

@tool(effects=SideEffect.READ)
async def hold() -> str:
    """Block the event loop until there is a file called go."""
    print("holding")
    while not os.path.exists("go"):
        time.sleep(0.01)
    return "held"

@tool(effects=SideEffect.READ)
def block() -> str:
    """Take a thread for ever."""
    while True:
        time.sleep(60)

@tool(effects=SideEffect.READ)
def chat() -> str:
    """Print, and try to read the keyboard."""
    print("a tool prints")
    return f"read {sys.stdin.read()!r}"

@tool(effects=SideEffect.WRITE)
async def publish(title: str, token: str = "") -> str:
    """Publish."""
    return f"published {title}"

def call(name, **args):
    return CallTool(name, json.dumps(args).encode())

class Words:
    """The goal's first word says what to do; a message from the user ends the run."""

    async def next(self, run):
        n = len(run.trajectory.steps)
        if run.control.cancelled:
            return Finish(FinishReason.CANCELLED)
        if run.control.user_messages:
            return Finish(FinishReason.GOAL, "heard: " + " | ".join(run.control.user_messages))
        if run.trajectory.resume_hint and run.trajectory.resume_hint.resume_payload.get("message"):
            return Finish(FinishReason.GOAL, "told: " + run.trajectory.resume_hint.resume_payload["message"])
        word, _, rest = run.goal.partition(" ")
        match word:
            case "tick" | "linger" | "block" | "stubborn" | "freeze":
                return call(word)
            case "hold":
                return call("linger" if n else "hold")
            case "chat" if not n:
                return call("chat")
            case "publish" if not n:
                return call("publish", title=rest)
            case "later":
                return call("publish", title=rest) if n == 50 else call("tick")
            case "secret" if not n:
                return call("publish", title=rest, token="s3cret")
            case "both" if not n:
                return CallParallel((call("publish", title="one"), call("publish", title="two")))
            case "ask":
                return RequestPause(PauseReason.AWAIT_INPUT, {"question": "Which version?"})
            case "family" if not n:
                return SpawnTask(spec=SpawnSpec(query="say done"))
            case "family" if n == 1:
                return AwaitTask(run.trajectory.steps[0].observation["task_id"])
            case "say":
                return Finish(FinishReason.GOAL, rest)
            case "lost":
                return Finish(FinishReason.NO_PATH, "no idea")
            case "fail":
                raise ValueError("no such thing")
            case "shout":
                raise ValueError("\\x1b[2J")
        return Finish(FinishReason.GOAL, {"answer": str(run.trajectory.steps[-1].observation)})

tools = [tick, linger, hold, block, stubborn, freeze, chat, publish]
options = RuntimeOptions(max_steps=1_000_000)
agent = Agent(name="words", planner=Words(), tools=tools, approvals={"publish": AlwaysDeny()}, options=options)

def not_ready():
    raise AgentNotReadyError("no key; export EXAMPLE_KEY=...")

unready = Agent(name="unready", planner=Words(), check=not_ready)
'''


@pytest.fixture(autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own, so that no test knows which agents another has started."""
    path = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(path))
    return path


@pytest.fixture
def agent_file(tmp_path: Path) -> Path:
    """An agent whose goal's first word says what it does."""
    path = tmp_path / "agent.py"
    path.write_text(AGENT, "utf-8")
    return path


def environment(**more: str) -> dict[str, str]:
    """The environment of a command under test: no editor, no colours asked for, a terminal of a known kind."""
    dropped = {"VISUAL", "EDITOR", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    python = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}  # an agent's file may change within a second
    return {**kept, "TERM": "xterm-256color", **python, **more}


class Piped:
    """The command with pipes for its streams."""

    def __init__(self, words: list[str], cwd: Path, *, is_new: bool = False, **env: str) -> None:
        (stdin, to_it), (from_it, stdout), (log, stderr) = os.pipe(), os.pipe(), os.pipe()
        streams = (stdin, stdout, stderr)
        self._process = start(words, cwd=cwd, env=environment(**env), streams=streams, is_new=is_new)
        for theirs in streams:
            os.close(theirs)
        self._in, self._out, self._err = os.fdopen(to_it, "w"), os.fdopen(from_it), os.fdopen(log)
        self._watchdog = threading.Timer(DEADLINE_S, self._process.kill)
        self._watchdog.start()
        self.err = ""
        self.out = ""

    def read_until(self, text: str) -> None:
        """Read the log until `text` is there."""
        while text not in self.err:
            line = self._err.readline()
            assert line, f"{text!r} never came; the log was:\n{self.err}"
            self.err += line

    def stop_reading(self) -> None:
        """Close its standard output after the first line."""
        self._out.readline()
        self._out.close()

    def interrupt(self) -> None:
        """Ctrl-C, as a shell would send it."""
        self._process.send_signal(signal.SIGINT)

    def write(self, text: str) -> None:
        """Write to its standard input; `end` closes that."""
        self._in.write(text)

    def end(self) -> int:
        """Read what is left, and the exit code."""
        with suppress(BrokenPipeError):
            self._in.close()
        with ThreadPoolExecutor(1) as beside:
            out = beside.submit(lambda: "" if self._out.closed else self._out.read())
            self.err += self._err.read()
            self.out += out.result()
        code = self._process.wait(DEADLINE_S)
        self._watchdog.cancel()
        return code

    def close(self) -> None:
        """End it, if it has not ended by itself."""
        self._watchdog.cancel()
        self._process.kill()
        self._process.wait()
        for stream in (self._in, self._out, self._err):
            with suppress(BrokenPipeError):
                stream.close()


class Terminal:
    """The command on a terminal of its own: type, and look at what it wrote."""

    def __init__(
        self,
        words: list[str],
        cwd: Path,
        *,
        program: str = "",
        size: tuple[int, int] = SIZE,
        **env: str,
    ) -> None:
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, size)
        self.mode_before = termios.tcgetattr(slave)
        self._slave = slave
        streams = (slave, slave, slave)
        self._process = (
            Interpreter(program, words, cwd, environment(**env), streams, leads=True)
            if program
            else start(words, cwd=cwd, env=environment(**env), streams=streams, on_terminal=True)
        )
        self._ends_at = time.monotonic() + DEADLINE_S
        self._raw = b""
        self._text = ""
        self._read_up_to = 0
        self._seen = 0

    @property
    def text(self) -> str:
        """Everything that was written, without colours and cursor movements."""
        if self._read_up_to != len(self._raw):
            self._read_up_to = len(self._raw)
            self._text = ANSI.sub("", self._raw.decode(errors="replace")).replace("\r", "")
        return self._text

    @property
    def raw(self) -> str:
        """Everything that was written, with all that moves the cursor."""
        return self._raw.decode(errors="replace")

    def expect(self, text: str) -> None:
        """Read until `text` is there, behind what was expected before."""
        while (at := self.text.find(text, self._seen)) < 0:
            assert self._read(), f"{text!r} never came; the screen was:\n{self.text[self._seen :][-3000:]}"
        self._seen = at + len(text)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def mode(self) -> list[object]:
        """How the terminal is set now."""
        return termios.tcgetattr(self._slave)

    def stop(self) -> None:
        """Ask the process to stop, as Ctrl-Z does."""
        self._process.send_signal(signal.SIGTSTP)

    def wait_given_back(self) -> None:
        """Wait until the terminal is set as before, without reading what is written to it."""
        while self.mode() != self.mode_before:
            assert time.monotonic() < self._ends_at, "the terminal was never given back"
            os.sched_yield()

    def end(self, pressing: str = "") -> int:
        """Read to the end, pressing a key all the while if one is given; returns the exit code."""
        while self._process.poll() is None:
            self.type(pressing)
            self._read(0.05)
            assert time.monotonic() < self._ends_at, f"it never ended; the screen was:\n{self.text[-3000:]}"
        while select.select([self._master], [], [], 0)[0] and self._read():
            pass
        return self._process.wait()

    def wait_stopped(self) -> None:
        """Wait until the process is stopped."""
        self._process.wait_stopped()

    def hang_up(self) -> None:
        """Close the person's end of the terminal, as closing its window does."""
        os.close(self._master)
        self._master = -1
        self._process.wait(timeout=DEADLINE_S)

    def resume_run(self) -> None:
        """Let the stopped process go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process, as `kill -9` does."""
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """Ask the process to end, as a service manager would."""
        self._process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End it, if it has not ended by itself."""
        self._process.kill()
        self._process.wait()
        if self._master >= 0:
            os.close(self._master)
        os.close(self._slave)

    def _read(self, patience_s: float | None = None) -> bool:
        wait_s = self._ends_at - time.monotonic() if patience_s is None else patience_s
        ready, _, _ = select.select([self._master], [], [], max(0.0, wait_s))
        data = os.read(self._master, 65536) if ready else b""
        self._raw += data
        return bool(data)


@pytest.fixture
def at_terminal(tmp_path: Path, agent_file: Path) -> Iterator[Callable[..., Terminal]]:
    """Starts `harborage` with these words on a terminal."""
    started: list[Terminal] = []

    def begin(*words: str, cwd: Path = tmp_path, size: tuple[int, int] = SIZE, **env: str) -> Terminal:
        started.append(Terminal(list(words), cwd, size=size, **env))
        return started[-1]

    yield begin
    for one in started:
        one.close()


@pytest.fixture
def under_make(tmp_path: Path, agent_file: Path) -> Iterator[Callable[..., Terminal]]:
    """Starts `harborage` with these words below a program that stops by itself at Ctrl-Z, in a shell on a terminal."""
    started: list[Terminal] = []

    def begin(*words: str) -> Terminal:
        job = f"{sys.executable} -P -c '{COMMAND}' {' '.join(words)}\n:\n"
        (tmp_path / "job.sh").write_text(job, "utf-8")
        started.append(Terminal([], tmp_path, program=SHELL, PS1="ready> "))
        started[-1].type("sh job.sh\r")
        return started[-1]

    yield begin
    for one in started:
        one.close()


@pytest.fixture
def in_pipe(tmp_path: Path, agent_file: Path) -> Iterator[Callable[..., Piped]]:
    """Starts `harborage` with these words and pipes."""
    started: list[Piped] = []

    def begin(*words: str, cwd: Path = tmp_path, is_new: bool = False, **env: str) -> Piped:
        started.append(Piped(list(words), cwd, is_new=is_new, **env))
        return started[-1]

    yield begin
    for one in started:
        one.close()


@pytest.fixture
def piped(tmp_path: Path, agent_file: Path) -> Iterator[Callable[..., Piped]]:
    """Starts `harborage run agent.py …` with pipes; `target` names another agent."""
    started: list[Piped] = []

    def begin(*words: str, target: str = "agent.py", **env: str) -> Piped:
        started.append(Piped(["run", target, *words], tmp_path, **env))
        return started[-1]

    yield begin
    for one in started:
        one.close()


@pytest.fixture
def terminal(tmp_path: Path, agent_file: Path) -> Iterator[Callable[..., Terminal]]:
    """Starts `harborage run agent.py …` on a terminal; `target` names another agent, or begins a goal without one."""
    started: list[Terminal] = []

    def begin(*words: str, target: str = "agent.py", **env: str) -> Terminal:
        started.append(Terminal(["run", target, *words], tmp_path, **env))
        return started[-1]

    yield begin
    for one in started:
        one.close()
