"""`mcp.servers.*`: the connected MCP servers, and what an admin may do with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from harborage.events import Event, EventType, MCPRawHtmlTrustToggledPayload
from harborage.identity import Identity
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import TokenScope
from harborage.protocol.wire.mcp import (
    BindingCount,
    BindingNamed,
    BindingRevoked,
    BindingsListed,
    Discovered,
    HealthShown,
    ListServers,
    PolicyShown,
    Probed,
    PromptsListed,
    ResourcesListed,
    ServerDescribed,
    ServerNamed,
    ServersListed,
    ServerState,
    ServerView,
    SetTrust,
    SignInBegun,
    TrustSet,
)
from harborage.server.services import Endpoint

if TYPE_CHECKING:
    from harborage.server.mcp_servers import McpServer, ServerDetails
    from harborage.server.services import Call

DEFAULT_PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 200


async def list_servers(call: Call, asked: ListServers) -> ServersListed:
    """Return the servers that a filter finds, by name, behind the one that the page token names."""
    who = _principal(call)
    if not set(asked.state).issubset(ServerState):
        text = f"mcp.servers.list: state: no such value; there are {', '.join(ServerState)}"
        raise ProtocolError(Code.INVALID_REQUEST, text)
    await _audit(call, who)
    servers = sorted(await call.services.mcp.list(who), key=lambda server: server.name)
    found = [server for server in servers if _is_found(server, asked)]
    rest = [server for server in found if server.name > asked.page_token]
    size = min(asked.page_size, MAX_PAGE_SIZE) if asked.page_size > 0 else DEFAULT_PAGE_SIZE
    page = rest[:size]
    return ServersListed(
        servers=page, total=len(found), next_page_token=page[-1].name if len(rest) > size else msgspec.UNSET
    )


def _is_found(server: ServerView, asked: ListServers) -> bool:
    return (
        server.state in (asked.state or (server.state,))
        and server.transport in (asked.transport or (server.transport,))
        and asked.has_oauth in (None, server.oauth_binding_count > 0)
        and asked.has_recent_error in (None, server.error_rate_per_min > 0)
        and server.name.startswith(asked.name_prefix)
    )


async def get_server(call: Call, asked: ServerNamed) -> ServerDescribed:
    """Return one server with its limits and how many sign-ins it has."""
    found = await _details(call, asked)
    return ServerDescribed(
        server=found.view,
        display_modes_advertised=found.display_modes,
        content_shapes=found.content_shapes,
        tool_policy=found.policy,
        bindings_summary=_summary([binding.binding_scope for binding in found.bindings]),
    )


def _summary(scopes: Sequence[str]) -> list[BindingCount]:
    return [BindingCount(binding_scope=scope, count=count) for scope, count in sorted(Counter(scopes).items())]


async def list_resources(call: Call, asked: ServerNamed) -> ResourcesListed:
    """Return the resources of a server."""
    return ResourcesListed(resources=(await _details(call, asked)).resources)


async def list_prompts(call: Call, asked: ServerNamed) -> PromptsListed:
    """Return the prompts of a server."""
    return PromptsListed(prompts=(await _details(call, asked)).prompts)


async def show_health(call: Call, asked: ServerNamed) -> HealthShown:
    """Return how the connection to a server has been."""
    found = await _details(call, asked)
    return HealthShown(
        handshake_latency_buckets=found.latencies,
        reconnect_history=found.reconnects,
        transport_error_rate=found.transport_error_rate,
    )


async def list_bindings(call: Call, asked: ServerNamed) -> BindingsListed:
    """Return the sign-ins at a server."""
    return BindingsListed(bindings=(await _details(call, asked)).bindings)


async def show_policy(call: Call, asked: ServerNamed) -> PolicyShown:
    """Return the limits of the calls to a server."""
    return PolicyShown(tool_policy=(await _details(call, asked)).policy)


async def refresh_discovery(call: Call, asked: ServerNamed) -> Discovered:
    """Ask a server again what it offers."""
    return await (await _for_admin(call, asked)).discover()


async def probe_server(call: Call, asked: ServerNamed) -> Probed:
    """Ask a server whether it answers."""
    return await (await _for_admin(call, asked)).probe()


async def refresh_binding(call: Call, asked: BindingNamed) -> SignInBegun:
    """Begin a new sign-in of a principal, by default the caller."""
    server = await _for_admin(call, asked)
    return await server.sign_in(asked.principal_id or call.who.user_id)


async def revoke_binding(call: Call, asked: BindingNamed) -> BindingRevoked:
    """Forget the sign-in of a principal, by default the caller's."""
    server = await _for_admin(call, asked)
    return BindingRevoked(revoked=await server.sign_out(asked.principal_id or call.who.user_id))


