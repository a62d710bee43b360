"""A development server of the world's agents in a process of its own, and a browser beside it.

python -m tests_console.served            # serves until Ctrl-C, with runs to look at
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from harborage import Identity
from harborage.client import connect
from tests_console.world import ASKED

ROOT: Final = Path(__file__).resolve().parents[1]
WORLD: Final = ROOT / "tests_console" / "world.py"
DEV: Final = Identity("dev", "dev", "dev")
_STARTS_WITHIN_S: Final = 60


class DevServer:
    """A `harborage dev` that listens at `url`; `token` may do everything there."""

    def __init__(self, process: subprocess.Popen[str], url: str, token: str) -> None:
        self.process = process
        self.url = url
        self.token = token

    def kill(self) -> None:
        """End the process as a crash does."""
        self.process.kill()
        self.process.wait()

    def ask(self, asked: Iterable[tuple[str, str]] = ASKED) -> dict[str, str]:
        """Start runs of these agents with these goals; return their ids by goal."""
        goals = list(asked)
        with ThreadPoolExecutor(1) as apart:  # a browser's own loop runs in this thread
            return apart.submit(lambda: asyncio.run(self._ask(goals))).result()

    async def _ask(self, asked: list[tuple[str, str]]) -> dict[str, str]:
        async with connect(self.url, token=self.token) as remote:
            runs = [await remote.start(agent, goal) for agent, goal in asked]
        return {goal: run.id for (_, goal), run in zip(asked, runs, strict=True)}


@contextmanager
def dev_server(folder: Path, *, target: Path = WORLD, port: int = 0) -> Iterator[DevServer]:
    """Serve `target` with its runs in a database in `folder`, until the block ends."""
    command = [sys.executable, "-m", "harborage.cli.main", "dev", str(target)]
    command += ["--bind", f"127.0.0.1:{port}", "--storage", f"sqlite:{folder / 'runs.db'}", "--no-hot-reload"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    log = (folder / "dev.log").open("w+", encoding="utf-8")
    with log, subprocess.Popen(command, cwd=folder, env=environ, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield _ready(process)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _ready(process: subprocess.Popen[str]) -> DevServer:
    assert process.stderr is not None
    said: dict[str, str] = {}
    for line in process.stderr:
        name, _, value = line.strip().partition("=")
        said[name] = value
        if "HARBOR_DEV_BOUND" in said:
            break
    else:
        raise RuntimeError(f"harborage dev did not start: {said}")
    return DevServer(process, f"http://{said['HARBOR_DEV_BOUND']}", said["HARBOR_DEV_TOKEN"])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    import tempfile

    with tempfile.TemporaryDirectory() as made, dev_server(Path(made), port=int(os.environ.get("PORT", "0"))) as served:
        served.ask()
        sys.stderr.write(f"{served.url}\n")
        served.process.wait()
