"""Which tools of a catalog are gated, and the gates in front of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

from harborage.identity import Quadruple
from harborage.runtime.effects.approval.model import (
    AlwaysApprove,
    AlwaysDeny,
    ApprovalPolicy,
    ApprovalRequest,
    BySideEffect,
    PolicyAnswer,
    Tagged,
)
from harborage.runtime.effects.approval.operator import DENIED, GATED_SINCE, ToolApproval
from harborage.runtime.loop.seam import GatedTools
from harborage.tools.errors import ToolNotFoundError

if TYPE_CHECKING:
    from harborage.clock import Timers
    from harborage.events import EventBus, Redactor
    from harborage.runtime.durable.pauses.coordinator import Coordinator
    from harborage.runtime.effects.approval.gate import ApprovalGate
    from harborage.runtime.effects.approval.grants import Grants
    from harborage.runtime.loop.pauses import Pause
    from harborage.tools import Tool, ToolCatalog

NO_GATE = (
    "the call of {0!r} needs approval since its run started, and the runtime that executes the run has no "
    "policy for it; give it one in Runtime(approvals=…)"
)
_GATED_SINCE = (
    "the call of {0!r} needs approval now and did not when its run started, so it was not made; "
    "start another run, which asks for approval"
)
_ASKS: Final = AlwaysDeny("the tool asks for it")
_CONFIRMS: Final = "a hook asks for it"
_STATIC: Final = (AlwaysApprove, AlwaysDeny, BySideEffect, Tagged)


class _Guard(NamedTuple):
    """A gate, and what is known of it: a policy of the runtime's own says for sure that it never asks of a tool."""

    gate: ApprovalGate
    policy: ApprovalPolicy | None = None

    def may_ask(self, tool: Tool) -> bool:
        """Whether a call of the tool may ever need approval; a custom policy is asked each time.

        The built-in ones answer by the tool's tags and side effects alone, so one question answers it for all calls.
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
    `catalog` a tool whose policy can never ask of it is left out, as the catalog has it at that moment. With `make` a
    tool that says itself which of its calls need approval has a gate of its own, unless it is among the `named`: its
    calls wait when the tool or the gate for all asks. `patterns` are of tools that peers list later, and that ask.
    """

    __slots__ = ("_catalog", "_confirming", "_current", "_for_all", "_make", "_named", "_own", "_patterns", "_version")

    def __init__(
        self,
        named: Mapping[str, ApprovalGate] | None = None,
        *,
        for_all: ApprovalGate | None = None,
        policies: ApprovalPolicy | Mapping[str, ApprovalPolicy] | None = None,
        catalog: ToolCatalog | None = None,
        make: Callable[[ApprovalPolicy], ApprovalGate] | None = None,
        patterns: tuple[str, ...] = (),
    ) -> None:
        self._patterns = patterns
        by_name, policy = (policies, None) if isinstance(policies, Mapping) else ({}, policies)
        self._named = {name: _Guard(gate, by_name.get(name)) for name, gate in ({} if named is None else named).items()}
        self._for_all = None if for_all is None else _Guard(for_all, policy)
        self._catalog = catalog
        self._make = make
        self._confirming: ApprovalGate | None = None
        self._own: dict[str, _Guard] = {}
        self._version = -1
        self._current = GatedTools()

    def __contains__(self, tool: object) -> bool:
        """Whether a call of the tool of this name may need approval now."""
        return tool in self.current()

    @property
    def names(self) -> tuple[str, ...]:
        """The tools that are named one by one."""
        return tuple(self._named)

    @property
    def all(self) -> tuple[ApprovalGate, ...]:
        """Every gate."""
        self.current()
        guards = [*self._named.values(), *self._own.values(), *([] if self._for_all is None else [self._for_all])]
        gates = [guard.gate for guard in guards]
        return tuple(gates if self._confirming is None else [*gates, self._confirming])

    @property
    def confirming(self) -> ApprovalGate | None:
        """The gate at which calls wait that a hook wants confirmed; None where no gate can be made."""
        if self._confirming is None and self._make is not None:
            self._confirming = self._make(_confirms)
        return self._confirming

    def idle_pause(self, key: str) -> Pause | None:
        """The pause for which the call with this key waits, at whichever gate; None while it does anything else."""
        return next((pause for gate in self.all if (pause := gate.idle_pause(key)) is not None), None)

    async def aclose(self) -> None:
        """End the calls that wait at any gate."""
        for gate in self.all:
            await gate.aclose()

    def find(self, tool: str) -> ApprovalGate | None:
        """The gate in front of the tool of this name; None when there is none."""
        self.current()
        guard = self._guard(tool)
        return None if guard is None else guard.gate

    def current(self) -> GatedTools:
        """Which tools are gated as the catalog is now: what a run that starts has recorded."""
        version = 0 if self._catalog is None else self._catalog.version
        if version != self._version:
            self._current, self._version = self._read(), version
        return self._current

    def refusal(self, tool: str, recorded: Container[str], decided: ToolApproval | None = None) -> str:
        """Why a call may not be made that its run, which recorded which tools are gated, makes without asking; empty
        when it may. A tool that was replaced since, or a policy that is new, must not be passed by; an operator has
        `decided` over both."""
        match decided:
            case ToolApproval.DENIED:
                return DENIED.format(tool)
            case ToolApproval.GATED:
                return "" if tool in recorded else GATED_SINCE.format(tool)
            case ToolApproval.AUTO:
                return ""
            case None:
                return _GATED_SINCE.format(tool) if tool in self and tool not in recorded else ""
            case _ as unreachable:
                assert_never(unreachable)

    def check_names(self, may_come: Callable[[str], bool] = lambda _name: False) -> None:
        """Refuse names without a tool: a gate under a misspelt name would guard nothing. `may_come` says of a name that
        its tool may still be listed.

        Raises:
            ToolNotFoundError: the catalog lacks some of the named tools.
        """
        known = () if self._catalog is None else {tool.name for tool in self._catalog.tools}
        unknown = tuple(sorted(name for name in self._named if name not in known and not may_come(name)))
        if unknown:
            listed = ", ".join(unknown)
            text = f"approval policies name unknown tools: {listed}; register them or drop the policy"
            raise ToolNotFoundError(listed, message=text)

    def _guard(self, tool: str) -> _Guard | None:
        return self._named.get(tool) or self._own.get(tool) or self._for_all

    def _read(self) -> GatedTools:
        tools = {tool.name: tool for tool in (() if self._catalog is None else self._catalog.tools)}
        self._own = {name: guard for name in tools if (guard := self._own_guard(name)) is not None}
        unasked = (name for name, tool in tools.items() if (guard := self._guard(name)) and not guard.may_ask(tool))
        if self._for_all is not None:
            return GatedTools(is_all=True, exempt=frozenset(unasked))
        names = frozenset({*self._named, *self._own}).difference(unasked)
        return GatedTools(names=names, patterns=self._patterns)

    def _own_guard(self, name: str) -> _Guard | None:
        """The gate that a tool asks for itself; the one that it has already if it asks for the same."""
        said = self._catalog.resolve(name) if self._catalog is not None and self._make is not None else None
        if said is None or said.approval is None or said.approval == "never" or name in self._named:
            return None
        own = _ASKS if said.approval == "always" else said.approval
        assert self._make is not None
        assert not isinstance(own, str)  # any other word was refused by `tool`
        known, for_all = self._own.get(name), None if self._for_all is None else self._for_all.policy
        if known is not None and isinstance(known.policy, EitherAsks) and known.policy.own is own:
            return known
        policy = EitherAsks(own, for_all)
        return _Guard(self._make(policy), policy)


