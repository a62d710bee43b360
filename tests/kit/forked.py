"""Commands of `harborage`, started fast: one process has loaded their modules, and each command is a fork of it.

    process = start(["run", "agent.py", "say hello"], cwd=folder, env=environment, streams=(stdin, stdout, stderr))
    assert process.wait(60) == 0

That process has one thread and no event loop, so a fork of it is as clean as a new interpreter, a second earlier. What
is about imports, or about how Python itself starts, starts a new interpreter; where there is no Linux, every command is
one. `command_line` is for libraries that start a process by themselves: a small one that stands for a fork.
"""

from __future__ import annotations

import atexit
import gc
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

Streams = tuple[int, int, int]
COMMAND = "import sys; from harborage.cli.main import main; sys.exit(main())"
# The terminal that standard input is becomes the controlling one, so that Ctrl-C and Ctrl-Z are signals as they should.
TAKE_TERMINAL = "import os; os.close(os.open(os.ttyname(0), os.O_RDWR))"

_MESSAGE = 1 << 18
_FILES = 1024
# Beside the commands themselves: what they load when they are at work.
_LOADED = (
    "acp",
    "apsw",
    "harborage.app",
    "harborage.server.application",
    "harborage.testing",
    "harborage.tools.builtin",
    "mcp",
    "rich.markdown",
    "uvicorn",
)


class Interpreter(subprocess.Popen[bytes]):
    """A Python of its own that runs `program` with these words."""

    def __init__(
        self, program: str, words: Sequence[str], cwd: Path, env: Mapping[str, str], streams: Streams, *, leads: bool
    ) -> None:
        command = [sys.executable, "-P", "-c", program, *words]
        stdin, stdout, stderr = streams
        super().__init__(command, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=leads)

    def wait_stopped(self) -> None:
        """Wait until it is stopped, as Ctrl-Z does."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)


class Forked:
    """A fork of the process that has everything loaded. The code of one that a signal ended is negative."""

    def __init__(self, status: int) -> None:
        self._status = os.fdopen(status, "rb", buffering=0)  # a line that waits in a buffer is not seen by select
        self.pid = int(self._line(None))
        self.returncode: int | None = None
        self.is_stopped = False

    def poll(self) -> int | None:
        """The exit code if it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; its exit code."""
        ends_at = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            self._read(None if ends_at is None else ends_at - time.monotonic())
        return self.returncode

    def wait_stopped(self) -> None:
        """Wait until it is stopped, as Ctrl-Z does."""
        while not self.is_stopped:
            assert self.returncode is None, f"it ended with {self.returncode}"
            self._read(None)

    def send_signal(self, sig: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.poll() is None:
            self.is_stopped = self.is_stopped and sig != signal.SIGCONT
            os.kill(self.pid, sig)

    def kill(self) -> None:
        """Kill it, if it has not ended."""
        self.send_signal(signal.SIGKILL)

    def _read(self, timeout: float | None) -> None:
        word, _, code = self._line(timeout).partition(" ")
        if word == "ended":
            self.returncode = int(code)
            self._status.close()
        else:
            self.is_stopped = True

    def _line(self, timeout: float | None) -> str:
        wait_s = None if timeout is None else max(timeout, 0)
        if not select.select([self._status], [], [], wait_s)[0]:
            raise subprocess.TimeoutExpired("harborage", timeout or 0)
        line = self._status.readline()
        assert line, "the process that commands are forked from is gone"
        return line.decode().strip()


def start(
    words: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    streams: Streams,
    on_terminal: bool = False,
    is_new: bool = False,
) -> Forked | Interpreter:
    """Start a command with these words. On a terminal it leads a session, whose terminal is its standard input.

    Where `is_new`, or elsewhere than on Linux, it is an interpreter of its own.
    """
    if is_new or sys.platform != "linux":
        program = f"{TAKE_TERMINAL}\n{COMMAND}" if on_terminal else COMMAND
        return Interpreter(program, words, cwd, env, streams, leads=on_terminal)
    return _ordered(_server(), words, str(cwd), env, streams, on_terminal)


def _ordered(
    orders: socket.socket, words: Sequence[str], cwd: str, env: Mapping[str, str], streams: Streams, on_terminal: bool
) -> Forked:
    reader, writer = os.pipe()
    order = {"words": list(words), "cwd": cwd, "env": dict(env), "on_terminal": on_terminal}
    socket.send_fds(orders, [json.dumps(order).encode()], [*streams, writer])
    os.close(writer)
    return Forked(reader)


def command_line(*words: str) -> list[str]:
    """What starts a command with these words, for libraries that start it by themselves."""
    if sys.platform != "linux":
        return [sys.executable, "-P", "-c", COMMAND, *words]
    _server()
    return [sys.executable, "-I", "-S", __file__, _address(), *words]


def _address() -> str:
    return f"harborage-tests-{os.getpid()}"


@cache
def _server() -> socket.socket:
    """The way to the process that has everything loaded; it ends when this one has."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-P", __file__, "", str(theirs.fileno()), _address()]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True)
    theirs.close()
    atexit.register(process.wait)
    atexit.register(ours.close)
    assert ours.recv(1)  # it listens
    return ours


