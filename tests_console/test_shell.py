"""The frame around the pages: keys, palette, phone, themes."""

from __future__ import annotations

import pytest

from tests_console.conftest import OpenTab


def test_the_keyboard_leads_everywhere(tab: OpenTab) -> None:
    """Two keys to a page, the palette to any page by its name, `?` to the list of keys; Escape closes."""
    opened = tab()
    page = opened.open("/overview")
    page.keyboard.press("g")
    page.keyboard.press("i")
    page.wait_for_url("**/inbox")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Search or run a command").fill("mem")
    page.get_by_role("option", name="Memory").wait_for()
    assert opened.barriers() == []
    page.keyboard.press("Enter")
    page.wait_for_url("**/memory")
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    assert opened.barriers() == []
    page.keyboard.press("Escape")
    page.get_by_role("dialog", name="Keys").wait_for(state="detached")
    assert opened.faults == []


def test_single_keys_can_be_turned_off(tab: OpenTab) -> None:
    """Then a letter does nothing, and a key with Ctrl still does."""
    page = tab().open("/settings/keys")
    page.get_by_role("button", name="Off").click()
    page.keyboard.press("g")
    page.keyboard.press("i")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Search or run a command").wait_for()
    assert page.evaluate("location.pathname") == "/settings/keys"


@pytest.mark.parametrize("path", ["/overview", "/settings/runtime", "/gallery", "/more"])
def test_a_phone_in_the_dark_has_it_all(tab: OpenTab, path: str) -> None:
    """At 360 pixels nothing scrolls sideways, the tabs are at the thumb, and axe finds nothing."""
    opened = tab(width=360, height=780, theme="dark")
    page = opened.open(path)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.querySelector('.page').scrollWidth <= innerWidth")
    assert page.get_by_role("navigation", name="Main").is_visible()
    assert opened.barriers() == []


def test_the_chosen_theme_is_there_before_the_first_paint(tab: OpenTab) -> None:
    """It stays when the page is loaded again, whatever the device says."""
    page = tab(theme="light").open("/settings/appearance")
    page.get_by_role("button", name="Dark").click()
    page.reload(wait_until="commit")
    page.wait_for_selector("html[data-theme=dark]", state="attached")
    page.wait_for_selector("h1")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(12, 16, 17)"


def test_a_table_of_ten_thousand_rows_keeps_few_in_the_document(tab: OpenTab) -> None:
    """Keys move through all of them."""
    page = tab().open("/gallery")
    rows = page.locator(".gallery-table .table-rows > .table-row")
    assert rows.count() < 60
    rows.first.click()
    page.keyboard.press("End")
    page.get_by_role("row", name="Row 10000 of ten thousand").wait_for()
    assert rows.count() < 60


def test_a_person_approves_from_the_overview(tab: OpenTab) -> None:
    """Where the exact arguments stand in full; the row leaves when the server says that it was answered."""
    page = tab().open("/overview")
    row = page.locator(".need", has_text="refund").first
    link = row.locator("a.need-line").get_attribute("href")
    assert row.locator("code", has_text='"euros": 49').is_visible()
    row.get_by_role("button", name="Approve refund").click()
    page.wait_for_selector(f".need a[href='{link}']", state="detached")
    page.wait_for_selector(".lane:has-text('Order 7') >> [aria-label=Complete]")
