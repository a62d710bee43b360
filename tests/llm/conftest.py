"""Servers from other projects: `llmock_peer`, `llmock_url` (llmock from PyPI) and `aimock` (from npm).

Each runs once a session, on a free loopback port, and is emptied before every test that asks for it.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

PEERS = Path(__file__).parent.parent / "peers"
AIMOCK = PEERS / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
_STARTING_S = 60.0
_ADDRESS = re.compile(r"(?:running|listening) on (http://127\.0\.0\.1:\d+)")


class Peer:
    """One server: where it is, and its control interface."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """What the server answers to one request, decoded."""
        answer = httpx2.request(method, f"{self.url}{path}", json=body, timeout=10)
        answer.raise_for_status()
        return answer.json() if answer.content else None


class LLMockPeer(Peer):
    """llmock: every provider's protocol below its own path, faults on demand, and a verdict on the client."""

    def script(self, *behaviors: dict[str, Any]) -> None:
        """What happens to the next requests: `{"type": "fail", "status": 429}`, `{"type": "reply", "text": …}`, …"""
        self.ask("POST", "/_llmock/scenario", {"behaviors": list(behaviors)})

    def requests(self) -> list[dict[str, Any]]:
        """Every request, with what happened to it."""
        return self.ask("GET", "/_llmock/requests")["requests"]

    def findings(self) -> list[str]:
        """What the client did wrong, by llmock's names (`truncated_stream_accepted`, `retry_after_ignored`, …)."""
        return [finding["code"] for finding in self.ask("GET", "/_llmock/verdict")["findings"]]


class AimockPeer(Peer):
    """aimock: answers of one pool, in whichever provider's protocol they are asked for."""

    def answer(self, response: dict[str, Any], *, match: dict[str, Any] | None = None, **options: Any) -> None:
        """Answer requests that match with this: `{"content": …, "reasoning": …, "toolCalls": […]}` or an error."""
        self.ask("POST", "/__aimock/fixtures", {"fixtures": [{"match": match or {}, "response": response, **options}]})

    def requests(self) -> list[dict[str, Any]]:
        """Every request that reached it, oldest first."""
        return self.ask("GET", "/__aimock/journal")


@pytest.fixture(scope="session")
def _llmock_server() -> Iterator[LLMockPeer]:
    command = Path(sys.executable).with_name("llmock")
    with _running([str(command), "serve", "--port", "0"]) as url:
        yield LLMockPeer(url)


@pytest.fixture
def llmock_peer(_llmock_server: LLMockPeer) -> LLMockPeer:
    """llmock with nothing scripted: `.url`, `.script(…)`, `.requests()`, `.findings()`."""
    _llmock_server.ask("POST", "/_llmock/reset")
    return _llmock_server


@pytest.fixture
def llmock_url(llmock_peer: LLMockPeer) -> str:
    """Where llmock listens; OpenAI is at `/v1`, others at `/anthropic`, `/gemini`, …"""
    return llmock_peer.url


@pytest.fixture(scope="session")
def _aimock_server() -> Iterator[AimockPeer]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("aimock needs node and npm on PATH")
    _install(npm)
    with _running([node, str(AIMOCK), "--port", "0", "--fixtures", str(PEERS / "aimock.json")]) as url:
        yield AimockPeer(url)


@pytest.fixture
def aimock(_aimock_server: AimockPeer) -> AimockPeer:
    """aimock without answers: `.url`, `.answer(…)`, `.requests()`; skipped where node or npm is missing."""
    _aimock_server.ask("POST", "/__aimock/reset")
    return _aimock_server


def _install(npm: str) -> None:
    """Put what package-lock.json pins into tests/peers/node_modules, once, however many workers ask."""
    lock = PEERS / "package-lock.json"
    with lock.open("rb") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        done = PEERS / "node_modules" / ".package-lock.json"
        if done.exists() and done.stat().st_mtime >= lock.stat().st_mtime:
            return
        ended = subprocess.run([npm, "ci"], cwd=PEERS, capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == 0, f"npm ci failed in {PEERS}:\n{ended.stderr}"
        done.touch()


class _running:
    """A server process for a block; entering it gives the address that the server says it listens on."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._reader: threading.Thread | None = None

    def __enter__(self) -> str:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        said: list[str] = []
        silence = threading.Timer(_STARTING_S, self._process.kill)
        silence.start()
        try:
            for line in self._process.stdout:
                said.append(line)
                if found := _ADDRESS.search(line):
                    # A server whose log nobody reads stands still when the pipe is full.
                    self._reader = threading.Thread(target=self._process.stdout.read, daemon=True)
                    self._reader.start()
                    return found.group(1)
        finally:
            silence.cancel()
        self._stop()
        raise AssertionError(f"{self._command[0]} did not start:\n{''.join(said)}")

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._reader is not None:
            self._reader.join(timeout=5)
        assert self._process.stdout is not None
        self._process.stdout.close()
