"""`harborage dev` and `harborage serve` as processes: what they print, whom they let in, how they reload and stop."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx2
import pytest

from harborage.server.auth.minting import TokenMint, load_signing_key, write_new_key
from tests.cli.conftest import DEADLINE_S
from tests.kit.configurations import text_of
from tests.kit.forked import command_line

CLERK = """
    from harborage import Agent, CallTool, Finish, FinishReason, tool

    @tool(effects="write", approval="always")
    async def order(item: str) -> str:
        \"\"\"Order something.\"\"\"
        return "{word}"

    class Clerk:
        async def next(self, run):
            steps = run.trajectory.steps
            return Finish(FinishReason.GOAL, "{word}") if steps else CallTool("order", item="tea")

    agent = Agent("{name}", planner=Clerk(), tools=[order])
"""
MODELLED = """
    from harborage import Agent

    agent = Agent("modelled", model="openai:gpt-5")
"""


class Process:
    """A server in another process; its stderr is read line by line."""

    def __init__(self, folder: Path, *words: str, **variables: str) -> None:
        env = {**{k: v for k, v in os.environ.items() if not k.startswith(("HARBOR", "OPENAI"))}, **variables}
        self._process = subprocess.Popen(
            command_line(*words),
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._unread: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for line in stream:
                self._unread.put(line.rstrip("\n"))
        self._unread.put(None)

    def line(self, holds: str) -> str:
        """The next line on stderr that holds a text."""
        while True:
            line = self._unread.get(timeout=DEADLINE_S)
            assert line is not None, f"it ended without saying {holds!r}: {self.lines}"
            self.lines.append(line)
            if holds in line:
                return line

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        code = self._process.wait(DEADLINE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def wait(self) -> int:
        """The exit code of a process that ends by itself, once all of stderr is in `lines`."""
        while (line := self._unread.get(timeout=DEADLINE_S)) is not None:
            self.lines.append(line)
        return self.stop()


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a command in the folder of the test."""
    begun: list[Process] = []

    def start(*words: str, **variables: str) -> Process:
        begun.append(Process(tmp_path, *words, **variables))
        return begun[-1]

    yield start
    for process in begun:
        process.stop(signal.SIGKILL)


def write(folder: Path, word: str, name: str = "clerk") -> Path:
    """Write the agent file anew."""
    path = folder / "agent.py"
    path.write_text(dedent(CLERK.format(word=word, name=name)), "utf-8")
    return path


class Client:
    """Posts to a development server with its token."""

    def __init__(self, process: Process) -> None:
        token = process.line("HARBOR_DEV_TOKEN=").partition("=")[2]
        bound = process.line("HARBOR_DEV_BOUND=").partition("=")[2]
        self.base = f"http://{bound}"
        self.headers = {"authorization": f"Bearer {token}"}

    def post(self, path: str, body: Any) -> Any:
        """The answer to one request."""
        reply = httpx2.post(f"{self.base}{path}", json=body, headers=self.headers, timeout=DEADLINE_S)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def until(self, path: str, body: Any, is_so: Callable[[Any], bool]) -> Any:
        """The first answer for which something is so; the server is asked again and again, until the deadline."""
        ends = time.monotonic() + DEADLINE_S
        while not is_so(answer := self.post(path, body)):
            assert time.monotonic() < ends, answer
        return answer


def test_a_development_server_runs_steers_and_stops(start: Start, tmp_path: Path) -> None:
    """Its token starts a run, which waits for an approval that a second request gives; SIGTERM ends it with 0."""
    write(tmp_path, "ordered")
    process = start("dev", "--bind", "127.0.0.1:0", "--storage", "memory:")
    client = Client(process)
    assert httpx2.get(f"{client.base}/healthz").json() == {"status": "ok", "subcommand": "dev"}
    run = client.post("/v1/control/start", {"query": "order tea"})["task_id"]
    client.until("/v1/pause/list", {}, lambda found: found["snapshots"])
    client.post("/v1/control/approve", {"identity": {"run": run, "scope": "owner_user"}})
    ended = client.until("/v1/tasks/get", {"id": run}, lambda found: found["task"]["status"] == "complete")
    assert "ordered" in ended["result_inline"]
    assert process.stop() == 0


