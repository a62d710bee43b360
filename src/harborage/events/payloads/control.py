"""Bodies of the events of steering, pauses and run overrides."""

from __future__ import annotations

from harborage.events.event import SafePayload
from harborage.identity import Quadruple


class ControlLifecyclePayload(SafePayload, frozen=True):
    """A control was received or applied; `err` is a classified code, never the caller's words."""

    type: str
    outcome: str
    err: str = ""


class ControlRejectedPayload(SafePayload, frozen=True):
    """An inbox refused a control; what the caller sent is not quoted."""

    type: str
    reason: str
    caller_scope: str = ""


class PauseRequestedPayload(SafePayload, frozen=True):
    """A run waits for an answer to a pause."""

    token: str
    reason: str


class PauseResumedPayload(SafePayload, frozen=True):
    """A pause was decided: approve, reject, resume or timeout."""

    token: str
    reason: str
    decision: str


class PausePayloadArtifactRoutedPayload(SafePayload, frozen=True):
    """A pause's payload was too heavy for a list and went to the artifact store."""

    token: str
    artifact_id: str
    payload_bytes: int
    threshold_bytes: int


class RunsOverridesSetPayload(SafePayload, frozen=True):
    """A caller overrode settings for the next message; their names, not their values."""

    actor: Quadruple
    session_id: str
    set_reasoning_effort: bool = False
    set_temperature: bool = False
    set_top_p: bool = False
    set_max_tokens: bool = False
    set_system_prompt: bool = False
