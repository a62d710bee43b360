"""The programs of the cookbook run as they are, and print what their comments say.

Lines that begin with `# >` are what a program prints. Its model is a server on loopback, which answers with those of
`tests/data/docs_models.json`.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.kit.docs_models import answers_for
from tests.kit.llm_server import LLMServer
from tests.kit.tables import each_row

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/cookbook/*.py"))
# These only offer what a server calls; a test of their own calls it.
SERVERS = ["docs/cookbook/web_approval.py"]
# What a newcomer writes first is short.
SHORT = [
    "tool_agent",
    "typed_result",
    "chat",
    "parallel_agents",
    "streaming",
    "background",
    "sub_agent",
    "handoff",
    "workflow",
    "web_approval",
]


@pytest.mark.parametrize("page", PAGES)
def test_a_program_prints_what_it_says(
    page: str,
    provider: LLMServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Started in an empty folder it prints its `# >` lines; no answer of its model is left unasked."""
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / page), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == printed_by(page)
    assert len(provider.requests) == (0 if page in SERVERS else len(answers_for(page)))


@pytest.mark.anyio
@pytest.mark.parametrize("page", SERVERS)
async def test_a_refund_is_approved_over_the_web(
    page: str, provider: LLMServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request starts the run and shows what it asks, the next one approves it."""
    monkeypatch.chdir(tmp_path)
    program = runpy.run_path(str(ROOT / page))
    api, runtime, ada = program["api"], program["runtime"], program["ADA"]
    async with api.router.lifespan_context(api):
        started = await asked(api, "POST", "/runs", goal="Refund 40 € for order 7")
        assert started["asks"] == {"order": "7", "euros": 40}
        assert await asked(api, "POST", f"/runs/{started['run']}/approve") == {"approved": True}
        result = await runtime.get(started["run"], who=ada).result()
    assert result.output == "Refunded."
    assert len(provider.requests) == len(answers_for(page))


async def asked(api: Any, method: str, path: str, **query: str) -> Any:
    """Send one request straight to an ASGI application; return the JSON of its answer."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    text = "&".join(f"{name}={quote(value)}" for name, value in query.items())
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": text.encode()}
    scope |= {"headers": [], "http_version": "1.1", "scheme": "http", "root_path": "", "client": ("127.0.0.1", 1)}
    await api({**scope, "server": ("127.0.0.1", 80), "asgi": {"version": "3.0"}}, receive, send)
    assert sent[0]["status"] == 200, sent
    return json.loads(b"".join(message.get("body", b"") for message in sent))


@each_row("name", SHORT)
def test_a_first_program_is_short(name: str) -> None:
    """It has at most 15 lines of code."""
    assert 3 < len(code_of(f"docs/cookbook/{name}.py")) <= 15


def test_the_page_shows_every_program() -> None:
    """Each program of the folder is on the page, and is linked there for readers of the source."""
    text = (ROOT / "docs" / "cookbook" / "index.md").read_text("utf-8")
    names = [Path(page).name for page in PAGES]
    assert len(names) >= 15
    assert [name for name in names if f"{{literalinclude}} {name}\n" not in text or f"]({name})" not in text] == []


def printed_by(page: str) -> list[str]:
    """What the comments of a program say that it prints."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    return [line.removeprefix("# > ") for line in lines if line.startswith("# > ")]


def code_of(page: str) -> list[str]:
    """The lines of a program that are neither empty nor comments."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