def _confirms(request: ApprovalRequest) -> PolicyAnswer:
    return True, request.question or _CONFIRMS


class EitherAsks:
    """Calls need approval for which the tool's own policy asks, or that of all tools of its agent."""

    def __init__(self, own: ApprovalPolicy, for_all: ApprovalPolicy | None) -> None:
        self.own = own
        self._policies = [own, *([] if for_all is None else [for_all])]

    async def __call__(self, request: ApprovalRequest) -> PolicyAnswer:
        answer: PolicyAnswer = False
        for policy in self._policies:
            said = policy(request)
            answer = await said if inspect.isawaitable(said) else said
            is_allowed = answer is False or (isinstance(answer, tuple) and answer[:1] == (False,))
            if not is_allowed:
                return answer  # it asks, or it is no answer, which the gate refuses
        return answer


def approval_gates(
    policies: ApprovalPolicy | Mapping[str, ApprovalPolicy] | None,
    catalog: ToolCatalog,
    pauses: Coordinator,
    bus: EventBus,
    redactor: Redactor,
    *,
    ttl: timedelta,
    clock: Timers,
    grants: Grants | None = None,
    patterns: tuple[str, ...] = (),
) -> Gates:
    """The gates of an assembled runtime. One policy is for all tools, a mapping for those it names."""

    def gate(policy: ApprovalPolicy) -> ApprovalGate:
        from harborage.runtime.effects.approval.gate import ApprovalGate

        return ApprovalGate(policy, pauses, bus, redactor, timeout=ttl, clock=clock, grants=grants)

    if policies is None or type(policies) is AlwaysApprove:
        return Gates(catalog=catalog, make=gate, patterns=patterns)
    if isinstance(policies, Mapping):
        named = {name: gate(policy) for name, policy in policies.items()}
        return Gates(named, policies=policies, catalog=catalog, make=gate, patterns=patterns)
    return Gates(for_all=gate(policies), policies=policies, catalog=catalog, make=gate)
