"""For whom a request runs: the identity that its body names, held against the verified one.

Pure. The verified identity has the tenant and user of the token, and the session of the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from harborage.identity import Identity, missing_parts
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import IdentityRule, TokenScope

if TYPE_CHECKING:
    from harborage.protocol.wire.common import IdentityScope, PrincipalParts
    from harborage.server.services import Caller


def check_identity(rule: IdentityRule, asked: IdentityScope, who: Identity) -> None:
    """Accept a body whose identity agrees with the verified one as the method's rule says.

    Raises:
        ProtocolError: `identity_required`: it names another principal.
    """
    match rule:
        case IdentityRule.NOT_READ | IdentityRule.SCOPE_OBJECT:
            return
        case IdentityRule.EXACT:
            if not asked.is_blank and _triple(asked) != who:
                raise _mismatch("fill tenant, user and session with those of the token, or leave all three out")
        case IdentityRule.SAME_USER:
            _check_part("user", asked.user, who.user_id)
            _check_part("session", asked.session, who.session_id)
        case IdentityRule.MATCHING:
            _check_part("tenant", asked.tenant, who.tenant_id)
            _check_part("user", asked.user, who.user_id)
            _check_part("session", asked.session, who.session_id)
        case _ as unreachable:
            assert_never(unreachable)


def _check_part(name: str, asked: str, verified: str) -> None:
    if asked and asked != verified:
        raise _mismatch(f"its {name} is not that of the token and the request's headers; leave it out")


def _mismatch(why: str) -> ProtocolError:
    return ProtocolError(Code.IDENTITY_REQUIRED, f"the body's identity is not the verified one: {why}")


def claimed_identity(headers: Identity, *named: PrincipalParts | IdentityScope | None) -> Identity:
    """Return whom a request is for where nothing is verified: the first that its body names, blanks by its headers.

    Raises:
        ProtocolError: `identity_required`: a part is missing in both.
    """
    body = next((one for one in named if one is not None and (one.tenant or one.user or one.session)), None)
    who = headers
    if body is not None:
        who = Identity(
            body.tenant or headers.tenant_id, body.user or headers.user_id, body.session or headers.session_id
        )
    if missing_parts(who):
        raise ProtocolError(Code.IDENTITY_REQUIRED, "no identity: send tenant, user and session in the body or headers")
    return who


def is_impersonation(asked: IdentityScope) -> bool:
    """Whether a body asks to act as another principal."""
    return asked.actor is not None or asked.requester is not None or asked.impersonating is not None


def check_impersonation(asked: IdentityScope, caller: Caller) -> Identity:
    """Return the principal as whom the caller may act, after every check in its order.

    Raises:
        ProtocolError: `scope_mismatch` or `identity_required`; the first check that fails.
    """
    if not caller.has(TokenScope.ADMIN):
        raise ProtocolError(Code.SCOPE_MISMATCH, "impersonation needs a token with the scope admin")
    target = _complete(asked.impersonating, "impersonating")
    actor = _complete(asked.actor, "actor")
    requester = _complete(asked.requester, "requester")
    if actor != caller.who:
        raise ProtocolError(Code.SCOPE_MISMATCH, "impersonation: actor must be the principal of the token")
    if requester != actor:
        raise ProtocolError(Code.SCOPE_MISMATCH, "impersonation: requester must be the actor")
    if _triple(asked) != target:
        raise ProtocolError(
            Code.IDENTITY_REQUIRED, "impersonation: tenant, user and session must be those of impersonating"
        )
    return target


def _complete(parts: PrincipalParts | None, name: str) -> Identity:
    if parts is None or not (parts.tenant and parts.user and parts.session):
        raise ProtocolError(Code.IDENTITY_REQUIRED, f"impersonation: {name} needs a tenant, a user and a session")
    return Identity(parts.tenant, parts.user, parts.session)


def _triple(asked: IdentityScope) -> Identity:
    return Identity(asked.tenant, asked.user, asked.session)
