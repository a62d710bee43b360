"""Bodies of the events of model calls. Prompts are never quoted; only streamed answers are, piece by piece."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from harborage.events.event import SafePayload, wire_key
from harborage.identity import Quadruple


class LLMCompletionChunkPayload(SafePayload, frozen=True, kw_only=True):
    """One streamed piece of an answer; `kind` is content or reasoning."""

    identity: Quadruple
    task_id: str = ""
    run_id: str = ""
    delta: str = ""
    done: bool = False
    kind: str = "content"
    occurred_at: datetime


class LLMCost(msgspec.Struct, frozen=True, gc=False, rename=wire_key, kw_only=True):
    """What one call cost, in `currency`."""

    input_tokens_cost: float = 0.0
    output_tokens_cost: float = 0.0
    reasoning_tokens_cost: float = 0.0
    total_cost: float = 0.0
    currency: str = "USD"


class LLMUsage(msgspec.Struct, frozen=True, gc=False, rename=wire_key, kw_only=True):
    """What one call used."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    latency_ms: int = 0
    provider_extras: dict[str, Any] | None = None


class LLMCostRecordedPayload(SafePayload, frozen=True, kw_only=True):
    """A provider answered; recorded even when the call was free. `step` is the run's, from 1."""

    identity: Quadruple
    model: str
    cost: LLMCost = LLMCost()
    usage: LLMUsage = LLMUsage()
    context_window_tokens: int = 0
    occurred_at: datetime
    step: int | msgspec.UnsetType = msgspec.UNSET


class LLMContextLeakPayload(SafePayload, frozen=True, kw_only=True):
    """Raw content too big for a prompt reached the model's edge, at `leak_site`; the call failed."""

    identity: Quadruple
    model: str
    leak_site: str
    size_bytes: int
    threshold: int
    occurred_at: datetime


class LLMContextWindowExceededPayload(SafePayload, frozen=True, kw_only=True):
    """The prompt does not fit the model's window; the call failed."""

    identity: Quadruple
    model: str
    estimated_tokens: int
    context_window_tokens: int
    context_window_reserve: float
    occurred_at: datetime


class LLMImageMaterializedPayload(SafePayload, frozen=True, kw_only=True):
    """An inline image was moved to the artifact store."""

    identity: Quadruple
    model: str
    artifact_ref: str
    mime: str
    size_bytes: int
    occurred_at: datetime


class LLMModeDowngradedPayload(SafePayload, frozen=True, kw_only=True):
    """A structured-output mode was given up for a weaker one."""

    identity: Quadruple
    model: str
    from_mode: str
    to_mode: str
    from_: str = ""
    to: str = ""
    reason: str = ""
    occurred_at: datetime


class LLMRetryWithFeedbackPayload(SafePayload, frozen=True, kw_only=True):
    """A validator refused an answer, and the model was asked again."""

    identity: Quadruple
    model: str
    attempt: int
    max_retries: int
    reason: str = ""
    occurred_at: datetime


class LLMPostureReadAdminPayload(SafePayload, frozen=True):
    """An admin read another tenant's model settings."""

    actor: Quadruple
    requested_tenant: str
