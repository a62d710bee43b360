"""Who may send which control to which run."""

from __future__ import annotations

import itertools

import pytest

from harborage.identity import Quadruple
from harborage.runtime.steering import (
    ControlType,
    InvalidScopeError,
    Scope,
    ScopeMismatchError,
    UnknownControlTypeError,
    check_scope,
    required_scope,
)
from tests.kit.tables import each_row

RUN = Quadruple("t", "u", "s", "r")

LEAST = {
    "INJECT_CONTEXT": "session_user",
    "USER_MESSAGE": "session_user",
    "REDIRECT": "owner_user",
    "CANCEL": "owner_user",
    "PAUSE": "owner_user",
    "RESUME": "owner_user",
    "APPROVE": "owner_user",
    "REJECT": "owner_user",
    "PRIORITIZE": "admin",
}


def test_every_control_has_a_least_scope() -> None:
    """The table of least scopes is complete and is exactly this one."""
    assert {each.value: str(required_scope(each)) for each in ControlType} == LEAST


@each_row("unknown", ["", "cancel", "STOP"])
def test_an_unknown_control_has_no_scope(unknown: str) -> None:
    """A type that is not one of the nine has no least scope; case matters."""
    assert required_scope(unknown) is None


@each_row("type, scope", list(itertools.product(ControlType, Scope)))
def test_a_control_is_open_to_its_least_scope_and_those_above(type: ControlType, scope: Scope) -> None:
    """In its own tenant a caller may send what its scope reaches, and nothing more."""
    if scope >= Scope(LEAST[type]):
        check_scope(type, scope, "t", RUN)
        return
    with pytest.raises(ScopeMismatchError) as caught:
        check_scope(type, scope, "t", RUN)
    assert caught.value.required == LEAST[type]
    assert caught.value.presented == scope
    assert LEAST[type] in str(caught.value)


@each_row("tenant", ["other", "", "T"])
@each_row("type, scope", list(itertools.product(ControlType, Scope)))
def test_another_tenant_takes_an_admin(type: ControlType, scope: Scope, tenant: str) -> None:
    """Any tenant but the run's own, the empty one too, may steer it as an administrator only."""
    if scope is Scope.ADMIN:
        check_scope(type, scope, tenant, RUN)
        return
    with pytest.raises(ScopeMismatchError) as caught:
        check_scope(type, scope, tenant, RUN)
    assert caught.value.required == "admin"
    assert "another tenant" in str(caught.value)


def test_the_type_is_judged_before_the_scope() -> None:
    """A wrong type is reported even when scope and tenant are wrong as well."""
    with pytest.raises(UnknownControlTypeError):
        check_scope("STOP", "root", "other", RUN)


@each_row("scope", ["", "root", "Admin", "ADMIN"])
def test_an_invalid_scope_is_not_taken_for_a_weak_one(scope: str) -> None:
    """A scope that is not one of the three is refused before tenants are compared."""
    with pytest.raises(InvalidScopeError):
        check_scope(ControlType.USER_MESSAGE, scope, "other", RUN)


def test_wire_strings_are_as_good_as_members() -> None:
    """Plain strings with the wire values are accepted, and compared by power."""
    check_scope("CANCEL", "admin", "t", RUN)
    with pytest.raises(ScopeMismatchError):
        check_scope("CANCEL", "session_user", "t", RUN)


def test_errors_do_not_repeat_what_the_caller_sent() -> None:
    """Unknown words are not quoted back."""
    with pytest.raises(UnknownControlTypeError) as unknown:
        check_scope("s3cret", "admin", "t", RUN)
    with pytest.raises(InvalidScopeError) as invalid:
        check_scope("CANCEL", "s3cret", "t", RUN)
    assert "s3cret" not in f"{unknown.value}{invalid.value}"
