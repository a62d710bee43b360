"""Who a piece of work belongs to: the isolation boundary of everything else.

The triple (tenant, user, session) isolates; the run only labels one execution inside a session. Services take
identity as an argument; the ambient slots here exist for the few that read it and for log lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar

import msgspec

from harborage.errors import HarborageError, names_of


class IdentityError(HarborageError):
    """Identity is missing or incomplete."""


class IdentityIncompleteError(IdentityError):
    """An identity has an empty part. `missing` names the empty parts in order."""

    def __init__(self, missing: tuple[str, ...] = (), message: str = "") -> None:
        self.missing = missing
        super().__init__(message or f"identity incomplete: {_name(missing)}; set every part to a non-empty string")


class IdentityMissingError(IdentityError):
    """No identity is bound in this context; bind one with `harborage.identity.bind` or `bind_run`."""


class IdentityRequiredError(IdentityError):
    """An operation was asked for without a complete identity (tenant, user, session, and run where one is needed)."""


class AdminScopeRequiredError(HarborageError):
    """What is asked for is not the caller's own. `what` names it, `scopes` are those of which it takes one."""

    def __init__(self, what: str = "", scopes: Iterable[str] = ("admin",)) -> None:
        self.what = what
        self.scopes = tuple(sorted(scopes))
        listed = " or ".join(map(repr, self.scopes))
        super().__init__(f"{what} takes the scope {listed}; bind it with `bind_scopes`" if what else "")


class Identity(msgspec.Struct, frozen=True):
    """The triple that isolates: two identities that differ in any part never see each other's data."""

    tenant_id: str
    user_id: str
    session_id: str

    def with_run(self, run_id: str) -> Quadruple:
        """This identity inside one run."""
        return Quadruple(self.tenant_id, self.user_id, self.session_id, run_id)


_WIRE = {"tenant_id": "TenantID", "user_id": "UserID", "session_id": "SessionID", "run_id": "RunID"}


class Quadruple(msgspec.Struct, frozen=True, rename=_WIRE):
    """An identity and the run it acts in; `run_id` may be empty where no run is known."""

    tenant_id: str = ""
    user_id: str = ""
    session_id: str = ""
    run_id: str = ""

    @property
    def identity(self) -> Identity:
        """The triple without the run."""
        return Identity(self.tenant_id, self.user_id, self.session_id)


_TRIPLE = ("tenant_id", "user_id", "session_id")
_QUADRUPLE = (*_TRIPLE, "run_id")


def missing_parts(who: Identity | Quadruple, *, run: bool = False) -> tuple[str, ...]:
    """The names of the empty parts, in order. Only the empty string is missing: white space is a value."""
    return tuple([name for name in (_QUADRUPLE if run else _TRIPLE) if not getattr(who, name)])


def validate(who: Identity | Quadruple) -> None:
    """Accept a complete triple.

    Raises:
        IdentityIncompleteError: a part is empty; the message names it.
    """
    if not (who.tenant_id and who.user_id and who.session_id):
        raise IdentityIncompleteError(missing_parts(who))


def require_triple(who: Identity | Quadruple | None, what: str) -> None:
    """Accept a complete triple for the operation named by `what`.

    Raises:
        IdentityRequiredError: `who` is no identity, or lacks a part; the message names the operation and the part.
    """
    if not isinstance(who, (Identity, Quadruple)):
        raise _no_identity(who, what)
    if not (who.tenant_id and who.user_id and who.session_id):
        raise IdentityRequiredError(f"{what}: identity incomplete: {_name(missing_parts(who))}")


def require_quadruple(who: Quadruple | None, what: str) -> None:
    """Accept a quadruple whose four parts are all set, for the operation named by `what`.

    Raises:
        IdentityRequiredError: `who` is no identity, or lacks a part; the message names the operation and the part.
    """
    if not isinstance(who, (Identity, Quadruple)):
        raise _no_identity(who, what)
    if not (who.run_id and who.tenant_id and who.user_id and who.session_id):
        raise IdentityRequiredError(f"{what}: identity incomplete: {_name(missing_parts(who, run=True))}")


def _no_identity(who: object, what: str) -> IdentityRequiredError:
    if who is None:
        return IdentityRequiredError(f"{what}: identity required, none given")
    such_as = "Identity('tenant', 'user', 'session')"
    return IdentityRequiredError(f"{what}: who={repr(who)[:80]}: expected an identity, such as {such_as}")