async def set_trust(call: Call, asked: SetTrust) -> TrustSet:
    """Trust the HTML of a server, or not; announced once it is done."""
    server = await _for_admin(call, asked)
    await server.trust_raw_html(asked.trusted)
    actor, now = call.caller.who.with_run(""), call.services.clock.now()
    payload = MCPRawHtmlTrustToggledPayload(actor, asked.name, asked.trusted, now)
    await call.parts.bus.publish(Event(EventType.MCP_RAW_HTML_TRUST_TOGGLED, actor, payload))
    return TrustSet(name=asked.name, trusted=asked.trusted)


def _principal(call: Call) -> Identity:
    """Return for whom the servers are asked: the caller, in the tenant that the body names.

    Raises:
        ProtocolError: `scope_mismatch`: it names another tenant, and the token has no scope for that.
    """
    tenant = call.asked.tenant or call.who.tenant_id
    if tenant != call.who.tenant_id:
        call.require(TokenScope.ADMIN, TokenScope.CONSOLE_FLEET)
    return Identity(tenant, call.who.user_id, call.who.session_id)


async def _audit(call: Call, who: Identity) -> None:
    if who.tenant_id != call.who.tenant_id:
        await call.audit()


async def _for_admin(call: Call, asked: ServerNamed) -> McpServer:
    """Return the server that an admin acts on.

    Raises:
        ProtocolError: `scope_mismatch`, before the name is looked at.
    """
    call.require(TokenScope.ADMIN)
    return await _find(call, asked)


async def _find(call: Call, asked: ServerNamed) -> McpServer:
    who = _principal(call)
    if not asked.name.strip():
        raise ProtocolError(Code.INVALID_REQUEST, f"{call.method.name}: name is empty")
    await _audit(call, who)
    server = await call.services.mcp.find(who, asked.name)
    if server is None:
        text = f"no MCP server {asked.name!r} is connected; mcp.servers.list shows those that are"
        raise ProtocolError(Code.NOT_FOUND, text)
    return server


async def _details(call: Call, asked: ServerNamed) -> ServerDetails:
    return await (await _find(call, asked)).details()


ENDPOINTS: Final = {
    "mcp.servers.list": Endpoint(ListServers, ServersListed, list_servers),
    "mcp.servers.get": Endpoint(ServerNamed, ServerDescribed, get_server),
    "mcp.servers.resources": Endpoint(ServerNamed, ResourcesListed, list_resources),
    "mcp.servers.prompts": Endpoint(ServerNamed, PromptsListed, list_prompts),
    "mcp.servers.refresh_discovery": Endpoint(ServerNamed, Discovered, refresh_discovery),
    "mcp.servers.probe": Endpoint(ServerNamed, Probed, probe_server),
    "mcp.servers.health": Endpoint(ServerNamed, HealthShown, show_health),
    "mcp.servers.bindings.list": Endpoint(ServerNamed, BindingsListed, list_bindings),
    "mcp.servers.policy": Endpoint(ServerNamed, PolicyShown, show_policy),
    "mcp.servers.refresh_binding": Endpoint(BindingNamed, SignInBegun, refresh_binding),
    "mcp.servers.revoke_binding": Endpoint(BindingNamed, BindingRevoked, revoke_binding),
    "mcp.servers.set_raw_html_trust": Endpoint(SetTrust, TrustSet, set_trust),
}