def test_a_page_of_this_machine_gets_a_token(start: Start, tmp_path: Path) -> None:
    """The bootstrap answers with the address that was asked, and any origin may read the other answers."""
    write(tmp_path, "ordered")
    client = Client(start("dev", "agent.py", "--bind", "127.0.0.1:0", "--storage", "memory:"))
    given = httpx2.post(f"{client.base}/v1/dev/bootstrap.json").json()
    assert given["base_url"] == client.base
    assert given["identity"] == {"tenant": "dev", "user": "dev", "session": "dev"}
    reply = httpx2.post(
        f"{client.base}/v1/pause/list",
        headers={"authorization": f"Bearer {given['token']}", "origin": "http://localhost:5173"},
    )
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == "http://localhost:5173"


def test_a_draft_becomes_a_project_beside_the_agents(start: Start, tmp_path: Path) -> None:
    """It is kept in the data folder until it is saved; without the token there is none."""
    write(tmp_path, "ordered")
    client = Client(start("dev", "agent.py", "--bind", "127.0.0.1:0", "--storage", "memory:"))
    assert httpx2.post(f"{client.base}/v1/dev/drafts", json={"name": "shop"}).status_code == 401
    reply = httpx2.post(f"{client.base}/v1/dev/drafts", json={"name": "shop"}, headers=client.headers)
    made = reply.json()
    assert (tmp_path / ".harborage" / "drafts" / "dev" / "dev" / "dev" / made["draft_id"] / "agent.py").is_file()
    client.post(f"/v1/dev/drafts/{made['draft_id']}/save", {"name": "shop"})
    assert (tmp_path / "shop" / "harborage.yaml").is_file()


def test_an_edit_is_served_and_a_bad_one_refused(start: Start, tmp_path: Path) -> None:
    """A run that waits goes on with the new code; the token, the address and the open requests stay."""
    path = write(tmp_path, "old")
    process = start("dev", "--bind", "127.0.0.1:0", "--storage", "memory:")
    client = Client(process)
    run = client.post("/v1/control/start", {"query": "order tea"})["task_id"]
    client.until("/v1/pause/list", {}, lambda found: found["snapshots"])
    path.write_text("agent = nothing\n", "utf-8")
    assert "NameError" in process.line("was not reloaded")
    path.write_text("import os\nos._exit(7)\n", "utf-8")
    assert "exit code 7" in process.line("was not reloaded")
    assert client.post("/v1/agents/list", {})["agents"][0]["name"] == "clerk"
    write(tmp_path, "new")
    process.line("reloaded: agent.py")
    client.post("/v1/control/approve", {"identity": {"run": run, "scope": "owner_user"}})
    ended = client.until("/v1/tasks/get", {"id": run}, lambda found: found["task"]["status"] == "complete")
    assert "new" in str(ended)
    assert process.stop(signal.SIGINT) == 0


def test_runs_go_on_at_the_next_start(start: Start, tmp_path: Path) -> None:
    """A server that is stopped while a run waits loses nothing: the next one over the database answers for it."""
    write(tmp_path, "ordered")
    words = ("dev", "--bind", "127.0.0.1:0", "--storage", "sqlite:runs.db")
    first = start(*words)
    client = Client(first)
    run = client.post("/v1/control/start", {"query": "order tea"})["task_id"]
    client.until("/v1/pause/list", {}, lambda found: found["snapshots"])
    assert first.stop() == 0
    client = Client(start(*words))
    client.post("/v1/control/approve", {"identity": {"run": run, "scope": "owner_user"}})
    client.until("/v1/tasks/get", {"id": run}, lambda found: found["task"]["status"] == "complete")


