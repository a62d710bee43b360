"""What the tests of the console share: a server with runs of a scripted model, and a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests_console.browser import Tab, chromium, missing
from tests_console.served import DevServer, dev_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser

OpenTab = Callable[..., Tab]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests."""
    if why := missing():
        pytest.skip(why)
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="session")
def served(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """One server for all tests that change nothing of its runs: two wait for a person, one goes on, one failed."""
    with dev_server(tmp_path_factory.mktemp("console")) as server:
        server.ask()
        yield server


@pytest.fixture
def tab(browser: Browser, served: DevServer) -> Iterator[OpenTab]:
    """Opens pages of the console in profiles of their own, and closes them."""
    opened: list[Tab] = []

    def open_tab(**options: Any) -> Tab:
        opened.append(Tab(browser, served.url, **options))
        return opened[-1]

    yield open_tab
    for one in opened:
        one.close()
