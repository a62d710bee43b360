"""Which tools of a catalog are gated, and the gates in front of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from harborage.clock import Timers
from harborage.errors import HarborageError
from harborage.events import EventBus, Redactor
from harborage.identity import Quadruple
from harborage.runtime.approval import (
    AlwaysApprove,
    AlwaysDeny,
    ApprovalGate,
    ApprovalPolicy,
    ApprovalRequest,
    BySideEffect,
    Tagged,
)
from harborage.runtime.pauses import PauseCoordinator
from harborage.tools import Tool, ToolCatalog

__all__ = ["GatedToolUnknownError", "approval_gates"]

_STATIC = (AlwaysApprove, AlwaysDeny, BySideEffect, Tagged)


class GatedToolUnknownError(HarborageError):
    """An approval policy names tools that the catalog does not hold. `names` lists them."""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self.names = names
        super().__init__(f"approval policies name unknown tools: {', '.join(names)}; register them or drop the policy")


def approval_gates(
    policies: ApprovalPolicy | Mapping[str, ApprovalPolicy] | None,
    catalog: ToolCatalog,
    pauses: PauseCoordinator,
    bus: EventBus,
    redactor: Redactor,
    *,
    ttl: timedelta,
    clock: Timers,
) -> dict[str, ApprovalGate]:
    """A gate for each tool whose calls may need approval. One policy is for all tools, a mapping for those it names.

    Raises:
        GatedToolUnknownError: the mapping names a tool that is not in the catalog.
    """
    tools = {tool.name: tool for tool in catalog.tools}
    wanted = _by_tool(policies, tools)
    return {
        name: ApprovalGate(policy, pauses, bus, redactor, timeout=ttl, clock=clock)
        for name, policy in wanted.items()
        if _may_ask(policy, tools[name])
    }


def _by_tool(
    policies: ApprovalPolicy | Mapping[str, ApprovalPolicy] | None, tools: Mapping[str, Tool]
) -> Mapping[str, ApprovalPolicy]:
    if policies is None:
        return {}
    if not isinstance(policies, Mapping):
        return dict.fromkeys(tools, policies)
    unknown = tuple(sorted(name for name in policies if name not in tools))
    if unknown:
        raise GatedToolUnknownError(unknown)
    return policies


def _may_ask(policy: ApprovalPolicy, tool: Tool) -> bool:
    """Whether a call of the tool may ever need approval; a policy of somebody's own is asked each time."""
    if not isinstance(policy, _STATIC):
        return True
    probe = ApprovalRequest(
        tool=tool.name, args=b"", identity=Quadruple(), tags=tool.tags, side_effects=tool.side_effects
    )
    is_required, _ = policy(probe)
    return is_required