# ── The process that has everything loaded ──────────────────────────────────────────────────────────────────────────


def _serve(control: socket.socket, address: str) -> int:
    """Fork for every order; returns in the fork alone, with the exit code of its command."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"\0{address}")
    listener.listen(64)
    control.send(b"!")
    statuses: dict[int, int] = {}
    woken, wake = os.pipe2(os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    while True:
        for file in _ready([control.fileno(), listener.fileno(), woken], statuses):
            if file == woken:
                os.read(woken, 4096)
                _report(statuses)
                continue
            orders = control if file == control.fileno() else listener.accept()[0]
            message, files, _, _ = socket.recv_fds(orders, _MESSAGE, 4)
            if not message:
                os._exit(0)
            pid = os.fork()
            if not pid:
                for one in (control, listener, orders):
                    one.detach()
                return _command(json.loads(message), files)
            if orders is not control:
                orders.close()
            statuses[pid] = files[3]
            _say(files[3], b"%d\n" % pid)
            for number in files[:3]:
                os.close(number)


def _ready(files: list[int], statuses: dict[int, int]) -> list[int]:
    """Wait for these files. A fork of which nobody wants to know any more is killed: who stood for it was."""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    for file in statuses.values():
        poll.register(file, 0)
    found = {file for file, _ in poll.poll()}
    for pid, file in statuses.items():
        if file in found:
            os.kill(pid, signal.SIGKILL)
    return [file for file in files if file in found]


def _report(statuses: dict[int, int]) -> None:
    for pid, status in _changed():
        if os.WIFSTOPPED(status):
            _say(statuses[pid], b"stopped\n")
        else:
            _say(statuses[pid], b"ended %d\n" % os.waitstatus_to_exitcode(status))
            os.close(statuses.pop(pid))


def _say(file: int, line: bytes) -> None:
    with suppress(BrokenPipeError):  # the test did not want to know
        os.write(file, line)


def _changed() -> Iterator[tuple[int, int]]:
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG | os.WUNTRACED))[0]:
            yield found


def _command(order: dict[str, object], files: list[int]) -> int:
    """Become the command: its streams, its environment, its folder."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    os.closerange(3, _FILES)
    if order["on_terminal"]:
        os.setsid()
        os.close(os.open(os.ttyname(0), os.O_RDWR))
    os.environ.clear()
    os.environ.update(order["env"])  # type: ignore[call-overload]
    time.tzset()
    os.chdir(str(order["cwd"]))
    _open_streams()
    sys.argv = ["-c", *order["words"]]  # type: ignore[misc]
    main = import_module("harborage.cli.main").main
    code: int = main()
    return code


def _open_streams() -> None:
    """The streams as Python opens them with PYTHONUNBUFFERED."""
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False), encoding="utf-8")  # type: ignore[misc]
    for name, number, errors in (("stdout", 1, "strict"), ("stderr", 2, "backslashreplace")):
        raw = io.FileIO(number, "wb", closefd=False)
        stream = io.TextIOWrapper(raw, encoding="utf-8", errors=errors, newline="\n", write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _load() -> None:
    main = import_module("harborage.cli.main")
    for target, *_ in (*main.COMMANDS.values(), *main.HIDDEN.values()):
        import_module(target.partition(":")[0])
    for name in _LOADED:
        import_module(name)
    gc.collect()
    gc.freeze()


# ── The process that stands for a fork ──────────────────────────────────────────────────────────────────────────────


def _stand_for(address: str, words: list[str]) -> int:
    """Start a command, pass signals on to it, and end as it does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as orders:
        orders.connect(f"\0{address}")
        process = _ordered(orders, words, os.getcwd(), os.environ, (0, 1, 2), False)
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, lambda which, _: process.send_signal(which))
    code = process.wait()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    if sys.argv[1]:
        os._exit(_stand_for(sys.argv[1], sys.argv[2:]))
    _load()
    sys.exit(_serve(socket.socket(fileno=int(sys.argv[2])), sys.argv[3]))
