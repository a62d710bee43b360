"""Bodies of the events of tool calls, approvals, sign-ins and MCP servers. Arguments appear only in redacted form.

`step` counts from 1; `call_id` is one for each call of a run, the same in all its events. `args` and `result` are JSON
that was redacted when it was encoded, of at most `MAX_VALUE_BYTES`; in place of a larger one stands `args_cut` or
`result_cut`. `masked` says that the redactor replaced something in them. What is unset has no key on the wire.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from harborage.events.event import SafePayload, Triple, wire_key
from harborage.identity import Quadruple

MAX_VALUE_BYTES: Final = 4096
"""The longest arguments or result that an event holds, in bytes of their JSON."""


class CutValue(msgspec.Struct, frozen=True, gc=False, rename=wire_key):
    """What stands for a value that is too large for an event: how it begins, its size, and the artifact that has it."""

    preview: str
    bytes: int
    artifact_id: str | UnsetType = UNSET


class ToolInvokedPayload(SafePayload, frozen=True):
    """A tool call begins."""

    identity: Quadruple
    tool_name: str
    transport: str
    started_at: datetime
    step: int | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    args: msgspec.Raw | UnsetType = UNSET
    args_cut: CutValue | UnsetType = UNSET
    masked: bool | UnsetType = UNSET


class ToolCompletedPayload(SafePayload, frozen=True):
    """A tool call succeeded after `attempts` attempts."""

    identity: Quadruple
    tool_name: str
    transport: str
    attempts: int
    duration_ms: int
    step: int | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    result: msgspec.Raw | UnsetType = UNSET
    result_cut: CutValue | UnsetType = UNSET
    masked: bool | UnsetType = UNSET


class ToolFailedPayload(SafePayload, frozen=True):
    """A tool call failed for good, though neither by bad arguments nor by running out of attempts."""

    identity: Quadruple
    tool_name: str
    transport: str
    attempts: int
    error_class: str
    error_message: str = ""
    step: int | UnsetType = UNSET
    call_id: str | UnsetType = UNSET


class ToolInvalidArgsPayload(SafePayload, frozen=True):
    """The arguments, or the result, did not fit the tool's schema."""

    identity: Quadruple
    tool_name: str
    transport: str
    validation_error: str
    step: int | UnsetType = UNSET
    call_id: str | UnsetType = UNSET


class ToolPolicyExhaustedPayload(SafePayload, frozen=True):
    """Every attempt that the tool's policy allows was used up."""

    identity: Quadruple
    tool_name: str
    transport: str
    attempts: int
    last_class: str
    last_error: str = ""
    step: int | UnsetType = UNSET
    call_id: str | UnsetType = UNSET


class ToolInterruptedPayload(SafePayload, frozen=True):
    """A tool call whose worker died in it was resolved; `outcome` is `repeated`, `known` or `unknown`.

    `on_unknown` is the way in which that was found out.
    """

    identity: Quadruple
    tool_name: str
    transport: str
    on_unknown: str
    outcome: str
    step: int | UnsetType = UNSET
    call_id: str | UnsetType = UNSET


class ToolProgressPayload(SafePayload, frozen=True):
    """How far a tool call is, as the tool says. Only delivered, never stored; the last one of a call always comes."""

    identity: Quadruple
    tool_name: str
    step: int | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    done: float | UnsetType = UNSET
    total: float | UnsetType = UNSET
    message: str | UnsetType = UNSET


class ToolApprovalRequestedPayload(SafePayload, frozen=True):
    """A gated call waits for a person; `args_summary` is redacted."""

    tool: str
    pause_token: str
    reason: str = ""
    tags: tuple[str, ...] = ()
    args_summary: Any = None
    step: int | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    args: msgspec.Raw | UnsetType = UNSET
    args_cut: CutValue | UnsetType = UNSET
    masked: bool | UnsetType = UNSET


class ToolApprovedPayload(SafePayload, frozen=True):
    """A gated call may run."""

    tool: str
    pause_token: str
    approver_reason: str = ""
    step: int | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    by: Triple | UnsetType = UNSET
    event_id: str | UnsetType = UNSET
    edited: bool | UnsetType = UNSET


class ToolRejectedPayload(SafePayload, frozen=True):
    """A gated call may not run."""

    tool: str
    pause_token: str
    reason: str = ""
    step: int | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    by: Triple | UnsetType = UNSET
    event_id: str | UnsetType = UNSET


class ToolAuthRequiredPayload(SafePayload, frozen=True):
    """A tool's source needs a person to sign in at `authorize_url`, or to enter `user_code` at `verification_uri`."""

    source: str
    source_name: str
    binding_scope: str
    authorize_url: str
    state: str
    pause_token: str
    scopes: tuple[str, ...] = ()
    step: int | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    user_code: str | UnsetType = UNSET
    verification_uri: str | UnsetType = UNSET


class ToolAuthCompletedPayload(SafePayload, frozen=True):
    """A person signed in for a tool's source."""

    source: str
    binding_scope: str
    state: str
    pause_token: str
    step: int | UnsetType = UNSET
    call_id: str | UnsetType = UNSET


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
