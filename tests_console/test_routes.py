"""Every page of the console opens in a real browser, says nothing wrong, and shuts nobody out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests_console.browser import Tab
from tests_console.conftest import OpenTab
from tests_console.served import DevServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGES = {
    "/overview": "Overview",
    "/inbox": "Inbox",
    "/live-runtime": "Live Runtime",
    "/sessions": "Sessions",
    "/tasks": "Tasks",
    "/agents": "Agents",
    "/tools": "Tools",
    "/events": "Events",
    "/background-jobs": "Background Jobs",
    "/playground": "Playground",
    "/flows": "Flows",
    "/memory": "Memory",
    "/mcp-connections": "MCP Connections",
    "/artifacts": "Artifacts",
    "/settings": "Settings",
    "/gallery": "Gallery",
}


@pytest.fixture(scope="module")
def one_tab(browser: Browser, served: DevServer) -> Iterator[Tab]:
    """One tab that is led from page to page."""
    opened = Tab(browser, served.url)
    yield opened
    opened.close()


@pytest.mark.parametrize("path", PAGES)
def test_a_page_opens_without_a_fault(one_tab: Tab, path: str) -> None:
    """It attaches by itself, logs no error, keeps its content policy, and axe finds nothing."""
    opened = one_tab
    opened.faults.clear()
    page = opened.open(path)
    assert page.locator("h1").count() == 1
    assert page.title().endswith("Harborage")
    assert opened.faults == []
    assert opened.barriers() == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [("/", "/overview"), ("/console/tasks/t-1", "/tasks/t-1"), ("/console/interventions/p", "/inbox/p")],
)
def test_an_address_of_a_notification_leads_to_its_page(tab: OpenTab, path: str, leads_to: str) -> None:
    """So does the bare address of the server."""
    page = tab().open(path)
    assert page.evaluate("location.pathname") == leads_to


def test_a_console_that_was_detached_asks_nothing(tab: OpenTab) -> None:
    """Every page ends at the settings, and no call leaves the browser."""
    opened = tab()
    page = opened.open("/overview")
    page.evaluate("localStorage.clear(); localStorage.setItem('harborage.detached', '1')")
    asked: list[str] = []
    page.on("request", lambda request: "/v1/" in request.url and asked.append(request.url))
    page.goto(f"{opened.url}/tasks")
    page.wait_for_url("**/settings")
    page.wait_for_selector("text=Not connected to a runtime")
    assert asked == []
