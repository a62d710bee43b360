"""The Playground in a real browser, on a real server: talk, steer, queue, attach, and be told nothing that runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests_console.browser import Tab
from tests_console.run_world import HOSTILE
from tests_console.served import ROOT, DevServer, dev_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WORLD = ROOT / "tests_console" / "play_world.py"


@pytest.fixture(scope="module")
def play(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """A server of agents to talk to."""
    with dev_server(tmp_path_factory.mktemp("play"), target=WORLD) as server:
        yield server


@pytest.fixture
def tab(browser: Browser, play: DevServer) -> Iterator[Tab]:
    """A page of that server."""
    opened = Tab(browser, play.url)
    opened.page.set_default_timeout(15_000)
    yield opened
    opened.close()


def _open(tab: Tab, agent: str, session: str) -> Page:
    page = tab.open(f"/playground/{session}?agent={agent}")
    page.wait_for_selector(".chat-empty")
    return page


def _say(page: Page, text: str) -> None:
    page.fill("textarea[aria-label=Message]", text)
    page.keyboard.press("Control+Enter")


def test_an_answer_grows_while_it_is_written(tab: Tab) -> None:
    """The words come before the answer is complete, as Markdown; the next question takes along what was said."""
    page = _open(tab, "typist", "talk-1")
    _say(page, "What runs out this week?")
    page.wait_for_selector(".turn[data-status=running] .is-growing strong >> text=tea")
    page.wait_for_selector(".turn[data-status=complete] .turn-answer li >> nth=1")
    page.click(".turn-fold")
    page.wait_for_selector(".turn-thought >> text=what does it cost")
    assert tab.barriers() == []

    with page.expect_request("**/v1/control/start") as started:
        _say(page, "Order it")
    assert [said["role"] for said in started.value.post_data_json["messages"]] == ["user", "assistant"]
    page.wait_for_selector(".turn[data-status=complete] >> nth=1")
    page.reload()
    page.wait_for_selector(".turn[data-status=complete] >> nth=1")
    assert page.locator(".turn-asked").all_inner_texts() == ["What runs out this week?", "Order it"]
    assert tab.faults == []


def test_a_run_that_works_is_steered_and_another_message_queued(tab: Tab) -> None:
    """A steer is a line with its fate; what is queued is sent when the run has ended, here by a cancel."""
    page = _open(tab, "slow", "talk-2")
    _say(page, "Wait for a long time")
    page.wait_for_selector("[data-call=wait_a_bit][data-state=done]")
    page.click('.composer button:text("Steer")')
    _say(page, "twelve are enough")
    steer = page.wait_for_selector("[data-control=USER_MESSAGE][data-fate=applied]")
    assert steer is not None
    assert "twelve are enough" in steer.inner_text()
    assert "Applied before step" in steer.inner_text()

    page.click('.composer button:text("Queue")')
    _say(page, "Wait once more")
    page.wait_for_selector(".queued >> text=Wait once more")
    page.click('button[aria-label="Cancel the run after this step"]')
    page.wait_for_selector(".turn[data-status=cancelled]")
    page.wait_for_selector(".turn-asked >> text=Wait once more")
    assert page.locator(".queued").count() == 0
    page.click('button[aria-label="Cancel the run after this step"]')
    assert tab.faults == []


def test_nothing_that_an_agent_says_runs(tab: Tab) -> None:
    """Markup in questions, reasoning, arguments, results and answers is shown as what it is: text."""
    page = _open(tab, "hostile", "talk-3")
    _say(page, f"Read {HOSTILE}")
    page.wait_for_selector(".turn[data-status=complete] .turn-answer")
    page.click(".turn-fold")
    page.click("[data-call=fetch_page] .line-button")
    page.wait_for_selector(".line-parts")
    assert "<script>" in page.inner_text(".turn-asked")
    assert page.locator(".chat :is(img, script, iframe, svg[onload], a[href^='javascript'])").count() == 0
    assert page.evaluate("window.hacked") is None
    assert tab.faults == []


def test_a_pasted_file_becomes_part_of_the_question(tab: Tab) -> None:
    """A file that is attached is kept as an artifact, and a steer refuses it."""
    page = _open(tab, "typist", "talk-4")
    page.set_input_files("input[type=file]", {"name": "list.csv", "mimeType": "text/csv", "buffer": b"item,count\n"})
    page.wait_for_selector(".files >> text=11 B")
    with page.expect_request("**/v1/control/start") as started:
        _say(page, "What is in this list?")
    sent = started.value.post_data_json
    assert len(sent["input_artifact_ids"]) == 1
    page.wait_for_selector(".turn[data-status=complete]")
    assert page.locator(".files").count() == 0
    assert tab.faults == []
