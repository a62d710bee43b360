"""A run's page in a real browser, on a real server: watch, answer, steer, go back in time, fork, compare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests_console.browser import Tab
from tests_console.run_world import HOSTILE
from tests_console.served import ROOT, DevServer, dev_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

WORLD = ROOT / "tests_console" / "run_world.py"
LONG = "Tick a thousand times"


@pytest.fixture(scope="module")
def shop(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """A server whose agents act, ask, wait and fail; its long run goes on while the other tests run."""
    folder: Path = tmp_path_factory.mktemp("runs")
    with dev_server(folder, target=WORLD) as server:
        yield server


@pytest.fixture(scope="module")
def long_run(shop: DevServer) -> str:
    """A run of a thousand steps, begun early."""
    return shop.ask([("long", LONG)])[LONG]


@pytest.fixture
def tab(browser: Browser, shop: DevServer) -> Iterator[Tab]:
    """A page of that server."""
    opened = Tab(browser, shop.url)
    yield opened
    opened.close()


def _start(shop: DevServer, agent: str, goal: str) -> str:
    return shop.ask([(agent, goal)])[goal]


def _row(page: Page, title: str) -> str:
    return f'.timeline-row:has(.row-title:text-is("{title}"))'


def _finished_order(shop: DevServer, tab: Tab, goal: str) -> str:
    """A restocked shop: its one order approved as it was asked."""
    run = _start(shop, "shop", goal)
    page = tab.open(f"/tasks/{run}")
    page.click("text=Review")
    page.wait_for_timeout(450)  # buttons ignore clicks for 400 ms after they changed
    page.click('.call-actions button:has-text("Approve")')
    page.wait_for_selector('.run-goal svg[aria-label="Complete"]')
    return run


def _await_end(shop: DevServer, tab: Tab, run: str) -> None:
    """Wait until a run has ended, with no page open that would follow it."""
    for _ in range(600):
        headers = {"Authorization": f"Bearer {shop.token}"}
        answer = tab.page.request.post(f"{shop.url}/v1/tasks/get", headers=headers, data={"id": run})
        if answer.json()["task"]["status"] == "complete":
            return
        tab.page.wait_for_timeout(500)
    pytest.fail(f"run {run} did not end")


def test_a_run_is_watched_live_and_its_edited_call_approved(shop: DevServer, tab: Tab, long_run: str) -> None:
    """Steps, the child's steps in place and the wait come by themselves; the button counts what was changed."""
    run = _start(shop, "shop", "Please restock tea before Friday")
    page = tab.open(f"/tasks/{run}")
    page.wait_for_selector('.call-strip:has-text("approve place_order")')
    assert page.locator('[role=treegrid] [role=row][aria-level="2"]').count() >= 4
    assert "failed" in (page.locator(_row(page, "fetch_quote")).first.get_attribute("aria-label") or "")
    assert page.locator(".call-actions >> text=Review").is_visible()
    page.keyboard.press("a")
    page.wait_for_timeout(50)
    assert page.locator('.call-strip:has-text("approve place_order")').is_visible()
    assert tab.barriers() == []

    page.keyboard.press("e")
    page.fill("#edit-count", "12")
    page.click('button:has-text("Approve with 1 change")')
    page.wait_for_selector('.run-goal svg[aria-label="Complete"]')
    page.locator(_row(page, "place_order")).click()
    page.wait_for_selector(".arguments ins >> text=12")
    assert page.locator(".arguments del").inner_text() == "20"
    assert "changed by dev" in page.locator(".arguments").inner_text()
    page.click("role=tab[name=/^Controls/]")
    page.wait_for_selector("[data-control=APPROVE][data-fate=applied]")
    assert tab.faults == []


def test_a_rejection_carries_its_reason(shop: DevServer, tab: Tab) -> None:
    """The reason is written in place, and the run goes on with it."""
    run = _start(shop, "shop", "Please restock, and be told no")
    page = tab.open(f"/tasks/{run}")
    page.wait_for_selector('.call-strip:has-text("approve place_order")')
    page.keyboard.press("r")
    page.fill(".call-form textarea", "there is tea enough")
    page.click('.call-form button:has-text("Reject")')
    page.wait_for_selector('.run-goal svg[aria-label="Complete"]')
    page.locator(_row(page, "place_order")).click()
    page.wait_for_selector('.step-part:has-text("Got") >> text=there is tea enough')