def test_the_mock_answers_for_every_model(start: Start, tmp_path: Path) -> None:
    """With a banner, and said to every client that asks."""
    (tmp_path / "agent.py").write_text(dedent(MODELLED), "utf-8")
    process = start("dev", "--bind", "127.0.0.1:0", "--storage", "memory:", HARBOR_DEV_ALLOW_MOCK="1")
    assert process.line("DEV-ONLY MOCK LLM")
    client = Client(process)
    assert client.post("/v1/control/llm.posture", {})["mock_mode"] is True
    run = client.post("/v1/control/start", {"query": "say tides"})["task_id"]
    ended = client.until("/v1/tasks/get", {"id": run}, lambda found: found["task"]["status"] == "complete")
    assert "tides" in ended["result_inline"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("serve", "agent.py"), "--keys"),
        (("serve", "agent.py", "--keys", "nowhere.json"), "nowhere.json"),
        (("dev", "nowhere.py"), "there is no file nowhere.py"),
        (("dev", "agent.py", "--bind", "here"), "HOST:PORT"),
        (("dev", "agent.py", "--console-dir", "."), "index.html"),
        (("dev", "agent.py", "--storage", "mongo:x"), "mongo"),
    ],
)
def test_wrong_use_is_one_line_with_the_fix(start: Start, tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    """Nothing is served."""
    write(tmp_path, "ordered")
    process = start(*words)
    assert process.wait() in (1, 2)
    assert len(process.lines) == 1, process.lines
    assert says in process.lines[0]


def test_a_server_with_keys_lets_in_the_tokens_that_they_sign(start: Start, tmp_path: Path) -> None:
    """A request without a token is refused."""
    write(tmp_path, "ordered")
    public = write_new_key(tmp_path / "key.pem")
    process = start("serve", "agent.py", "--bind", "127.0.0.1:0", "--keys", str(public), "--storage", "memory:")
    base = process.line("serving on http://").rpartition(" ")[2]
    token, _ = TokenMint(key=load_signing_key(tmp_path / "key.pem")).sign("acme", "ada", "s")
    bearer = {"authorization": f"Bearer {token}"}
    assert httpx2.post(f"{base}/v1/pause/list", headers=bearer).status_code == 200
    assert httpx2.post(f"{base}/v1/pause/list").status_code == 401
    assert process.stop() == 0


def test_fixtures_are_served_beside_the_agents(start: Start, tmp_path: Path) -> None:
    """In memory, with a banner; the agents of the file come first."""
    write(tmp_path, "ordered")
    process = start("dev", "--bind", "127.0.0.1:0", "--seed-fixtures")
    assert process.line("DEV-ONLY FIXTURES")
    client = Client(process)
    names = [row["name"] for row in client.post("/v1/agents/list", {})["agents"]]
    assert (names[0], len(names)) == ("clerk", 4)
    assert len(client.post("/v1/sessions/list", {})["rows"]) == 7
    assert not (tmp_path / ".harborage").exists()


def test_a_development_server_takes_a_configuration(start: Start, tmp_path: Path) -> None:
    """All but the keys is the file's, which is read again with the code; a wrong edit of it is refused."""
    (tmp_path / "agent.py").write_text("from harborage import Agent\nagent = Agent('clerk')\n", "utf-8")
    llm = {"llm.driver": "bifrost", "llm.provider": "openai", "llm.model": "gpt-5", "llm.api_key": "env:NONE"}
    changes = {**llm, "server.public_url": "https://agents.example"}
    (tmp_path / "c.yaml").write_bytes(text_of(changes))
    process = start("dev", "--config", "c.yaml", "--bind", "127.0.0.1:0", HARBOR_DEV_ALLOW_MOCK="1")
    client = Client(process)
    run = client.post("/v1/control/start", {"query": "hello"})["task_id"]
    client.until("/v1/tasks/get", {"id": run}, lambda found: found["task"]["status"] == "complete")
    (tmp_path / "c.yaml").write_bytes(text_of({**changes, "project": ""}))
    assert "c.yaml" in process.line("was not reloaded")
    (tmp_path / "c.yaml").write_bytes(text_of({**changes, "project": "shop"}))
    process.line("reloaded: c.yaml")
    assert client.post("/v1/agents/list", {})["agents"][0]["name"] == "clerk"
    assert process.stop() == 0
