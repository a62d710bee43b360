"""The inbox in a real browser: a call is approved where it is seen, and of two answers one counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests_console.browser import Tab
from tests_console.conftest import OpenTab
from tests_console.served import DevServer, dev_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

REFUND = ("support", "Order 7 arrived broken: refund or replace")
OFF_GUARD_MS = 450


@pytest.fixture(scope="module")
def desk(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """A server whose approvals these tests answer."""
    folder: Path = tmp_path_factory.mktemp("inbox")
    with dev_server(folder) as server:
        yield server


@pytest.fixture
def open_desk(browser: Browser, desk: DevServer) -> Iterator[OpenTab]:
    """Opens pages of that server, each in a profile of its own."""
    opened: list[Tab] = []

    def open_tab(**options: int) -> Tab:
        opened.append(Tab(browser, desk.url, **options))
        return opened[-1]

    yield open_tab
    for one in opened:
        one.close()


def _waiting(tab: Tab, run: str) -> Page:
    """The inbox with the call of this run open."""
    page = tab.open("/inbox")
    page.click('.inbox-row:has-text("refund"):not(.is-past) >> nth=0')
    page.wait_for_selector(f'.inbox-head a[href="/tasks/{run}"]')
    page.wait_for_timeout(OFF_GUARD_MS)
    return page


def test_a_call_is_approved_with_the_key_and_its_run_goes_on(desk: DevServer, open_desk: OpenTab) -> None:
    """The exact arguments stand above the button; the answer is told in the list."""
    run = desk.ask([REFUND])[REFUND[1]]
    page = _waiting(open_desk(), run)
    assert page.inner_text(".inbox-args").split() == ["order", '"7"', "euros", "49"]
    page.keyboard.press("a")
    page.wait_for_selector('.inbox-row.is-past:has-text("approved by")')
    page.goto(f"{desk.url}/tasks/{run}")
    page.wait_for_selector('.run-goal svg[aria-label="Complete"]')


def test_of_two_answers_the_second_is_told_that_it_did_not_count(desk: DevServer, open_desk: OpenTab) -> None:
    """Whoever comes late sees who decided, and can press nothing any more."""
    run = desk.ask([REFUND])[REFUND[1]]
    first, second = _waiting(open_desk(), run), _waiting(open_desk(), run)
    held: list[object] = []
    second.route("**/v1/control/approve", lambda route: held.append(route))
    second.keyboard.press("a")
    second.wait_for_timeout(50)
    first.click('.inbox-buttons button:has-text("Reject")')
    first.fill(".inbox-act textarea", "too much")
    first.keyboard.press("Control+Enter")
    second.wait_for_selector("[data-fate=second]")
    assert "Your answer came second and was not counted." in second.inner_text("[data-fate=second]")
    assert second.locator('.inbox-buttons button:has-text("Approve")').count() == 0


def test_on_a_phone_a_call_has_a_page_of_its_own(desk: DevServer, open_desk: OpenTab) -> None:
    """The list leads to the call, and the call back; nothing scrolls sideways, and axe finds nothing."""
    run = desk.ask([REFUND])[REFUND[1]]
    tab = open_desk(width=360, height=780)
    page = _waiting(tab, run)
    assert not page.is_visible(".inbox-rows")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.barriers() == []
    page.click(".inbox-back")
    assert page.is_visible(".inbox-rows")
    assert tab.faults == []
