"""Who may send which control to a run: the lowest scope for each control, and its check.

Pure. The scope is a claim that the edge has verified before; there is no authentication here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harborage.runtime.steering.controls import ControlType, Scope
from harborage.runtime.steering.errors import InvalidScopeError, ScopeMismatchError, UnknownControlTypeError

if TYPE_CHECKING:
    from harborage.identity import Quadruple

_REQUIRED: dict[str, Scope] = {
    ControlType.INJECT_CONTEXT: Scope.SESSION_USER,
    ControlType.USER_MESSAGE: Scope.SESSION_USER,
    ControlType.REDIRECT: Scope.OWNER_USER,
    ControlType.CANCEL: Scope.OWNER_USER,
    ControlType.PAUSE: Scope.OWNER_USER,
    ControlType.RESUME: Scope.OWNER_USER,
    ControlType.APPROVE: Scope.OWNER_USER,
    ControlType.REJECT: Scope.OWNER_USER,
    ControlType.PRIORITIZE: Scope.ADMIN,
}
_SCOPES: dict[str, Scope] = {scope: scope for scope in Scope}


def required_scope(type: ControlType | str) -> Scope | None:
    """Return the lowest scope that may send a control of this type, or None for a type that is not one of the nine."""
    return _REQUIRED.get(type)


def check_scope(
    type: ControlType | str, caller_scope: Scope | str, caller_tenant: str, run_quadruple: Quadruple
) -> None:
    """Accept a caller who may send this control to this run; another tenant's run takes an admin.

    Raises:
        UnknownControlTypeError, InvalidScopeError, ScopeMismatchError: in this order; an empty tenant is a foreign one.
    """
    required = _REQUIRED.get(type)
    if required is None:
        raise UnknownControlTypeError()
    presented = _SCOPES.get(caller_scope)
    if presented is None:
        raise InvalidScopeError()
    if caller_tenant != run_quadruple.tenant_id and presented is not Scope.ADMIN:
        raise ScopeMismatchError(
            f"steering another tenant's run takes scope {Scope.ADMIN}; the caller has {presented}",
            required=Scope.ADMIN,
            presented=presented,
        )
    if presented < required:
        raise ScopeMismatchError(
            f"{type} takes scope {required}; the caller has {presented}", required=required, presented=presented
        )