_identity: ContextVar[Identity | None] = ContextVar("harborage_identity", default=None)
_quadruple: ContextVar[Quadruple | None] = ContextVar("harborage_quadruple", default=None)
_scopes: ContextVar[frozenset[str]] = ContextVar("harborage_scopes", default=frozenset())


def bind(who: Identity) -> None:
    """Make `who` the ambient identity of this context. On failure the context stays as it was.

    Raises:
        IdentityIncompleteError: a part is empty.
    """
    validate(who)
    _identity.set(who)


def bind_run(who: Identity, run_id: str) -> None:
    """Make (`who`, `run_id`) the ambient quadruple of this context; the identity slot is not touched.

    Raises:
        IdentityIncompleteError: a part or the run id is empty.
    """
    quadruple = who.with_run(run_id)
    missing = missing_parts(quadruple, run=True)
    if missing:
        raise IdentityIncompleteError(missing)
    _quadruple.set(quadruple)


def bind_scopes(scopes: frozenset[str]) -> None:
    """Make `scopes` the verified claims of this context (`admin`, `console:fleet`, …).

    Raises:
        InvalidOptionError: as for `checked_scopes`.
    """
    _scopes.set(checked_scopes(scopes))


def current_identity() -> Identity | None:
    """The ambient identity, or None."""
    return _identity.get()


def current_quadruple() -> Quadruple | None:
    """The ambient quadruple, or None."""
    return _quadruple.get()


def current_scopes() -> frozenset[str]:
    """The verified claims of this context; empty when none were bound."""
    return _scopes.get()


def checked_scopes(scopes: object) -> frozenset[str]:
    """`scopes` as a set of names. One text is none: `"admin"` is in `"no-admin"`, and would count as that scope.

    Raises:
        InvalidOptionError: `scopes` is one text, or holds something that is no text.
    """
    return frozenset(names_of(scopes, "scopes"))


def held_scopes(scopes: frozenset[str] | None) -> frozenset[str]:
    """The verified claims that a call is made with: `scopes`, or without any those of this context.

    Raises:
        InvalidOptionError: as for `checked_scopes`.
    """
    return _scopes.get() if scopes is None else checked_scopes(scopes)


def effective_quadruple() -> Quadruple | None:
    """What most services read: the quadruple slot, else the identity slot with an empty run, else None."""
    quadruple = _quadruple.get()
    if quadruple is not None:
        return quadruple
    who = _identity.get()
    return None if who is None else who.with_run("")


def must_identity() -> Identity:
    """The ambient identity.

    Raises:
        IdentityMissingError: none is bound.
    """
    who = _identity.get()
    if who is None:
        raise IdentityMissingError()
    return who


def must_quadruple() -> Quadruple:
    """The ambient quadruple.

    Raises:
        IdentityMissingError: none is bound.
    """
    quadruple = _quadruple.get()
    if quadruple is None:
        raise IdentityMissingError()
    return quadruple


class bound:  # noqa: N801 - a context manager, written like a function; every run is in two for as long as it lives
    """Make `who` the ambient identity for the block, then restore what was there.

    Without a run the quadruple slot is empty for the block: a run bound further out belongs to another caller.

    Raises, when the block is entered:
        IdentityIncompleteError: a part is empty; nothing is bound.
        InvalidOptionError: as for `checked_scopes`; nothing is bound.
    """

    __slots__ = ("_identity", "_run", "_scopes", "_wanted", "_who")

    def __init__(self, who: Identity | Quadruple, *, scopes: frozenset[str] | None = None) -> None:
        self._who = who
        self._wanted = scopes

    def __enter__(self) -> None:
        who = self._who
        validate(who)
        scopes = None if self._wanted is None else checked_scopes(self._wanted)
        self._identity = _identity.set(who if isinstance(who, Identity) else who.identity)
        self._run = _quadruple.set(who if isinstance(who, Quadruple) and who.run_id else None)
        self._scopes = None if scopes is None else _scopes.set(scopes)

    def __exit__(self, *_: object) -> None:
        if self._scopes is not None:
            _scopes.reset(self._scopes)
        _quadruple.reset(self._run)
        _identity.reset(self._identity)


def _name(missing: tuple[str, ...]) -> str:
    if {"tenant_id", "user_id", "session_id"} <= set(missing):
        return "tenant_id, user_id and session_id are all empty"
    return ", ".join(missing) + (" is empty" if len(missing) == 1 else " are empty")
