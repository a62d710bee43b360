"""Tools from elsewhere that a configuration names, for every agent: MCP servers, OpenAPI documents, manifests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harborage.app.configured_mcp import mcp_servers
from harborage.config.findings import Finding, semantic_finding
from harborage.errors import HarborageError, InvalidOptionError
from harborage.tools.sources import ToolLimits, ToolSource

if TYPE_CHECKING:
    from harborage.config.keys import Path
    from harborage.config.loader import Loaded
    from harborage.config.tool_values import DocumentAuth, OpenAPI
    from harborage.secrets import Secret
    from harborage.tools.http.values import Auth

_SECRET_NAME: Final = re.compile(r"auth|token|key|secret|cookie|passw|session", re.IGNORECASE)


def limits_of(loaded: Loaded) -> ToolLimits:
    """How much the tools may take, as the configuration says."""
    return ToolLimits(**msgspec.structs.asdict(loaded.config.tools.limits))


def tool_sources(loaded: Loaded) -> tuple[list[ToolSource], list[Finding]]:
    """Return the sources of tools that a configuration names, and what is wrong with those that cannot be made.

    Documents are read; nothing is connected to, and no secret is read.
    """
    tools = loaded.config.tools
    sources: list[ToolSource] = []
    findings: list[Finding] = []
    makes: list[tuple[Path, Callable[[], ToolSource]]] = [
        (("tools", "openapi", index), lambda one=one: _openapi(one, loaded))  # type: ignore[misc]
        for index, one in enumerate(tools.openapi)
    ]
    makes += [
        (("tools", "http_manifests", index), lambda path=path: _manifest(path, loaded))  # type: ignore[misc]
        for index, path in enumerate(tools.http_manifests)
    ]
    for at, make in makes:
        try:
            sources.append(make())
        except HarborageError as error:
            findings.append(_finding(loaded, at, error))
    servers, unusable = mcp_servers(loaded) if tools.mcp_servers else ((), ())
    findings += unusable
    findings += _same_names(loaded, [*servers, *sources])
    return [*servers, *sources], findings


def _openapi(one: OpenAPI, loaded: Loaded) -> ToolSource:
    from harborage.tools.http.openapi.source import OpenAPI as Source  # loaded where there is a document

    return Source(
        loaded.folder / one.path,
        name=one.name,
        select=one.select,
        rename=one.rename,
        base_url=one.base_url,
        headers={name: _header(name, value) for name, value in one.headers.items()},
        auth=_auth(one.auth),
        effects=one.effects,
        idempotent=one.idempotent,
        safe_methods=one.safe_methods,
        approve=one.approve,
        pagination=one.pagination,
        allow_hosts=one.allow_hosts,
        limits=limits_of(loaded),
        folder=loaded.folder,
    )


def _manifest(path: str, loaded: Loaded) -> ToolSource:
    from harborage.tools.http.manifest import HTTPManifest  # loaded where there is a manifest

    return HTTPManifest(loaded.folder / path)


def _auth(given: DocumentAuth | None) -> Auth | None:
    if given is None:
        return None
    if given.oauth is not None:
        text = "auth: oauth is not in this version of HTTP tools; give bearer or api_key"
        raise InvalidOptionError("auth", "", message=text)
    from harborage.tools.auth import ApiKey, Bearer

    return Bearer(given.bearer) if given.bearer else ApiKey(given.api_key)


def _header(name: str, value: Secret) -> str | Secret:
    """A header; one that is written in place, and is not named like a secret, is no secret to be masked in results."""
    return value if value.is_reference or _SECRET_NAME.search(name) else value.reveal()


def _finding(loaded: Loaded, at: Path, error: HarborageError) -> Finding:
    """The finding of a source that cannot be made, at the key that is wrong if the error names one."""
    key = error.option.partition("[")[0] if isinstance(error, InvalidOptionError) else ""
    path: Path = (*at, key) if key in _KEYS and at[1] == "openapi" else at
    if key == "document":
        path = (*at, "path") if at[1] == "openapi" else at
    return semantic_finding(loaded.file, loaded.origin(path), path, str(error))


_KEYS: Final = frozenset(
    {
        "allow_hosts",
        "approve",
        "auth",
        "base_url",
        "effects",
        "headers",
        "idempotent",
        "name",
        "pagination",
        "rename",
        "select",
    }
)


def _same_names(loaded: Loaded, sources: list[ToolSource]) -> Iterator[Finding]:
    seen: set[str] = set()
    for one in sources:
        if one.name in seen:
            at: Path = ("tools", "http_manifests")
            text = f"two sources of tools are called {one.name}; give one of them another name"
            yield semantic_finding(loaded.file, loaded.origin(at), at, text)
        seen.add(one.name)


def with_sources(agent: Any, sources: list[ToolSource]) -> Mapping[str, Any]:
    """What changes in an agent that gets these sources, too; its own of the same name stay."""
    own = {one.name for one in agent.tool_sources}
    added = [one for one in sources if one.name not in own]
    return {"tools": (*agent.tools, *agent.tool_sources, *added)} if added else {}
