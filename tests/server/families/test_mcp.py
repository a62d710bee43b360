"""`mcp.servers.*` over a served runtime: empty by default, and the whole shape over a server that is there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from harborage.identity import Identity
from harborage.protocol.wire.common import NO_TIME
from harborage.protocol.wire.mcp import (
    BindingView,
    Discovered,
    LatencyBucket,
    Probed,
    PromptArgument,
    PromptView,
    Reconnect,
    ResourceView,
    ServerState,
    ServerView,
    SignInBegun,
    ToolPolicyView,
)
from harborage.server.families.mcp import ENDPOINTS
from harborage.server.mcp_servers import McpServer, ServerDetails
from tests.kit.serving import Served, serving
from tests.kit.wire import ADA

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ADMIN_VERBS = ("refresh_discovery", "probe", "refresh_binding", "revoke_binding", "set_raw_html_trust")
READ_VERBS = ("get", "resources", "prompts", "health", "bindings.list", "policy")
NAMED = tuple(f"mcp.servers.{verb}" for verb in (*READ_VERBS, *ADMIN_VERBS))


def view(name: str, **parts: Any) -> ServerView:
    """A server of a list."""
    made = {"transport": "stdio", "url_or_command": "x", "state": ServerState.ONLINE, "last_discovery_at": NO_TIME}
    return ServerView(name=name, **{**made, **parts})


class OneServer:
    """A connected server that does what it is asked."""

    def __init__(self) -> None:
        self.trusted = False
        self.signed_in = {"ada"}

    async def details(self) -> ServerDetails:
        binding = BindingView(
            principal_id="ada", binding_scope="user", scopes=("read",), expires_at=NOON, last_used_at=NO_TIME
        )
        argument = PromptArgument(name="text", required=True)
        return ServerDetails(
            view=view("files", raw_html_trusted=self.trusted),
            display_modes=("inline",),
            content_shapes=("text",),
            policy=ToolPolicyView(timeout_ms=1, max_retries=2, concurrency_cap=3),
            resources=(ResourceView(uri="file:///a", mime_type="text/plain"),),
            prompts=(PromptView(name="greet", arguments=(argument,)),),
            bindings=(binding, msgspec.structs.replace(binding, binding_scope="agent"), binding),
            latencies=(LatencyBucket(start_ms=1, latency_ms=2),),
            reconnects=(Reconnect(occurred_at=NOON),),
            transport_error_rate=0.5,
        )

    async def discover(self) -> Discovered:
        return Discovered(discovery_id="d-1", tool_count=4)

    async def probe(self) -> Probed:
        return Probed(ok=False, latency_ms=7, error="no answer")

    async def trust_raw_html(self, trusted: bool) -> None:
        self.trusted = trusted

    async def sign_in(self, principal_id: str) -> SignInBegun:
        return SignInBegun(authorize_url=f"https://x.example/{principal_id}", state="s")

    async def sign_out(self, principal_id: str) -> bool:
        return bool(self.signed_in & {principal_id}) and not self.signed_in.clear()


class Servers:
    """The servers of the tenant acme."""

    def __init__(self) -> None:
        self.one = OneServer()
        self.views = [
            view("web", transport="http", state=ServerState.ERROR, error_rate_per_min=1.5),
            view("files", oauth_binding_count=3),
            view("mail", transport="http"),
        ]

    async def list(self, who: Identity) -> Sequence[ServerView]:
        return self.views if who.tenant_id == "acme" else ()

    async def find(self, who: Identity, name: str) -> McpServer | None:
        return self.one if (who.tenant_id, name) == ("acme", "files") else None


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """A server with MCP connections."""
    async with serving(mcp=Servers()) as one:
        yield one


async def answer(served: Served, verb: str, body: Any = None, **options: Any) -> Any:
    """The body of an answer that is no refusal, without the version of the protocol."""
    reply = await served.wire.post(f"mcp.servers.{verb}", body, **options)
    assert reply.status == 200, reply.body
    assert reply.json.pop("protocol_version", "") or reply.json["protocol_version"] == "0.1.0"
    return {key: value for key, value in reply.json.items() if key != "protocol_version"}


async def test_a_server_without_connections_has_the_whole_shape() -> None:
    """The list is empty, and every name is unknown."""
    async with serving() as served:
        assert await answer(served, "list") == {"servers": [], "total": 0}
        for method in NAMED:
            reply = await served.wire.post(method, {"name": "files"}, scopes=("admin",))
            assert (reply.status, reply.code) == (404, "not_found"), method


def test_every_verb_is_there() -> None:
    """All twelve."""
    assert set(ENDPOINTS) == {"mcp.servers.list", *NAMED}


@pytest.mark.parametrize("method", NAMED)
async def test_order_of_checks(served: Served, method: str) -> None:
    """A blank name is 400 and an unknown one 404; of an admin verb the scope comes first, and reading is not enough."""
    is_admin = method.removeprefix("mcp.servers.") in ADMIN_VERBS
    for scopes in ((), ("console:fleet",)):
        for name, code in (("", "invalid_request"), ("nobody", "not_found")):
            reply = await served.wire.post(method, {"name": name}, scopes=scopes)
            assert reply.code == ("scope_mismatch" if is_admin else code), (method, name, scopes)
    for name, code in (("", "invalid_request"), (" ", "invalid_request"), ("nobody", "not_found")):
        assert (await served.wire.post(method, {"name": name}, scopes=("admin",))).code == code
    reply = await served.wire.post(method, {"name": "files", "identity": {"tenant": "rival"}})
    assert (reply.status, reply.code) == (403, "scope_mismatch")
    reply = await served.wire.post(method, {"name": "files", "identity": {"user": "ben"}}, scopes=("admin",))
    assert (reply.status, reply.code) == (401, "identity_required")


@pytest.mark.parametrize(
    ("asked", "expected", "total", "token"),
    [
        ({}, ["files", "mail", "web"], 3, None),
        ({"state": ["error"], "page": 3}, ["web"], 1, None),
        ({"state": ["error", "online"], "transport": ["http"]}, ["mail", "web"], 2, None),
        ({"has_oauth": True}, ["files"], 1, None),
        ({"has_oauth": False}, ["mail", "web"], 2, None),
        ({"has_recent_error": True}, ["web"], 1, None),
        ({"has_oauth": None, "state": None, "page_size": -1}, ["files", "mail", "web"], 3, None),
        ({"name_prefix": "ma"}, ["mail"], 1, None),
        ({"page_size": 2}, ["files", "mail"], 3, "mail"),
        ({"page_size": 2, "page_token": "mail"}, ["web"], 3, None),
        ({"page_size": 3, "page_token": "zzz"}, [], 3, None),
        ({"page_size": 9_999}, ["files", "mail", "web"], 3, None),
    ],
)
async def test_lists(served: Served, asked: Any, expected: list[str], total: int, token: str | None) -> None:
    """Filters stand beside each other; a page token is the last name of the page before."""
    listed = await answer(served, "list", asked)
    assert ([one["name"] for one in listed["servers"]], listed["total"]) == (expected, total)
    assert listed.get("next_page_token") == token


async def test_a_list_of_another_tenant_needs_a_scope(served: Served) -> None:
    """It is audited, and an unknown state is refused after the scope."""
    body = {"identity": {"tenant": "rival"}, "state": ["nobody"]}
    assert (await served.wire.post("mcp.servers.list", body)).code == "scope_mismatch"
    assert (await served.wire.post("mcp.servers.list", body, scopes=("admin",))).code == "invalid_request"
    listed = await answer(served, "list", {"identity": {"tenant": "rival"}}, scopes=("console:fleet",))
    assert listed == {"servers": [], "total": 0}
    (event,) = await served.events("audit.admin_scope_used")
    assert event["Method"] == "mcp.servers.list"


async def test_what_each_verb_answers(served: Served) -> None:
    """Exactly these keys; what is not known is absent, and no list is null."""
    named = {"name": "files"}
    got = await answer(served, "get", named)
    server = got.pop("server")
    assert server == {
        "name": "files",
        "transport": "stdio",
        "url_or_command": "x",
        "state": "online",
        "last_discovery_at": "0001-01-01T00:00:00Z",
        "tool_count": 0,
        "resource_count": 0,
        "prompt_count": 0,
        "recent_latency_ms": 0,
        "error_rate_per_min": 0.0,
        "oauth_binding_count": 0,
        "raw_html_trusted": False,
    }
    policy = {"timeout_ms": 1, "max_retries": 2, "concurrency_cap": 3}
    assert got == {
        "display_modes_advertised": ["inline"],
        "content_shapes": ["text"],
        "tool_policy": policy,
        "bindings_summary": [{"binding_scope": "agent", "count": 1}, {"binding_scope": "user", "count": 2}],
    }
    assert await answer(served, "policy", named) == {"tool_policy": policy}
    assert await answer(served, "resources", named) == {"resources": [{"uri": "file:///a", "mime_type": "text/plain"}]}
    assert await answer(served, "prompts", named) == {
        "prompts": [{"name": "greet", "arguments": [{"name": "text", "required": True}]}]
    }
    assert await answer(served, "health", named) == {
        "handshake_latency_buckets": [{"start_ms": 1, "latency_ms": 2}],
        "reconnect_history": [{"occurred_at": "2026-01-02T12:00:00Z"}],
        "transport_error_rate": 0.5,
    }
    bindings = (await answer(served, "bindings.list", named))["bindings"]
    assert bindings[0] == {
        "principal_id": "ada",
        "binding_scope": "user",
        "scopes": ["read"],
        "expires_at": "2026-01-02T12:00:00Z",
        "last_used_at": "0001-01-01T00:00:00Z",
    }


async def test_what_an_admin_does(served: Served) -> None:
    """The principal is the caller where none is named; trust is announced once it is set."""
    named, admin = {"name": "files"}, {"scopes": ("admin",)}
    assert await answer(served, "probe", named, **admin) == {"ok": False, "latency_ms": 7, "error": "no answer"}
    assert await answer(served, "refresh_discovery", named, **admin) == {
        "discovery_id": "d-1",
        "tool_count": 4,
        "resource_count": 0,
        "prompt_count": 0,
    }
    assert (await answer(served, "refresh_binding", {**named, "principal_id": "ben"}, **admin)) == {
        "authorize_url": "https://x.example/ben",
        "state": "s",
    }
    assert await answer(served, "revoke_binding", named, **admin) == {"revoked": True}
    assert await answer(served, "revoke_binding", named, **admin) == {"revoked": False}
    trust = {**named, "trusted": True}
    assert await answer(served, "set_raw_html_trust", trust, **admin) == {"name": "files", "trusted": True}
    (event,) = await served.events("mcp.raw_html_trust_toggled", ADA)
    assert (event["ServerName"], event["Trusted"], event["Actor"]["UserID"]) == ("files", True, "ada")
    assert (await answer(served, "get", named))["server"]["raw_html_trusted"] is True
