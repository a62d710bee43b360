"""The pages that show what happens: events, sessions, the live runtime."""

from __future__ import annotations

import re

from tests_console.conftest import OpenTab


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


def test_a_link_to_a_tab_of_a_session_opens_it(tab: OpenTab) -> None:
    """The list leads to the session; its runs, events and pauses stand behind addresses of their own."""
    opened = tab()
    page = opened.open("/sessions")
    page.get_by_role("link", name="dev", exact=True).click()
    page.wait_for_selector('a.session-row:has-text("Restock whatever runs out")')
    assert page.evaluate("location.pathname") == "/sessions/dev"
    page = opened.open("/sessions/dev?tab=events")
    page.wait_for_selector('[role="grid"] [data-index]:has-text("tool.") >> nth=0')
    page.get_by_role("tab", name="Pauses").click()
    page.wait_for_selector('.session-row:has-text("approve refund")')
    assert page.url.endswith("tab=pauses")
    page = opened.open("/sessions/nobody")
    page.wait_for_selector("text=No such session")
    assert [fault for fault in opened.faults if "404" not in fault] == []


def test_a_run_of_the_last_minutes_has_a_lane(tab: OpenTab) -> None:
    """The live runtime shows it below its session with its bars, and what waits beside it; so does a session's own."""
    opened = tab()
    page = opened.open("/live-runtime?window=15")
    page.wait_for_selector('a.live-lane[title="Re-embed the handbook"] .bar')
    page.wait_for_selector('.live-need:has-text("refund")')
    page = opened.open("/live-runtime/dev?window=15")
    page.wait_for_selector('a.live-lane[title="Re-embed the handbook"] .bar')
    assert opened.faults == []
