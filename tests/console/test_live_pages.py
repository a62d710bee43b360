"""The pages that show what happens: events, sessions, the live runtime."""

from __future__ import annotations

import re

from tests.console.conftest import OpenTab


def test_events_arrive_and_are_filtered_by_the_address(tab: OpenTab) -> None:
    """The table holds what was before the page opened; a type in the address narrows it, and its payload opens."""
    opened = tab()
    page = opened.open("/events?type=task.failed")
    page.wait_for_selector('[role="grid"] [data-index]:has-text("task.failed")')
    assert page.locator('[role="grid"] [data-index]:has-text("tool.")').count() == 0
    page.locator('[role="grid"] [data-index]').first.click()
    page.wait_for_selector('aside:has-text("Payload")')
    assert "at=" in page.url
    page.get_by_role("button", name="Only this run").click()
    page.get_by_role("button", name="Clear Types").click()
    page.wait_for_selector('[role="grid"] [data-index]:has-text("tool.invoked")')
    assert re.search(r"\?run=", page.url)
    assert opened.faults == []
