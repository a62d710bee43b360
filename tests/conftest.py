"""What every test shares: asyncio as the one backend, and a run that never hangs and prints what fails as it goes on.

A test that takes longer than `timeout` (pyproject.toml) fails, and what waits on its event loop is printed with it. One
that does not even end then, or blocks in C code, takes its process down with the stacks of all threads.
"""

from __future__ import annotations

import asyncio
import compileall
import faulthandler
import gc
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

_STDERR: pytest.StashKey[int] = pytest.StashKey()
_CAP: pytest.StashKey[Any] = pytest.StashKey()
_ADDRESS = re.compile(r"\bat 0x[0-9a-f]+")
# Hundreds of processes that the tests start read the package, and each run reads the tests. So what is compiled here is
# kept, also where the environment says otherwise; not what the tests write and import themselves.
sys.dont_write_bytecode = False
_PACKAGE = Path(__file__).resolve().parents[1] / "src" / "harborage"
_MEMORY = Path("/dev/shm")
_ROOM = 2 << 30


@pytest.fixture
def anyio_backend() -> str:
    """Harborage runs on asyncio alone."""
    return "asyncio"


_loaded: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def modules_stay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test may drop or replace a module of the package: another one patches what it imported from it. Modules that a
    test wrote itself go with it: another one may write some of the same name."""
    known = len(sys.modules)
    yield
    if len(sys.modules) != known:
        _drop_written(f"{tmp_path_factory.getbasetemp()}{os.sep}")
    lost = [name for name, module in _loaded.items() if sys.modules.get(name) is not module]
    for name in lost:
        del _loaded[name]  # the test that did it fails, and no other
    assert not lost, f"modules that the test dropped or replaced: {lost}"
    if len(sys.modules) != known or not _loaded:
        _loaded.update((name, module) for name, module in sys.modules.items() if name.startswith("harborage."))


def _drop_written(folder: str) -> None:
    written = [name for name, one in sys.modules.items() if (getattr(one, "__file__", None) or "").startswith(folder)]
    for name in written:
        del sys.modules[name]


# ── What is printed ───────────────────────────────────────────────────────────────────────────────────────────────────


class Reporter:
    """Prints the order of the tests, before the first and after a failure, and what fails when it does."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @property
    def _terminal(self) -> Any:
        return self._config.pluginmanager.get_plugin("terminalreporter")

    @property
    def _seed(self) -> str:
        return f"The order of this run: --randomly-seed={self._config.getoption('randomly_seed', None)}"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        self._terminal.write_line(self._seed)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed:
            return
        crash = getattr(report.longrepr, "reprcrash", None)
        why = f": {crash.message.splitlines()[0]}" if crash is not None and crash.message else ""
        self._terminal.write("\n")
        self._terminal.write_line(f"FAILED in {report.when}: {report.nodeid}{why}", red=True)
        self._terminal.flush()

    def pytest_terminal_summary(self, exitstatus: int) -> None:
        if exitstatus:
            self._terminal.write_line(self._seed)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """The process that the others report to prints; a worker of pytest-xdist does not."""
    config.stash[_STDERR] = stderr = os.dup(2)  # before a test's is captured
    config.add_cleanup(lambda: os.close(stderr))
    # How long an example takes says how busy the machine is.
    settings.register_profile(
        "unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
    )
    settings.load_profile("unhurried")
    if hasattr(config, "workerinput"):
        return
    # pytest keeps what it imports in a form of its own, which no process that a test starts can read.
    compileall.compile_dir(_PACKAGE, quiet=2)
    if _has_room():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
    if config.pluginmanager.has_plugin("terminalreporter"):
        config.pluginmanager.register(Reporter(config), "reporter")


def _has_room() -> bool:
    """Whether the tests' folders may lie in memory: no test cuts the power, so none needs a disk that really writes."""
    try:
        found = os.statvfs(_MEMORY)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= _ROOM and not found.f_flag & (os.ST_RDONLY | os.ST_NOEXEC)


def pytest_collection_finish() -> None:
    """Nearly every module is imported by now, and what is there stays: the collector need not look at it again."""
    sys.dont_write_bytecode = True
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two processes that share the tests must agree on their names, so none may hold an address."""
    if unsteady := [item.nodeid for item in items if _ADDRESS.search(item.nodeid)]:
        raise pytest.UsageError(f"These tests are named otherwise in every process; give them ids: {unsteady}")


# ── No test hangs ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Iterator[None]:
    """Before the time is up for a test, print what waits on its event loop: the stack shows the loop alone."""
    item.stash[_CAP] = settings
    done = yield
    if settings.method == "signal":
        fail: Any = signal.getsignal(signal.SIGALRM)

        def print_and_fail(number: int, frame: Any) -> None:
            _print_tasks()
            fail(number, frame)

        signal.signal(signal.SIGALRM, print_and_fail)
    return done


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """A failure has stopped both clocks; what comes after it may hang, too."""
    cap = item.stash.get(_CAP, None)
    if cap is not None:
        item.config.hook.pytest_timeout_cancel_timer(item=item)
        item.config.hook.pytest_timeout_set_timer(item=item, settings=cap)
        last_s = float(item.config.getini("faulthandler_timeout"))
        faulthandler.dump_traceback_later(last_s, exit=True, file=item.config.stash[_STDERR])
    return (yield)


def _print_tasks() -> None:
    """The tasks of the event loop that runs here, each with the lines where it waits."""
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        return
    for task in tasks:
        print(f"~~~ {task.get_name()}", file=sys.stderr)
        waiting: Any = task.get_coro()
        while waiting is not None:
            frame = next((found for name in _FRAMES if (found := getattr(waiting, name, None))), None)
            if frame is not None:
                code = frame.f_code
                print(f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_qualname}', file=sys.stderr)
            waiting = next((found for name in _AWAITED if (found := getattr(waiting, name, None))), None)


_FRAMES = ("cr_frame", "gi_frame", "ag_frame")
_AWAITED = ("cr_await", "gi_yieldfrom", "ag_await")
