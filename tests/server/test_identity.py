"""For whom a request runs: what a body may say, and the order in which an impersonation is checked."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from harborage.events import Cursor, EventType, Filter, RedactionFailedError
from harborage.identity import Identity
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import IdentityRule, TokenScope
from harborage.protocol.wire.common import Answer, IdentityScope, PrincipalParts
from harborage.protocol.wire.common import Request as WireRequest
from harborage.server.application import Server
from harborage.server.dispatch import Dispatcher
from harborage.server.identity import check_identity, check_impersonation, claimed_identity, is_impersonation
from harborage.server.services import Call, Caller, Endpoint
from tests.kit.tables import each_row
from tests.kit.wire import ADA, BEN, HeaderGate, Wire

BLANK = Identity("", "", "")


def parts(who: Identity) -> dict[str, str]:
    """A principal as a body spells it."""
    return {"tenant": who.tenant_id, "user": who.user_id, "session": who.session_id}


def asked(**fields: Any) -> IdentityScope:
    """The identity of a body."""
    return msgspec.convert(fields, IdentityScope)


# ── What a body may say ───────────────────────────────────────────────────────────────────────────────────────────────

VARIANTS: dict[str, dict[str, str]] = {
    "blank": {},
    "same": parts(ADA),
    "tenant": {"tenant": ADA.tenant_id},
    "user": {"user": ADA.user_id},
    "session": {"session": ADA.session_id},
    "two": {"tenant": ADA.tenant_id, "user": ADA.user_id},
    "other tenant": {**parts(ADA), "tenant": "rival"},
    "other user": {**parts(ADA), "user": "ben"},
    "other session": {**parts(ADA), "session": "s-9"},
    "blanks around": {**parts(ADA), "user": " ada "},
}
ACCEPTED = {
    IdentityRule.EXACT: {"blank", "same"},
    IdentityRule.SAME_USER: {"blank", "same", "tenant", "user", "session", "two", "other tenant"},
    IdentityRule.MATCHING: {"blank", "same", "tenant", "user", "session", "two"},
    IdentityRule.NOT_READ: set(VARIANTS),
    IdentityRule.SCOPE_OBJECT: set(VARIANTS),
}


@each_row("rule, name", [(rule, name) for rule in IdentityRule for name in VARIANTS])
def test_each_rule_accepts_what_agrees_with_the_verified_principal(rule: IdentityRule, name: str) -> None:
    """Every rule against every way to fill the three parts."""
    body = asked(**VARIANTS[name])
    if name in ACCEPTED[rule]:
        check_identity(rule, body, ADA)
        return
    with pytest.raises(ProtocolError) as raised:
        check_identity(rule, body, ADA)
    assert raised.value.code is Code.IDENTITY_REQUIRED
    for value in ("rival", "ben", "s-9", "acme"):
        assert value not in str(raised.value)


@each_row(
    "headers, named, expected",
    [
        (BLANK, [parts(ADA)], ADA),
        (ADA, [{}], ADA),
        (ADA, [{}, None], ADA),
        (ADA, [parts(BEN)], BEN),
        (ADA, [{"session": "x"}], Identity("acme", "ada", "x")),
        (ADA, [{}, parts(BEN)], BEN),
        (ADA, [parts(BEN), parts(ADA)], BEN),
        (BLANK, [{}], None),
        (BLANK, [{"tenant": "acme", "user": "ada"}], None),
        (Identity("", "ada", "s"), [{"session": "x"}], None),
    ],
)
def test_where_nothing_is_verified_the_body_goes_before_the_headers(
    headers: Identity, named: list[Mapping[str, str] | None], expected: Identity | None
) -> None:
    """A part that both leave out is required."""
    bodies = [None if one is None else msgspec.convert(one, PrincipalParts) for one in named]
    if expected is not None:
        assert claimed_identity(headers, *bodies) == expected
        return
    with pytest.raises(ProtocolError) as raised:
        claimed_identity(headers, *bodies)
    assert raised.value.code is Code.IDENTITY_REQUIRED


# ── Impersonation ─────────────────────────────────────────────────────────────────────────────────────────────────────

TARGET = Identity("rival", "eve", "s-3")
GOOD = {**parts(TARGET), "actor": parts(ADA), "requester": parts(ADA), "impersonating": parts(TARGET)}
ADMIN = ("admin",)
LACKING = {"tenant": "rival", "user": "eve"}

# Each body breaks the check of its row and every one below it.
ORDER = [
    ((), {"impersonating": LACKING}, "scope_mismatch", "needs a token with the scope admin"),
    (("console:fleet",), {"impersonating": LACKING}, "scope_mismatch", "needs a token with the scope admin"),
    (ADMIN, {"actor": LACKING}, "identity_required", "impersonating needs"),
    (ADMIN, {"impersonating": LACKING, "actor": LACKING}, "identity_required", "impersonating needs"),
    (ADMIN, {"impersonating": parts(TARGET)}, "identity_required", "actor needs"),
    (ADMIN, {"impersonating": parts(TARGET), "actor": LACKING}, "identity_required", "actor needs"),
    (ADMIN, {"impersonating": parts(TARGET), "actor": parts(BEN)}, "identity_required", "requester needs"),
    (
        ADMIN,
        {"impersonating": parts(TARGET), "actor": parts(BEN), "requester": LACKING},
        "identity_required",
        "requester needs",
    ),
    (
        ADMIN,
        {"impersonating": parts(TARGET), "actor": parts(BEN), "requester": parts(TARGET)},
        "scope_mismatch",
        "actor must be the principal of the token",
    ),
    (
        ADMIN,
        {"impersonating": parts(TARGET), "actor": parts(ADA), "requester": parts(BEN)},
        "scope_mismatch",
        "requester must be the actor",
    ),
    (
        ADMIN,
        {"impersonating": parts(TARGET), "actor": parts(ADA), "requester": parts(ADA)},
        "identity_required",
        "must be those of impersonating",
    ),
    (ADMIN, {**GOOD, **parts(ADA)}, "identity_required", "must be those of impersonating"),
    (ADMIN, {**GOOD, "session": ""}, "identity_required", "must be those of impersonating"),
]


@each_row("scopes, body, code, why", ORDER)
def test_an_impersonation_is_checked_in_one_order(
    scopes: tuple[str, ...], body: dict[str, Any], code: str, why: str
) -> None:
    """Scope, target, actor, requester, and then whether they agree."""
    caller = Caller(ADA, frozenset(map(TokenScope, scopes)), scopes)
    assert is_impersonation(asked(**body))
    with pytest.raises(ProtocolError, match=why) as raised:
        check_impersonation(asked(**body), caller)
    assert raised.value.code == code


def test_any_of_the_three_objects_is_an_impersonation() -> None:
    """The triple alone is none."""
    assert not is_impersonation(asked(**parts(TARGET)))
    for name in ("actor", "requester", "impersonating"):
        assert is_impersonation(asked(**{name: {}}))


class Ran(Answer, frozen=True, kw_only=True):
    """For whom a call ran, and who made it."""

    who: str
    actor: str


async def run(call: Call, _: WireRequest) -> Ran:
    """Answer for whom the call runs."""
    return Ran(who=call.who.user_id, actor=call.actor.user_id if call.actor else "")


async def fail(_: Call, __: WireRequest) -> Ran:
    """Fail after all checks."""
    raise ProtocolError(Code.NOT_FOUND, "no such run")


@pytest.fixture
def wire(server: Server) -> Wire:
    """A client of a dispatcher with controls, of which one fails, and a family."""
    table = {name: Endpoint(WireRequest, Ran, run) for name in ("start", "cancel", "sessions.list", "runtime.info")}
    table["resume"] = Endpoint(WireRequest, Ran, fail)
    return Wire(Dispatcher(server.services, HeaderGate(), table))


async def audits(server: Server, who: Identity) -> list[bytes]:
    """The audits that a principal's session has."""
    seen = Filter(tenant=who.tenant_id, user=who.user_id, session=who.session_id)
    events = await server.services.parts.bus.replay(Cursor(0), seen)
    return [
        msgspec.json.encode(getattr(one.payload, "data", one.payload))
        for one in events
        if one.type == EventType.AUDIT_ADMIN_SCOPE_USED
    ]


