"""The messages of `start` and of the nine controls."""

from __future__ import annotations

from typing import Any

from harborage.protocol.wire.common import Answer, Request


class StartRequest(Request, frozen=True, kw_only=True):
    """Start a run of `agent`, a name or an id, empty for the first one; `query` may be empty."""

    query: str = ""
    description: str = ""
    priority: int = 0
    idempotency_key: str = ""
    input_artifact_ids: tuple[str, ...] = ()
    agent: str = ""


class Started(Answer, frozen=True, kw_only=True):
    """The run's id, which is also that of its task. `reused`: an earlier request with the key had started it."""

    task_id: str
    reused: bool


class ControlRequest(Request, frozen=True, kw_only=True):
    """Send a control to the run that `identity.run` names, in the scope that `identity.scope` asks for."""

    payload: dict[str, Any] | None = None
    event_id: str = ""


class ControlAccepted(Answer, frozen=True, kw_only=True):
    """A control was queued, or was before; events say what becomes of it."""

    accepted: bool = True
    method: str
