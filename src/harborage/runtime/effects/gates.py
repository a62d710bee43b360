"""Which tools of a catalog are gated, and the gates in front of them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from harborage.identity import Quadruple
from harborage.runtime.effects.approval.model import (
    AlwaysApprove,
    AlwaysDeny,
    ApprovalPolicy,
    ApprovalRequest,
    BySideEffect,
    Tagged,
)
from harborage.runtime.loop.seam import GatedTools
from harborage.tools.errors import ToolNotFoundError

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.events import EventBus, Redactor
    from harborage.runtime.durable.pauses.coordinator import Coordinator
    from harborage.runtime.effects.approval.gate import ApprovalGate
    from harborage.tools import Tool, ToolCatalog

NO_GATE = (
    "the call of {0!r} needs approval since its run started, and the runtime that executes the run has no "
    "policy for it; give it one in Runtime(approvals=…)"
)
_GATED_SINCE = (
    "the call of {0!r} needs approval now and did not when its run started, so it was not made; "
    "start another run, which asks for approval"
)
_STATIC: Final = (AlwaysApprove, AlwaysDeny, BySideEffect, Tagged)


class _Guard(NamedTuple):
    """A gate, and what is known of it: a policy of the runtime's own says for sure that it never asks of a tool."""

    gate: ApprovalGate
    policy: ApprovalPolicy | None = None

    def may_ask(self, tool: Tool) -> bool:
        """Whether a call of the tool may ever need approval; a policy of somebody's own is asked each time.

        The built-in ones answer by the tool's tags and side effects alone, so one question tells it for all calls.
        """
        policy = self.policy
        if not isinstance(policy, _STATIC) or type(policy) not in _STATIC:
            return True  # a class that is derived from one of them answers as it likes
        probe = ApprovalRequest(
            tool=tool.name, args=b"", identity=Quadruple(), tags=tool.tags, side_effects=tool.side_effects
        )
        is_required, _ = policy(probe)
        return is_required


class Gates:
    """The gates in front of tools: one for each tool that a mapping names, or one for all tools.

    The gate for all guards every tool whatever its name, also one that is registered while runs are under way. With a
    `catalog` a tool whose policy can never ask of it is left out, as the catalog has it at that moment.
    """

    __slots__ = ("_catalog", "_current", "_for_all", "_named", "_version")

    def __init__(
        self,
        named: Mapping[str, ApprovalGate] | None = None,
        *,
        for_all: ApprovalGate | None = None,
        policies: ApprovalPolicy | Mapping[str, ApprovalPolicy] | None = None,
        catalog: ToolCatalog | None = None,
    ) -> None:
        by_name, policy = (policies, None) if isinstance(policies, Mapping) else ({}, policies)
        self._named = {name: _Guard(gate, by_name.get(name)) for name, gate in ({} if named is None else named).items()}
        self._for_all = None if for_all is None else _Guard(for_all, policy)
        self._catalog = catalog
        self._version = -1
        self._current = GatedTools()

    def __contains__(self, tool: object) -> bool:
        """Whether a call of the tool of this name may need approval now."""
        return (bool(self._named) or self._for_all is not None) and tool in self.current()

    @property
    def names(self) -> tuple[str, ...]:
        """The tools that are named one by one."""
        return tuple(self._named)

    @property
    def all(self) -> tuple[ApprovalGate, ...]:
        """Every gate."""
        guards = [*self._named.values(), *([] if self._for_all is None else [self._for_all])]
        return tuple(guard.gate for guard in guards)

    def find(self, tool: str) -> ApprovalGate | None:
        """The gate in front of the tool of this name; None when there is none."""
        guard = self._named.get(tool, self._for_all)
        return None if guard is None else guard.gate

    def current(self) -> GatedTools:
        """Which tools are gated as the catalog is now: what a run that starts has recorded."""
        version = 0 if self._catalog is None else self._catalog.version
        if version != self._version:
            self._current, self._version = self._read(), version
        return self._current

    def refusal(self, tool: str, recorded: Container[str]) -> str:
        """Why a call may not be made that its run, which recorded which tools are gated, makes without asking; empty
        when it may. A tool that was replaced since, or a policy that is new, must not be passed by."""
        return _GATED_SINCE.format(tool) if tool in self and tool not in recorded else ""

    def check_names(self) -> None:
        """Refuse names without a tool: a gate under a misspelt name would guard nothing.

        Raises:
            ToolNotFoundError: the catalog lacks some of the named tools.
        """
        known = () if self._catalog is None else {tool.name for tool in self._catalog.tools}
        unknown = tuple(sorted(name for name in self._named if name not in known))
        if unknown:
            listed = ", ".join(unknown)
            text = f"approval policies name unknown tools: {listed}; register them or drop the policy"
            raise ToolNotFoundError(listed, message=text)

    def _read(self) -> GatedTools:
        tools = {tool.name: tool for tool in (() if self._catalog is None else self._catalog.tools)}
        if self._for_all is not None:
            exempt = frozenset(name for name, tool in tools.items() if not self._for_all.may_ask(tool))
            return GatedTools(is_all=True, exempt=exempt)
        names = (name for name, guard in self._named.items() if name not in tools or guard.may_ask(tools[name]))
        return GatedTools(names=frozenset(names))


def approval_gates(
    policies: ApprovalPolicy | Mapping[str, ApprovalPolicy] | None,
    catalog: ToolCatalog,
    pauses: Coordinator,
    bus: EventBus,
    redactor: Redactor,
    *,
    ttl: timedelta,
    clock: Timers,
) -> Gates:
    """The gates of an assembled runtime. One policy is for all tools, a mapping for those it names."""

    def gate(policy: ApprovalPolicy) -> ApprovalGate:
        from harborage.runtime.effects.approval.gate import ApprovalGate

        return ApprovalGate(policy, pauses, bus, redactor, timeout=ttl, clock=clock)

    if policies is None or type(policies) is AlwaysApprove:
        return Gates(catalog=catalog)
    if isinstance(policies, Mapping):
        named = {name: gate(policy) for name, policy in policies.items()}
        return Gates(named, policies=policies, catalog=catalog)
    return Gates(for_all=gate(policies), policies=policies, catalog=catalog)