def test_each_control_tells_its_fate(shop: DevServer, tab: Tab) -> None:
    """Message, redirect, context, priority, pause, resume and cancel are shown as applied when their event says so."""
    run = _start(shop, "slow", "Wait for a long time")
    page = tab.open(f"/tasks/{run}?tab=controls")
    page.wait_for_selector(".timeline-row")

    def write(button: str, text: str) -> None:
        page.click(f'.run-controls button:has-text("{button}")')
        page.fill(".control-form textarea", text)
        page.click('.control-form button:has-text("Send")')

    def applied(name: str) -> None:
        page.wait_for_selector(f"[data-control={name}][data-fate=applied]")

    write("Message", "be quick")
    applied("USER_MESSAGE")
    write("Redirect", "Wait a little less")
    applied("REDIRECT")
    write("Add context", "It is late")
    applied("INJECT_CONTEXT")
    page.click('.run-controls button:has-text("Priority")')
    page.fill(".control-form input", "7")
    page.click('.control-form button:has-text("Send")')
    applied("PRIORITIZE")
    page.keyboard.press("Shift+P")
    page.wait_for_selector(".call-strip >> text=Paused by dev")
    applied("PAUSE")
    assert page.locator('.run-controls button:has-text("Pause")').get_attribute("title") == "The run already waits"
    page.keyboard.press("Shift+P")
    applied("RESUME")

    page.route("**/v1/control/user_message", lambda route: _refuse(route))
    write("Message", "this is not taken")
    page.wait_for_selector("[data-control=USER_MESSAGE][data-fate=not_sent] >> text=Not sent: payload_invalid")

    page.click('.run-controls button:has-text("Cancel")')
    page.click('.control-form button:has-text("Now, stops the call in flight")')
    page.wait_for_selector('.run-goal svg[aria-label^="Cancelled"]')
    assert page.locator('.run-controls button:has-text("Message")').get_attribute("title") == "The run has ended"


def _refuse(route: Route) -> None:
    body = json.dumps({"code": "payload_invalid", "message": "no"})
    route.fulfill(status=422, body=body, content_type="application/json")


def test_a_run_is_seen_as_it_stood_and_forked_from_there(shop: DevServer, tab: Tab) -> None:
    """Time travel hides what came later; a fork with another goal stands beside the run, with the first difference."""
    run = _finished_order(shop, tab, "Please restock, then look back")
    page = tab.page
    page.keyboard.press(",")
    page.wait_for_selector(".call-strip >> text=The run as it stood after step")
    while "after step 2," not in page.locator(".call-strip").inner_text():
        page.keyboard.press(",")
        page.wait_for_timeout(20)
    assert page.locator('.run-facts:has-text("2 steps")').is_visible()
    assert "is-later" in (page.locator(_row(page, "place_order")).get_attribute("class") or "")
    assert tab.barriers() == []
    page.keyboard.press("f")
    assert page.locator(".fork-popover h2").inner_text() == "Fork from step 3"
    page.fill(".fork-popover textarea", "Count only the rice")
    page.click('button:has-text("Fork and compare")')
    page.wait_for_url(f"**/tasks/{run}/compare/*")
    page.wait_for_selector(".first-difference >> text=First difference: step 3")
    page.wait_for_selector('.deltas:has-text("complete")')
    assert "Steps 1 to 2 are the same" in page.locator(".shared-steps").inner_text()
    page.keyboard.press("n")
    page.wait_for_selector(".compared-row.is-current")
    assert tab.barriers() == []
    assert tab.faults == []


def test_a_run_is_replayed_and_frozen(shop: DevServer, tab: Tab) -> None:
    """A replay says that it came out the same; freezing downloads the test and its record."""
    _finished_order(shop, tab, "Please restock, and keep it as a test")
    page = tab.page
    page.click('.run-controls button:has-text("Replay")')
    page.wait_for_selector("dialog >> text=It came out the same")
    page.keyboard.press("Escape")
    with page.expect_download() as got:
        page.click('.run-controls button:has-text("Freeze as test")')
    assert got.value.suggested_filename.endswith((".py", ".json"))


