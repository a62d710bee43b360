"""Debian's Chromium, and pages of it that remember what went wrong in them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page, sync_playwright

ROOT: Final = Path(__file__).resolve().parents[1]
BUILD: Final = ROOT / "src" / "harborage" / "server" / "console"
AXE: Final = ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js"
_FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_STANDARDS: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")


def missing() -> str:
    """Why no console can be looked at here; '' if one can."""
    if shutil.which("chromium") is None:
        return "there is no chromium here: apt-get install chromium"
    if not (BUILD / "index.html").is_file():
        return "the console is not built: make console"
    return ""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a screen."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=[*_FLAGS])
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A page in a profile of its own; `faults` are the errors that it logged, threw, or that its policy reported."""

    def __init__(
        self, browser: Browser, url: str, *, width: int = 1280, height: int = 800, theme: Any = "light"
    ) -> None:
        self.url = url
        self.faults: list[str] = []
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
        context.set_default_timeout(60_000)
        self.page: Page = context.new_page()
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda message: message.type == "error" and self.faults.append(message.text))

    def open(self, path: str) -> Page:
        """Load a path of the console and wait until its page is drawn."""
        self.page.goto(self.url + path)
        self.page.wait_for_selector("h1")
        self.settle()
        return self.page

    def settle(self) -> None:
        """Wait until nothing is on its way any more: no skeleton is left."""
        self.page.wait_for_selector(".page > *")
        self.page.wait_for_selector(".skeleton-rows:not(.gallery *)", state="detached")

    def close(self) -> None:
        """Close the page and forget its profile."""
        self.page.context.close()

    def barriers(self) -> list[str]:
        """What axe finds on the page: a line for each element that breaks a rule."""
        self.page.evaluate(AXE.read_text("utf-8"))
        found = self.page.evaluate(f"axe.run(document, {{runOnly: {json.dumps(_STANDARDS)}}})")
        return [
            f"{rule['id']}: {node['html'][:160]} ({node.get('failureSummary', '')[:240]})"
            for rule in found["violations"]
            for node in rule["nodes"]
        ]
