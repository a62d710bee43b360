"""The plugin of pytest: a fixture of a clock, an option to record models anew, and tests that are coroutines.

It is there wherever Harborage is installed. `harborage_async = false` in the configuration of pytest leaves coroutines
to another plugin; those that a plugin such as anyio or pytest-asyncio takes are left to it in any case.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from harborage.testing.clock import FakeClock

_RECORD = "--harborage-record"
_ASYNC = "harborage_async"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what a project may choose."""
    group = parser.getgroup("harborage")
    group.addoption(
        _RECORD,
        metavar="MODEL",
        default="",
        help="record the cassettes of models anew with this model, as HARBORAGE_RECORD does",
    )
    parser.addini(_ASYNC, "run tests that are coroutines and that no other plugin runs", type="bool", default=True)


def pytest_configure(config: pytest.Config) -> None:
    """Record cassettes anew where the command line says so."""
    if model := config.getoption(_RECORD):
        from harborage.llm.cassette import RECORD_VARIABLE

        patch = pytest.MonkeyPatch()
        patch.setenv(RECORD_VARIABLE, model)
        config.add_cleanup(patch.undo)


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """Run a test that is a coroutine; None for one that is not, or that another plugin runs."""
    if not (inspect.iscoroutinefunction(pyfuncitem.obj) and pyfuncitem.config.getini(_ASYNC)):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    given: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names if name in pyfuncitem.funcargs}
    asyncio.run(pyfuncitem.obj(**given))
    return True


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that moves when the test says so: `Runtime(…, clock=fake_clock)`, then `await fake_clock.run_for(60)`."""
    from harborage.testing.clock import FakeClock

    return FakeClock()