def test_no_hostile_value_runs(shop: DevServer, tab: Tab) -> None:
    """Goals, arguments, results, reasoning and answers are text, whatever they hold."""
    run = _start(shop, "hostile", f"Read {HOSTILE}")
    page = tab.open(f"/tasks/{run}")
    page.wait_for_selector('.run-goal svg[aria-label="Complete"]')
    page.wait_for_selector('.step-part:has-text("Answer") >> text=Done')
    for step in page.locator(".timeline-row").all():
        step.click()
        page.wait_for_timeout(100)
        folded = page.locator(".rail-body [aria-expanded=false]")
        while folded.count():
            folded.first.click()
    page.click("role=tab[name=/^Events/]")
    page.click(".event-rows button >> nth=2")
    page.click("role=tab[name=Raw]")
    assert page.evaluate("window.hacked") is None
    assert page.locator(".run-page :is(img, script, iframe, [href^='javascript:'])").count() == 0
    assert tab.faults == []


def test_what_a_server_lacks_is_absent(shop: DevServer, tab: Tab) -> None:
    """Without history and forks the page is whole from the stream alone, and asks for neither."""
    asked: list[str] = []

    def plain(route: Route) -> None:
        answer = route.fetch()
        told = answer.json()
        told["capabilities"] = [one for one in told["capabilities"] if not one.startswith("run_")]
        route.fulfill(response=answer, body=json.dumps(told))

    tab.page.route("**/v1/control/runtime.info", plain)
    tab.page.on("request", lambda request: asked.append(request.url))
    run = _start(shop, "shop", "Please restock at a plain server")
    page = tab.open(f"/tasks/{run}")
    page.wait_for_selector('.call-strip:has-text("approve place_order")')
    assert page.locator(_row(page, "place_order")).count() == 1
    assert page.locator("text=Fork from here").count() == 0
    assert page.locator("text=Replay").count() == 0
    assert page.locator('.step-part h3:has-text("Saw")').count() == 0
    assert not [url for url in asked if "/v1/runs/" in url]


def test_a_run_that_is_not_there_says_so(tab: Tab) -> None:
    """The page names the run that the runtime does not know, and leads back."""
    page = tab.open("/tasks/01M8GGEQRR8BRQYAYH817TYEJX")
    page.wait_for_selector("text=No such run")
    assert page.locator('.notice a[href="/tasks"]').is_visible()


def test_a_thousand_steps_are_a_few_rows(shop: DevServer, tab: Tab, long_run: str) -> None:
    """Only rows in sight are drawn, scrolling costs no more than opening, and failures are chips that jump."""
    _await_end(shop, tab, long_run)
    tab.page.add_init_script(
        "window.long = []; new PerformanceObserver(l => window.long.push(...l.getEntries()))"
        ".observe({type: 'longtask'})"
    )
    with tab.page.expect_response("**/v1/runs/steps", timeout=60_000):
        page = tab.open(f"/tasks/{long_run}")
    page.wait_for_selector('.run-facts:has-text("1,000 steps")')
    page.wait_for_selector(".minimap-strip canvas")
    assert page.locator(".timeline-row").count() < 60
    assert page.evaluate("document.querySelectorAll('*').length") < 2500
    page.wait_for_timeout(500)
    opening = page.evaluate("Math.max(100, ...window.long.splice(0).map(task => task.duration))")
    for share in (0.1, 0.5, 0.9, 0.3):
        page.evaluate(
            "s => new Promise(done => { const b = document.querySelector('.timeline-scroll');"
            " b.scrollTop = s * b.scrollHeight; requestAnimationFrame(() => requestAnimationFrame(done)); })",
            share,
        )
        assert page.locator(".timeline-row").count() < 60
    scrolling = page.evaluate("Math.max(0, ...window.long.map(task => task.duration))")
    assert scrolling <= opening
    page.click('.minimap-jumps .chip:has-text("failed")')
    page.wait_for_selector('.timeline-row.is-current[aria-label*="failed"]')
    page.keyboard.press("/")
    page.keyboard.type("tick 777")
    page.keyboard.press("Enter")
    page.wait_for_selector('.timeline-row.is-current[aria-label^="step 777"]')
    assert tab.faults == []
