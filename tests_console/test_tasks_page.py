"""The list of tasks in a real browser: its filters stand in the address, and its selection takes controls."""

from __future__ import annotations

from playwright.sync_api import expect

from tests_console.conftest import OpenTab


def test_filters_stand_in_the_address_and_an_address_shows_its_rows(tab: OpenTab) -> None:
    """A status, words and the open row are linked to; clearing shows all again."""
    page = tab().open("/tasks")
    everything = page.locator(".table-rows .table-row").count()
    page.click('[aria-label="Status"] button:has-text("Waiting")')
    page.wait_for_url("**/tasks?status=paused")
    page.fill("[data-search]", "release")
    page.wait_for_url("**/tasks?status=paused&q=release")
    expect(page.locator(".table-rows .table-row")).to_have_count(1)
    deep = tab()
    linked = deep.open(page.evaluate("location.pathname + location.search"))
    linked.wait_for_selector('.table-row:has-text("Cut release 1.4")')
    assert linked.locator(".table-rows .table-row").count() == 1
    linked.click(".table-rows .table-row >> nth=0", position={"x": 80, "y": 4})
    linked.wait_for_selector(".task-rail-goal")
    assert "at=" in linked.url
    linked.click('[aria-label="Filters"] button:has-text("Clear")')
    expect(linked.locator(".table-rows .table-row")).to_have_count(everything)
    assert deep.faults == []


def test_what_is_selected_can_be_reviewed_but_not_approved(tab: OpenTab) -> None:
    """A run that waits for a person leads to its call; controls that would change nothing say why."""
    opened = tab()
    page = opened.open("/tasks?approval=1")
    page.click(".table-rows input[type=checkbox] >> nth=0")
    bar = page.locator('[aria-label="Selected tasks"]')
    assert bar.locator('button:has-text("Approve")').count() == 0
    assert bar.locator('button:has-text("Resume")').get_attribute("aria-disabled") == "true"
    assert opened.barriers() == []
    bar.locator('a:has-text("Review")').click()
    page.wait_for_selector(".inbox-args")


def test_the_board_shows_a_column_a_status_and_jobs_have_their_presets(tab: OpenTab) -> None:
    """A board scrolls within itself; the page of background jobs lists that kind alone."""
    opened = tab(width=360, height=780)
    page = opened.open("/tasks?layout=board")
    assert page.locator(".board-column").count() == 5
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page = opened.open("/background-jobs")
    assert page.locator('button:has-text("Stuck over 1 h")').count() == 1
    page.wait_for_selector("text=No background job yet")
    assert opened.faults == []
