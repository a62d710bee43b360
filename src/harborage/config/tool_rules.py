"""The rules of the block `tools` that more than one value takes part in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeAlias

from harborage.config.checks import near
from harborage.config.keys import Named, Path

if TYPE_CHECKING:
    from harborage.config.tool_values import A2APeer, Auth, MCPServer, OAuthProvider, Policy, Tools

Rule: TypeAlias = tuple[Path, str, str]

_SAFE = frozenset({"pure", "read"})


def broken(tools: Tools) -> Iterator[Rule]:
    """Every rule that the block breaks: path, what is wrong, and how to repair it or ""."""
    yield from _custom(tools)
    for name in ("mcp_servers", "openapi", "oauth_providers", "entries"):
        yield from _unique(("tools", name), [one.name for one in getattr(tools, name)])
    yield from _unique(("tools", "a2a_peers"), [one.name for one in tools.a2a_peers])
    providers = [one.name for one in tools.oauth_providers]
    for index, server in enumerate(tools.mcp_servers):
        yield from _mcp_server(server, ("tools", "mcp_servers", index), providers)
    for index, document in enumerate(tools.openapi):
        at: Path = ("tools", "openapi", index)
        yield from _auth(document.auth, (*at, "auth"), providers)
    for index, peer in enumerate(tools.a2a_peers):
        yield from _peer(peer, ("tools", "a2a_peers", index), providers)
    yield from _oauth(tools)
    yield from _entries(tools, providers)


def _unique(path: Path, names: Iterable[str]) -> Iterator[Rule]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen and name.strip():
            yield (*path, index, "name"), f"is the second one called {name}", ""
        seen.add(name)


def _custom(tools: Tools) -> Iterator[Rule]:
    yield from _unique(("tools", "custom"), [one.name for one in tools.custom])
    for index, one in enumerate(tools.custom):
        if one.name in tools.built_in:
            yield ("tools", "custom", index, "name"), f"is also in built_in: {one.name}", "give it another name"


def _mcp_server(server: MCPServer, at: Path, providers: Iterable[str]) -> Iterator[Rule]:
    mode = server.transport_mode
    if mode in {"sse", "streamable_http"} and not server.url:
        yield (*at, "url"), f"is required by the mode {mode}", ""
    if mode == "stdio" and not server.command:
        yield (*at, "command"), "is required by the mode stdio", ""
    if mode == "auto" and not server.url and not server.command:
        yield at, "needs url or command", ""
    yield from _auth(server.auth, (*at, "auth"), providers)
    yield from _attempts(server.policy, (*at, "policy"), is_safe="*" in server.idempotent, tool="")
    for tool, policy in server.tool_policies.items():
        is_safe = server.effects.get(tool) in _SAFE or any(fnmatchcase(tool, one) for one in server.idempotent)
        yield from _attempts(policy, (*at, "tool_policies", Named(tool)), is_safe=is_safe, tool=tool)


def _attempts(policy: Policy, at: Path, *, is_safe: bool, tool: str) -> Iterator[Rule]:
    if policy.max_attempts > 1 and not is_safe:
        what = tool or "its tools"
        ways = f'idempotent: ["{tool or "*"}"], or effects: {{{tool or "TOOL"}: read}}'
        yield (*at, "max_attempts"), f"would call {what} again, which may act twice", f"{ways}, or max_attempts: 1"


def _auth(auth: Auth | None, at: Path, providers: Iterable[str]) -> Iterator[Rule]:
    if auth is None:
        return
    given = [name for name in auth.__struct_fields__ if getattr(auth, name)]
    if len(given) != 1:
        yield at, f"needs exactly one of {', '.join(auth.__struct_fields__)}", ""
    if auth.oauth is not None and auth.oauth.provider.strip() and auth.oauth.provider not in providers:
        hint = near(auth.oauth.provider, providers)
        yield (*at, "oauth", "provider"), f"is none of oauth_providers: {auth.oauth.provider}", hint


def _peer(peer: A2APeer, at: Path, providers: Iterable[str]) -> Iterator[Rule]:
    yield from _auth(peer.auth, (*at, "auth"), providers)
    is_plain = peer.url.lower().startswith("http:")
    if is_plain and not peer.allow_insecure_loopback:
        yield (*at, "url"), "must be an https address", "for the loopback: allow_insecure_loopback: true"


def _oauth(tools: Tools) -> Iterator[Rule]:
    for index, provider in enumerate(tools.oauth_providers):
        yield from _oauth_provider(provider, ("tools", "oauth_providers", index))
    if tools.oauth_providers and not tools.oauth_token_kek_env:
        yield ("tools", "oauth_token_kek_env"), "is required with oauth_providers", "the variable with the sealing key"


def _oauth_provider(provider: OAuthProvider, at: Path) -> Iterator[Rule]:
    addresses = [name for name in ("auth_url", "token_url", "redirect_url") if getattr(provider, name)]
    if not addresses:
        return  # the peer's own metadata leads there, and the client registers itself
    for name in ("client_id_env", "client_secret_env"):
        if not getattr(provider, name):
            yield (*at, name), "is required when the addresses are given", ""
    for name in ("auth_url", "token_url", "redirect_url"):
        if name not in addresses and not provider.server_url:
            yield (*at, name), "is required with the other addresses", "or server_url, whose metadata has them"


def _entries(tools: Tools, providers: Iterable[str]) -> Iterator[Rule]:
    for index, entry in enumerate(tools.entries):
        at: Path = ("tools", "entries", index)
        if entry.approval is None and entry.oauth is None and not entry.loading_mode:
            yield at, "needs at least one of approval, oauth and loading_mode", ""
        if entry.approval is not None:
            if not entry.approval.policy:
                yield (*at, "approval", "policy"), "is required", "deny-all, approve-all or tagged"
            if entry.approval.policy == "tagged" and not entry.approval.require_tags:
                yield (*at, "approval", "require_tags"), "is required by the policy tagged", ""
        if entry.oauth is not None and entry.oauth.provider.strip() and entry.oauth.provider not in providers:
            hint = near(entry.oauth.provider, providers)
            yield (*at, "oauth", "provider"), f"is none of oauth_providers: {entry.oauth.provider}", hint
