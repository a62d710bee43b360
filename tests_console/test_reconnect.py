"""A console outlives its server: the page stays, says so, and goes on when the server is back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests_console.browser import Tab
from tests_console.served import dev_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_a_server_that_is_killed_and_started_again_is_found_without_a_jump(browser: Browser, tmp_path: Path) -> None:
    """The stream's loss is told with the next try; then it is live again with a new token, and nothing was loaded
    anew."""
    with dev_server(tmp_path) as first:
        tab = Tab(browser, first.url)
        page = tab.open("/overview")
        page.wait_for_selector(".statusbar >> text=Live")
        page.evaluate("window.stayed = true")
        first.kill()
        page.wait_for_selector("text=Stream lost")
        page.wait_for_selector("text=Controls still work")
    with dev_server(tmp_path, port=int(first.url.rpartition(":")[2])) as second:
        page.wait_for_selector(".statusbar >> text=Live")
        page.wait_for_selector("text=Stream lost", state="detached")
        second.ask([("support", "Order 12: where is my parcel?")])
        page.wait_for_selector(".lane >> text=Order 12")
        assert page.evaluate("window.stayed")
        tab.close()
