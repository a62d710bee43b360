"""Tools, resources and prompts of real servers: npm's and the official library's."""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from harborage.errors import InvalidOptionError
from harborage.identity import IdentityMissingError, Quadruple
from harborage.secrets import secret
from harborage.tools import CallContext, Loading, SideEffect, ToolInvalidArgsError, ToolPolicy, classify
from harborage.tools.errors import ToolUnansweredError
from harborage.tools.mcp.errors import MCPRequestError, MCPToolError, MCPUnreachableError
from harborage.tools.mcp.options import MCP
from harborage.tools.sources import SourceServices, ToolLimits
from tests.kit.mcp_peers import node_server, python_server
from tests.tools.mcp.conftest import Open

pytestmark = pytest.mark.anyio


async def test_the_server_of_examples_gives_what_it_has(opened: Open) -> None:
    """Tools, resources and prompts of `everything` are tools; a picture becomes an artifact, a link stays a link."""
    async with opened("all", command=node_server("everything", "stdio")) as server:
        tools = await server.tools()
        assert tools["all_echo"].tool.side_effects is SideEffect.EXTERNAL  # whatever the server says of it
        assert "task" in tools["all_simulate-research-query"].unavailable
        resource = next(name for name in tools if name.startswith("all__resource.") and name.endswith("features.md"))
        assert tools[resource].tool.loading is Loading.DEFERRED
        assert await server.call("all_get-sum", b'{"a": 2, "b": 3}') == "The sum of 2 and 3 is 5."
        picture = await server.call("all_get-tiny-image")
        assert picture["parts"][0]["mime"] == "image/png"
        assert picture["parts"][0]["artifact"]
        weather = await server.call("all_get-structured-content", b'{"location": "Chicago"}')
        assert set(weather) == {"temperature", "conditions", "humidity"}
        links = await server.call("all_get-resource-links", b'{"count": 1}')
        assert links["parts"][0]["type"] == "resource_link"
        assert "Everything Server" in await server.call(resource)
        asked = await server.call("all__prompt.args-prompt", b'{"city": "Bern"}')
        assert asked.startswith("[user] ")
        with pytest.raises(ToolInvalidArgsError, match="required"):
            await server.call("all_get-sum", b'{"a": 2}')
        assert await server.tools() == tools


async def test_hints_are_not_believed(opened: Open, tmp_path: Path) -> None:
    """What a server says of its tools changes nothing, unless the operator trusts it; destructive is never a read."""
    command = node_server("filesystem", str(tmp_path))
    options = {"effects": {"read_text_file": "read"}, "approve": ["write_*"]}
    async with opened("files", command=command, **options) as server:
        tools = await server.tools()
        assert tools["files_read_text_file"].tool.side_effects is SideEffect.READ
        assert tools["files_list_directory"].tool.side_effects is SideEffect.EXTERNAL
        write = tools["files_write_file"]
        assert (write.tool.side_effects, write.tool.idempotent) == (SideEffect.EXTERNAL, False)
        assert write.approval == "always"
        written = json.dumps({"path": str(tmp_path / "a.txt"), "content": "hello"}).encode()
        await server.call("files_write_file", written)
        assert (tmp_path / "a.txt").read_text() == "hello"
        read = json.dumps({"path": str(tmp_path / "a.txt")}).encode()
        assert (await server.call("files_read_text_file", read))["content"] == "hello"
        with pytest.raises(MCPToolError, match="outside allowed"):
            await server.call("files_read_text_file", b'{"path": "/etc/passwd"}')
    async with opened("files", command=command, trust_hints=True, approve=["*"]) as server:
        tools = await server.tools()
        assert tools["files_list_directory"].tool.side_effects is SideEffect.READ
        write = tools["files_write_file"]
        assert (write.tool.side_effects, write.tool.idempotent) == (SideEffect.EXTERNAL, True)
        assert tools["files_list_directory"].approval == "always"  # a hint never removes an approval


async def test_a_server_that_keeps_something_keeps_it(opened: Open, tmp_path: Path) -> None:
    """`memory` finds with one call what another has written, on the one connection that it is given."""
    async with opened("notes", command=["env", f"MEMORY_FILE_PATH={tmp_path / 'memory.json'}", *node_server("memory")],
                      connections=1) as server:  # fmt: skip
        entities = {"entities": [{"name": "Ada", "entityType": "person", "observations": ["wrote programs"]}]}
        await server.call("notes_create_entities", json.dumps(entities).encode())
        found = await server.call("notes_search_nodes", b'{"query": "Ada"}')
        assert found["entities"][0]["observations"] == ["wrote programs"]


