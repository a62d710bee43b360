"""Which calls need approval: a policy is a callable, sync or async, that decides for one call.

It returns `(required, reason)`, or just whether approval is required. It gets the whole request with the caller's
identity, so one policy may decide differently for each tenant or user. These classes are the usual policies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from harborage.errors import all_of, names_of
from harborage.runtime.approval.model import ApprovalRequest
from harborage.tools.enums import SideEffect

PolicyAnswer: TypeAlias = tuple[bool, str] | bool
ApprovalPolicy: TypeAlias = Callable[[ApprovalRequest], PolicyAnswer | Awaitable[PolicyAnswer]]


class AlwaysDeny:
    """No call runs without a person's approval."""

    def __init__(self, reason: str = "") -> None:
        self._reason = reason or "policy: deny-all"

    def __call__(self, request: ApprovalRequest) -> tuple[bool, str]:
        return True, self._reason


class AlwaysApprove:
    """Every call runs without approval."""

    def __call__(self, request: ApprovalRequest) -> tuple[bool, str]:
        return False, ""


class Tagged:
    """Calls of tools that have at least one of these tags need approval; without any tag none does."""

    def __init__(self, require_tags: Iterable[str], reason: str = "") -> None:
        self._tags = frozenset(names_of(require_tags, "require_tags"))
        self._reason = reason or "policy: tagged"

    def __call__(self, request: ApprovalRequest) -> tuple[bool, str]:
        is_required = not self._tags.isdisjoint(request.tags)
        return is_required, self._reason if is_required else ""


class BySideEffect:
    """Calls of tools with one of these side effects need approval; so does one whose side effect is not known."""

    def __init__(self, classes: Iterable[SideEffect], reason: str = "") -> None:
        self._classes = frozenset(all_of(SideEffect, classes, "classes"))
        self._reason = reason

    def __call__(self, request: ApprovalRequest) -> tuple[bool, str]:
        effect = request.side_effects
        if effect is not None and effect not in self._classes:
            return False, ""
        return True, self._reason or f"policy: side effect {effect or 'unknown'}"
