"""Bodies of the events of tool calls, approvals, sign-ins and MCP servers. Arguments appear only in redacted form."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from harborage.events.event import SafePayload
from harborage.identity import Quadruple


class ToolInvokedPayload(SafePayload, frozen=True):
    """A tool call begins."""

    identity: Quadruple
    tool_name: str
    transport: str
    started_at: datetime


class ToolCompletedPayload(SafePayload, frozen=True):
    """A tool call succeeded after `attempts` attempts."""

    identity: Quadruple
    tool_name: str
    transport: str
    attempts: int
    duration_ms: int


class ToolFailedPayload(SafePayload, frozen=True):
    """A tool call failed for good, though neither by bad arguments nor by running out of attempts."""

    identity: Quadruple
    tool_name: str
    transport: str
    attempts: int
    error_class: str
    error_message: str = ""


class ToolInvalidArgsPayload(SafePayload, frozen=True):
    """The arguments, or the result, did not fit the tool's schema."""

    identity: Quadruple
    tool_name: str
    transport: str
    validation_error: str


class ToolPolicyExhaustedPayload(SafePayload, frozen=True):
    """Every attempt that the tool's policy allows was used up."""

    identity: Quadruple
    tool_name: str
    transport: str
    attempts: int
    last_class: str
    last_error: str = ""


class ToolInterruptedPayload(SafePayload, frozen=True):
    """A tool call whose worker died in it was resolved; `outcome` is `repeated`, `known` or `unknown`.

    `on_unknown` is the way in which that was found out.
    """

    identity: Quadruple
    tool_name: str
    transport: str
    on_unknown: str
    outcome: str


class ToolApprovalRequestedPayload(SafePayload, frozen=True):
    """A gated call waits for a person; `args_summary` is redacted."""

    tool: str
    pause_token: str
    reason: str = ""
    tags: tuple[str, ...] = ()
    args_summary: Any = None


class ToolApprovedPayload(SafePayload, frozen=True):
    """A gated call may run."""

    tool: str
    pause_token: str
    approver_reason: str = ""


class ToolRejectedPayload(SafePayload, frozen=True):
    """A gated call may not run."""

    tool: str
    pause_token: str
    reason: str = ""


class ToolAuthRequiredPayload(SafePayload, frozen=True):
    """A tool's source needs a person to sign in at `authorize_url`."""

    source: str
    source_name: str
    binding_scope: str
    authorize_url: str
    state: str
    pause_token: str
    scopes: tuple[str, ...] = ()


class ToolAuthCompletedPayload(SafePayload, frozen=True):
    """A person signed in for a tool's source."""

    source: str
    binding_scope: str
    state: str
    pause_token: str


class MCPResourceUpdatedPayload(SafePayload, frozen=True):
    """An MCP server reported that a resource changed."""

    identity: Quadruple
    source: str
    uri: str
    occurred_at: datetime


class MCPRawHtmlTrustToggledPayload(SafePayload, frozen=True):
    """An operator decided whether a server's raw HTML is trusted."""

    actor: Quadruple
    server_name: str
    trusted: bool
    occurred_at: datetime