@pytest.mark.parametrize("method", ["start", "cancel"])
async def test_an_admin_acts_as_another_principal(wire: Wire, server: Server, method: str) -> None:
    """The call runs as that principal, whose session has the audit: actor, requester, target, reason, method."""
    reply = await wire.post(method, {"identity": GOOD}, scopes=ADMIN)
    assert (reply.status, reply.json["who"], reply.json["actor"]) == (200, "eve", "ada")
    [audit] = await audits(server, TARGET)
    principal = {"Tenant": "acme", "User": "ada", "Session": "s-1"}
    assert msgspec.json.decode(audit) == {
        "Actor": principal,
        "Requester": principal,
        "Impersonating": {"Tenant": "rival", "User": "eve", "Session": "s-3"},
        "Method": method,
        "Reason": "impersonation",
    }
    assert await audits(server, ADA) == []


@each_row("scopes, body, code, why", ORDER)
async def test_a_refused_impersonation_is_answered_and_does_nothing(
    wire: Wire, server: Server, scopes: tuple[str, ...], body: dict[str, Any], code: str, why: str
) -> None:
    """With the code of its first check, and without an audit."""
    reply = await wire.post("start", {"identity": body}, scopes=scopes)
    assert (reply.status, reply.code) == (403 if code == "scope_mismatch" else 401, code)
    assert why in reply.json["message"]
    assert await audits(server, TARGET) == []


