"""The MCP servers of a configuration as sources of tools, which all agents get."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from harborage.config.findings import semantic_finding
from harborage.errors import HarborageError, error_text
from harborage.tools.mcp.options import MCP
from harborage.tools.policy import ToolPolicy

if TYPE_CHECKING:
    from harborage.config.findings import Finding
    from harborage.config.keys import Path
    from harborage.config.loader import Loaded
    from harborage.config.tool_values import MCPServer, Policy

_LATER = "has no effect in this version"


def mcp_servers(loaded: Loaded) -> tuple[tuple[MCP, ...], tuple[Finding, ...]]:
    """Return the servers, and what cannot be done of what is said of them."""
    made: list[MCP] = []
    findings: list[Finding] = []
    for index, one in enumerate(loaded.config.tools.mcp_servers):
        at: Path = ("tools", "mcp_servers", index)
        found = list(_absent(loaded, one, at))
        try:
            if not found:
                made.append(_server(loaded, one))
        except HarborageError as error:
            found.append(semantic_finding(loaded.file, loaded.origin(at), at, error_text(error)))
        findings += found
    return tuple(made), tuple(findings)


def _absent(loaded: Loaded, one: MCPServer, at: Path) -> Iterator[Finding]:
    def refuse(key: str, reason: str, hint: str) -> Finding:
        path: Path = (*at, key)
        return semantic_finding(loaded.file, loaded.origin(path), path, reason, hint=hint)

    if one.auth is not None and one.auth.oauth is not None:
        yield refuse("auth", f"oauth {_LATER} for an MCP server", "bearer: env:NAME, or headers")
    if one.sampling != "off":
        yield refuse("sampling", f"{one.sampling} {_LATER}", "sampling: off")
    if one.pin:
        yield refuse("pin", _LATER, "leave it out")


def _server(loaded: Loaded, one: MCPServer) -> MCP:
    """Return the value of one entry.

    Raises:
        HarborageError: it cannot be used; the text says why.
    """
    is_local = bool(one.command) and one.transport_mode in ("auto", "stdio")
    options: dict[str, Any] = {
        name: getattr(one, name)
        for name in (
            "headers", "env", "keep_alive", "effects", "idempotent", "approve", "trust_hints", "share_identity",
            "raw_html", "elicitation", "elicitation_timeout", "sampling_tokens", "roots", "connections", "allow_hosts",
        )
    }  # fmt: skip
    return MCP(
        one.name,
        command=one.command,
        url=one.url,
        folder=str(loaded.folder.absolute()) if is_local else "",
        transport=one.transport_mode,
        auth=one.auth.bearer if one.auth is not None and one.auth.bearer else None,
        policy=_policy(one.policy),
        tool_policies={tool: _policy(policy) for tool, policy in one.tool_policies.items()},
        **options,
    )


def _policy(policy: Policy) -> ToolPolicy:
    """Return a policy; 0 is the default of each figure."""
    return ToolPolicy(
        timeout_ms=policy.timeout_ms or None,
        max_retries=policy.max_attempts - 1 if policy.max_attempts else None,
        backoff_base_ms=policy.backoff_base_ms or None,
        backoff_mult=policy.backoff_mult or None,
        backoff_max_ms=policy.backoff_max_ms or None,
        retry_on=tuple(policy.retry_on) or None,  # type: ignore[arg-type] # the words of the classes
    )
