"""The messages of `start` and of the nine controls."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from harborage.protocol.wire.common import Answer, Request


class StartLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may take at most, all runs that it starts included; `usd` are US dollars. What the operator set for
    the agent stays, where that is less."""

    steps: int | None = None
    calls: int | None = None
    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None


class EarlierMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message of what was said before a run: a text, or a call of a `tool` with its `args` as JSON."""

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    tool: str = ""
    args: str = ""


class StartRequest(Request, frozen=True, kw_only=True):
    """Start a run of `agent`, a name or an id, empty for the first one; `query` may be empty.

    The keys from `limits` on are additions: `tags` are names and values by which the run is found, `messages` what was
    said before it.
    """

    query: str = ""
    description: str = ""
    priority: int = 0
    idempotency_key: str = ""
    input_artifact_ids: tuple[str, ...] = ()
    agent: str = ""
    limits: StartLimits = StartLimits()
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    messages: tuple[EarlierMessage, ...] = ()


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