async def test_the_session_of_the_header_is_the_actors(wire: Wire) -> None:
    """The actor is the principal of the request, not of the token's claim."""
    actor = {**parts(ADA), "session": "s-9"}
    body = {"identity": {**GOOD, "actor": actor, "requester": actor}}
    assert (await wire.post("start", body, scopes=ADMIN)).code == "scope_mismatch"
    reply = await wire.post("start", body, scopes=ADMIN, headers={"x-harbor-session": "s-9"})
    assert (reply.status, reply.json["who"]) == (200, "eve")


async def test_families_know_no_impersonation(wire: Wire) -> None:
    """The objects are known fields and mean nothing there."""
    body = {"identity": {"actor": parts(BEN), "impersonating": parts(TARGET)}}
    for method in ("sessions.list", "runtime.info"):
        reply = await wire.post(method, body, scopes=ADMIN)
        assert (reply.status, reply.json["who"], reply.json["actor"]) == (200, "ada", "")


async def test_a_call_that_fails_is_not_audited_as_done(wire: Wire, server: Server) -> None:
    """The audit says what was done as another."""
    reply = await wire.post("resume", {"identity": GOOD}, scopes=ADMIN)
    assert (reply.status, reply.code) == (404, "not_found")
    assert await audits(server, TARGET) == []


@pytest.mark.parametrize("failure", [OSError("the disk is full"), RedactionFailedError("no"), KeyError("x")])
async def test_an_audit_that_fails_after_the_call_is_logged(
    wire: Wire,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
) -> None:
    """The action is done, so the client reads that it is."""

    async def refuse(_: object) -> None:
        raise failure

    monkeypatch.setattr(server.services.parts.bus, "publish", refuse)
    with caplog.at_level(logging.ERROR):
        reply = await wire.post("start", {"identity": GOOD}, scopes=ADMIN)
    assert (reply.status, reply.json["who"]) == (200, "eve")
    assert "the audit of an impersonation was not published" in caplog.text