async def test_a_modern_server_on_standard_input(opened: Open) -> None:
    """A server of the official library answers, and its progress is told."""
    told: list[Any] = []

    class Services:
        def begin(self, scope: Any) -> None: ...
        def progress(self, message: str, done: float | None, total: float | None) -> None:
            told.append((message, done, total))

    reads = {"add": "read", "steps": "read"}
    async with opened("modern", command=python_server("modern"), effects=reads) as server:
        assert await server.call("modern_add", b'{"a": 1, "b": 2}') == {"result": 3}
        services: Any = Services()
        assert await server.call("modern_steps", b'{"count": 3}', services=services) == {"result": "done"}
        assert told == [("step 1", 1, 3), ("step 2", 2, 3), ("step 3", 3, 3)]


async def test_a_server_of_another_library(opened: Open) -> None:
    """What `fastmcp` serves is called, read and rendered."""
    if find_spec("fastmcp") is None:
        pytest.skip("fastmcp is not installed: install requirements-dev.lock")
    async with opened("fast", command=python_server("fast"), effects={"add": "read"}) as server:
        assert await server.call("fast_add", b'{"a": 1, "b": 2}') == {"result": 3}
        assert await server.call("fast__resource.data://greeting") == "hello"
        assert await server.call("fast__prompt.ask", b'{"about": "tea"}') == "[user] What is tea?"


PLAIN = python_server("plain")


