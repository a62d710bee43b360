"""Pictures of pages of the console, to be looked at: `python -m tests_console.shots /overview /inbox`.

Each at two widths and in both themes. URL=http://… takes a server that runs; else one is started with runs to see.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser

from tests_console.browser import Tab, chromium, missing
from tests_console.served import dev_server

SIZES = ((1280, 800, "light"), (1280, 800, "dark"), (360, 780, "light"), (360, 780, "dark"))


def shoot(browser: Browser, url: str, paths: list[str], folder: Path) -> None:
    """Write a picture of each path, in each size, to a folder, and say what went wrong."""
    for path in paths:
        for width, height, theme in SIZES:
            tab = Tab(browser, url, width=width, height=height, theme=theme)
            tab.open(path).wait_for_timeout(700)
            file = folder / f"{path.strip('/').replace('/', '-') or 'root'}-{width}-{theme}.png"
            tab.page.screenshot(path=file)
            sys.stdout.write("\n".join([str(file), *(f"  {fault}" for fault in tab.faults), ""]))
            tab.close()


def main(paths: list[str]) -> None:
    """Take the pictures of these paths."""
    if why := missing():
        sys.exit(why)
    folder = Path(os.environ.get("FOLDER") or tempfile.mkdtemp(prefix="console-"))
    folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        if url := os.environ.get("URL"):
            shoot(browser, url, paths, folder)
            return
        with tempfile.TemporaryDirectory() as made, dev_server(Path(made)) as served:
            served.ask()
            time.sleep(5)
            shoot(browser, served.url, paths, folder)


if __name__ == "__main__":
    main(sys.argv[1:] or ["/overview"])
