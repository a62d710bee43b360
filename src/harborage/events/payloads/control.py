"""Bodies of the events of steering, pauses and run overrides.

`by` is the principal who sent a control, unset where a deadline or the runtime itself did; `event_id` is the control's.
What is unset has no key on the wire.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import UNSET, UnsetType

from harborage.events.event import SafePayload, Triple
from harborage.identity import Quadruple


class ControlLifecyclePayload(SafePayload, frozen=True):
    """A control was received or applied; `err` is a classified code, never the caller's words.

    `step` is the one before which it was applied, from 1.
    """

    type: str
    outcome: str
    err: str = ""
    by: Triple | UnsetType = UNSET
    event_id: str | UnsetType = UNSET
    step: int | UnsetType = UNSET


class ControlRejectedPayload(SafePayload, frozen=True):
    """An inbox refused a control; what the caller sent is not quoted."""

    type: str
    reason: str
    caller_scope: str = ""
    by: Triple | UnsetType = UNSET
    event_id: str | UnsetType = UNSET


class PauseRequestedPayload(SafePayload, frozen=True):
    """A run waits for an answer to a pause.

    `deadline` resolves it with `default`; `approvers` may answer it, such as `user:ada`. `step` and `call_id` are those
    of the call that waits.
    """

    token: str
    reason: str
    step: int | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    deadline: datetime | UnsetType = UNSET
    default: str | UnsetType = UNSET
    approvers: tuple[str, ...] | UnsetType = UNSET


class PauseResumedPayload(SafePayload, frozen=True):
    """A pause was decided: approve, reject, resume or timeout."""

    token: str
    reason: str
    decision: str
    by: Triple | UnsetType = UNSET
    event_id: str | UnsetType = UNSET


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