async def test_the_environment_of_a_program_is_what_its_entry_says(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret by reference reaches the program, and nothing else of this process does."""
    monkeypatch.setenv("CRM_TOKEN", "s3cret")
    monkeypatch.setenv("UNRELATED", "not to be seen")
    async with opened("plain", command=PLAIN, env={"TOKEN": secret("env:CRM_TOKEN")}) as server:
        assert await server.call("plain_environment", b'{"name": "TOKEN"}') != ""
        assert await server.call("plain_environment", b'{"name": "UNRELATED"}') is None


async def test_text_of_a_server_is_data(opened: Open) -> None:
    """An error of a tool is permanent whatever its words, and neither it nor a description has control characters."""
    async with opened("plain", command=PLAIN) as server:
        assert "\x1b" not in (await server.tools())["plain_hostile"].tool.description
        with pytest.raises(MCPToolError, match="503 timeout") as failed:
            await server.call("plain_hostile")
        assert not any(sign in str(failed.value) for sign in "\x1b\x07")
        assert classify(failed.value) == "permanent"


async def test_tools_that_cannot_be_used_are_left_out_by_name(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    """One without a type in its schema, and one that refers to a file, cost the others nothing; nothing is read."""
    async with opened("plain", command=PLAIN) as server:
        tools = await server.tools()
    assert "plain_append" in tools
    assert "plain_no_type" not in tools
    assert "plain_reads_file" not in tools
    assert "'no_type'" in caplog.text
    assert "'reads_file'" in caplog.text


async def test_what_is_no_answer_is_an_error_of_ours(opened: Open) -> None:
    """A result of a wrong shape is not quoted; a line that is no message costs nothing; a typed result is checked."""
    async with opened("plain", command=PLAIN) as server:
        with pytest.raises(MCPRequestError, match="no result") as failed:
            await server.call("plain_nonsense")
        assert "canary" not in str(failed.value)
        assert await server.call("plain_garbage") == "all the same"
        assert await server.call("plain_typed", b'{"n": 1}') == {"n": 1}
        with pytest.raises(ToolInvalidArgsError, match="output:"):
            await server.call("plain_typed", b'{"n": "one"}')


async def test_a_line_that_is_too_long_ends_the_connection(opened: Open) -> None:
    """The connection is closed with that reason, the call ends at once, and the next one is made on a new one."""
    services = SourceServices(limits=ToolLimits(line_bytes=100_000))
    async with opened("plain", services, command=PLAIN) as server:
        assert len(await server.call("plain_long_line", b'{"bytes": 90000}')) == 90_000
        with pytest.raises(ToolUnansweredError, match="100,000 bytes"):
            await server.call("plain_long_line", b'{"bytes": 200000}')
        assert await server.call("plain_append", b'{"path": "/dev/null", "line": "x"}') == "appended"


async def test_a_flood_of_notifications_costs_nothing(opened: Open) -> None:
    """The last progress of a call arrives; that its list has changed is asked for once, when a run begins."""
    told: list[float | None] = []

    class Services:
        def begin(self, scope: Any) -> None: ...
        def progress(self, message: str, done: float | None, total: float | None) -> None:
            told.append(done)

    services: Any = Services()
    async with opened("plain", command=PLAIN, connections=1) as server:
        before = await server.tools()
        assert await server.call("plain_flood", b'{"count": 2000}', services=services) == "flooded"
        assert told[-1] == 2000
        await server.call("plain_grow")
        after = await server.tools()
        assert len(after) == len(before) + 1


async def test_the_key_and_no_identity_go_with_a_call(opened: Open) -> None:
    """A call carries its idempotency key; who asks is sent only where the operator says so."""
    async with opened("plain", command=PLAIN) as server:
        assert await server.call("plain_echo_meta", key="run-1/7") == {"dev.harborage/idempotency-key": "run-1/7"}
    async with opened("plain", command=PLAIN, share_identity=True) as server:
        sent = await server.call("plain_echo_meta", key="")
        assert sent == {"dev.harborage/tenant": "acme", "dev.harborage/user": "ada", "dev.harborage/session": "s-1"}


async def test_a_call_of_nobody_is_not_sent(opened: Open) -> None:
    """Without an identity nothing reaches the server."""
    async with opened("plain", command=PLAIN) as server:
        found = (await server.tools())["plain_wait"]
        with pytest.raises(IdentityMissingError, match="plain"):
            await found.body(b"{}", CallContext(Quadruple("", "", "", "")))


async def test_a_call_that_takes_too_long_ends_and_is_in_doubt(opened: Open) -> None:
    """The time limit of a call ends it, and the next call is served."""
    policy = {"wait": ToolPolicy(timeout_ms=200)}
    async with opened("plain", command=PLAIN, tool_policies=policy, connections=1) as server:
        with pytest.raises(TimeoutError):
            await server.call("plain_wait", b'{"seconds": 30}')
        async with asyncio.timeout(5):
            assert await server.call("plain_append", b'{"path": "/dev/null", "line": "x"}') == "appended"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["no-such-program-here"], "no-such-program-here"),
        (["sh", "-c", "echo the licence is missing >&2; exit 1"], "the licence is missing"),
    ],
)
async def test_a_program_that_is_no_server_is_named_with_what_it_wrote(
    opened: Open, command: list[str], says: str
) -> None:
    """What cannot be started, or ends at once, says why; nothing was sent."""
    async with opened("broken", command=command) as server:
        with pytest.raises(MCPUnreachableError, match=says) as failed:
            await server.tools()
        assert "broken" in str(failed.value)
        assert failed.value.had_no_effect


async def test_a_secret_that_is_missing_is_named(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference is named, and nothing is connected to."""
    monkeypatch.delenv("CRM_TOKEN", raising=False)
    async with opened("crm", url="http://127.0.0.1:9/mcp", auth=secret("env:CRM_TOKEN")) as server:
        with pytest.raises(MCPUnreachableError, match="env:CRM_TOKEN"):
            await server.tools()


async def test_names_that_no_tool_has_are_a_warning(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    """A pattern of the operator that matches no tool of the first listing is named."""
    options = {"approve": ["write_*"], "effects": {"ad": "read"}}
    async with opened("plain", command=PLAIN, **options) as server:
        await server.tools()
    assert "'write_*'" in caplog.text
    assert "'ad'" in caplog.text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "neither"),
        ({"command": ["x"], "url": "https://x.test"}, "both"),
        ({"command": "x"}, "command"),
        ({"url": "x.test"}, "url"),
        ({"command": ["x"], "effects": {"write": "wrte"}}, "did you mean 'write'"),
        ({"command": ["x"], "sampling": "yes"}, "sampling"),
        ({"command": ["x"], "comand": 1}, "did you mean command"),
        ({"command": ["x"], "env": {"TOKEN": "s3cret"}}, 'secret\\("env:TOKEN"\\)'),
        ({"url": "https://x.test", "auth": "s3cret"}, "Bearer"),
        ({"command": ["x"], "auth": secret("env:X")}, "env="),
        ({"command": ["x"], "connections": 0}, "connections"),
        ({"command": ["x"], "tool_policies": {"write": ToolPolicy(max_retries=2)}}, 'idempotent=\\["write"\\]'),
    ],
)
def test_a_wrong_option_is_named_where_the_server_is_described(options: dict[str, Any], says: str) -> None:
    """Each text says what to write, and holds no secret."""
    with pytest.raises((InvalidOptionError, TypeError), match=says) as refused:
        MCP("files", **options)
    assert "s3cret" not in str(refused.value)


def test_a_server_that_is_described_does_nothing() -> None:
    """Nothing is started, read or imported before it is opened."""
    described = MCP("files", command=["no-such-program"], env={"X": secret("env:MISSING")})
    assert repr(described) == "MCP('files')"
