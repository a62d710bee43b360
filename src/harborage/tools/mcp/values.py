"""The closed vocabularies of MCP servers, and what is known of one that is open. Everything here is a plain value."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

CLIENT_NAME: Final = "harbor-runtime"
CLIENT_VERSION: Final = "v0"

KEY_META: Final = "dev.harborage/idempotency-key"
"""Under which a server finds the idempotency key of a call."""


class ServerTransport(StrEnum):
    """How a server is spoken to; `auto` is stdio for a command, and streamable HTTP, else SSE, for an address."""

    AUTO = "auto"
    SSE = "sse"
    STREAMABLE_HTTP = "streamable_http"
    STDIO = "stdio"


class RawHTML(StrEnum):
    """How a console may show what a server sends as HTML; nothing here renders any."""

    TEXT = "text"
    TRUSTED = "trusted"


class Sampling(StrEnum):
    """Whether a server may use the agent's model: not, after an approval, or as it likes."""

    OFF = "off"
    ASK = "ask"
    ALLOW = "allow"


class ConnectionState(StrEnum):
    """How the connection to a server is."""

    ONLINE = "online"
    RECONNECTING = "reconnecting"
    OFFLINE = "offline"
    AUTH_PENDING = "auth_pending"
    ERROR = "error"


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that a server lists."""

    uri: str
    name: str = ""
    title: str = ""
    description: str = ""
    mime_type: str = ""
    size: int = 0


class PromptArgument(msgspec.Struct, frozen=True, kw_only=True):
    """An argument of a prompt."""

    name: str
    description: str = ""
    required: bool = False


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that a server lists."""

    name: str
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


class RemoteTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as its server lists it. `problem` says why it cannot be called; empty when it can."""

    name: str
    description: str = ""
    args_schema: dict[str, Any] = {}
    out_schema: dict[str, Any] = {}
    is_read_only: bool = False
    is_destructive: bool = False
    is_idempotent: bool = False
    digest: str = ""
    problem: str = ""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """What a server offers, as it was listed at one moment."""

    at: datetime
    tools: tuple[RemoteTool, ...] = ()
    resources: tuple[Resource, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    warnings: tuple[str, ...] = ()
