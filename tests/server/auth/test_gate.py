"""Who a request is from, and what is told of tokens that are refused."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from harborage.errors import InvalidOptionError
from harborage.events import Cursor, Event, EventBus, EventType, Filter, MemoryEventBus, PatternRedactor
from harborage.identity import Identity
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import TokenScope
from harborage.protocol.wire.common import Answer, PrincipalParts
from harborage.protocol.wire.common import Request as WireRequest
from harborage.runtime.host import Runtime
from harborage.server.application import Server
from harborage.server.auth.gate import (
    GateMissingError,
    NoAuthGate,
    Rejections,
    TokenGate,
    TokenMask,
    known_scopes,
    mask_token,
)
from harborage.server.auth.keys import StaticKeys
from harborage.server.auth.tokens import Reason, TokenRejectedError, TokenVerifier, Verified
from harborage.server.dispatch import Dispatcher
from harborage.server.services import Call, Caller, Endpoint
from harborage.testing.clock import FakeClock
from tests.kit.redactors import NoopRedactor
from tests.kit.signing import BAD_TOKENS, GOOD, NOW, claims, key_set, segment, token
from tests.kit.tables import each_row
from tests.kit.wire import Wire

LOGGER = "harborage.server.auth"
ANONYMOUS = {"iss": "us", "aud": "harbor", **claims(session=None)}
EVERYTHING = Filter(tenant="harbor-auth", user="auth-edge", session="auth-edge")


def request(*headers: tuple[str, str], path: str = "/v1/tasks/list", query: str = "") -> Request:
    """A request with these headers."""
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": query.encode(), "headers": raw}
    return Request(scope)


def bearer(value: str) -> tuple[str, str]:
    """The header of a token."""
    return ("Authorization", f"Bearer {value}")


def gate(**options: Any) -> TokenGate:
    """A gate that knows the ES256 key `k1`."""
    clock = options.pop("clock", None) or FakeClock(NOW)
    checked = TokenVerifier(StaticKeys(key_set()), issuer="us", audience="harbor", clock=clock)
    return TokenGate(checked, clock=clock, **{"redactor": PatternRedactor(), **options})


async def refused(by: TokenGate | NoAuthGate, sent: Request, **how: bool) -> ProtocolError:
    """The refusal of a request."""
    with pytest.raises(ProtocolError) as raised:
        await by.verify(sent, **how)
    return raised.value


# ── The token ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@each_row(
    "header",
    [f"Bearer {token(GOOD)}", f"bearer {token(GOOD)}", f"BEARER   {token(GOOD)} ", f"  Bearer {token(GOOD)}"],
)
async def test_a_bearer_token_lets_a_request_in(header: str) -> None:
    """However the scheme is spelled, and whatever blanks are around."""
    caller = await gate().verify(request(("Authorization", header)))
    assert caller == Caller(Identity("acme", "ada", "s-1"))


@each_row(
    "headers",
    [
        [],
        [("Authorization", "")],
        [("Authorization", "  ")],
        [("Authorization", "Bearer")],
        [("Authorization", "Bearer ")],
        [("Authorization", token(GOOD))],
        [("Authorization", f"Basic {token(GOOD)}")],
        [("X-Harbor-Tenant", "acme"), ("X-Harbor-User", "ada"), ("X-Harbor-Session", "s-1")],
    ],
)
async def test_a_request_without_a_token_is_refused(headers: list[tuple[str, str]]) -> None:
    """Identity headers prove nothing."""
    error = await refused(gate(), request(*headers))
    assert (error.code, error.status, str(error)) == (Code.IDENTITY_REQUIRED, 401, "jwt rejected: token_missing")


async def test_two_tokens_are_refused() -> None:
    """Which one was meant is not guessed; the same one twice is one."""
    other = token({**GOOD, "user": "ben"})
    error = await refused(gate(), request(bearer(token(GOOD)), bearer(other)))
    assert str(error) == "jwt rejected: token_malformed"
    same = token(GOOD)
    assert (await gate().verify(request(bearer(same), bearer(same)))).who.user_id == "ada"
    error = await refused(gate(), request(query=f"access_token={same}&access_token={other}"), allows_query=True)
    assert str(error) == "jwt rejected: token_malformed"


MISSING = {"token_missing", "identity_claim_missing"}


@each_row("bad, why", BAD_TOKENS.values(), ids=list(BAD_TOKENS))
async def test_each_bad_token_is_answered_with_its_code(bad: str, why: str) -> None:
    """`identity_required` where no principal is said, else `auth_rejected`; both 401."""
    raw = bad.encode().decode("latin-1")
    error = await refused(gate(), request(bearer(raw)))
    code = Code.IDENTITY_REQUIRED if why in MISSING else Code.AUTH_REJECTED
    assert (error.code, error.status, str(error)) == (code, 401, f"jwt rejected: {why}")


@each_row(
    "words, known",
    [
        ((), set()),
        (("admin",), {TokenScope.ADMIN}),
        (("console:fleet", "admin"), set(TokenScope)),
        (("Admin", "root", "admin:all", ""), set()),
        (("write", "admin"), {TokenScope.ADMIN}),
    ],
)
async def test_unknown_scopes_give_nothing_and_are_kept(words: tuple[str, ...], known: set[TokenScope]) -> None:
    """A rotated token has them again."""
    caller = await gate().verify(request(bearer(token({**GOOD, "scopes": list(words)}))))
    assert caller.scopes == known == known_scopes(words)
    assert caller.raw_scopes == tuple(word for word in words if word)


class Broken:
    """A validator that lets everybody in, without saying who it is."""

    def __init__(self, **parts: str) -> None:
        self._verified = Verified(**{"tenant": "", "user": "", **parts})  # type: ignore[arg-type]

    async def verify(self, token: str) -> Verified:
        return self._verified


@each_row("parts", [{}, {"tenant": "acme"}, {"user": "ada"}])
async def test_a_validator_that_names_nobody_is_a_failure_of_the_server(parts: dict[str, str]) -> None:
    """A request never runs without a tenant and a user."""
    error = await refused(TokenGate(Broken(**parts), redactor=PatternRedactor()), request(bearer("x")))
    assert (error.code, error.status) == (Code.RUNTIME_ERROR, 500)


# ── The session ───────────────────────────────────────────────────────────────────────────────────────────────────────


@each_row(
    "payload, header, expected",
    [
        (GOOD, None, "s-1"),
        (GOOD, "", "s-1"),
        (GOOD, "   ", "s-1"),
        (GOOD, "B", "B"),
        (GOOD, "  any name at all ", "any name at all"),
        (GOOD, "é", "é"),
        (GOOD, "日本".encode().decode("latin-1"), "日本"),
        (ANONYMOUS, "B", "B"),
    ],
)
async def test_the_header_names_the_session_else_the_token(
    payload: Mapping[str, Any], header: str | None, expected: str
) -> None:
    """A blank header is none; Latin-1 and UTF-8 are both read."""
    headers = [] if header is None else [("X-Harbor-Session", header)]
    assert (await gate().verify(request(bearer(token(payload)), *headers))).who.session_id == expected


async def test_a_long_session_is_refused_wherever_it_is_named() -> None:
    """200 characters are a name, in the header, in the query of a stream and in the claim; one more is none."""
    longest = "ä" * 200
    sent = request(bearer(token(GOOD)), ("X-Harbor-Session", longest.encode().decode("latin-1")))
    assert (await gate().verify(sent)).who.session_id == longest
    error = await refused(gate(), request(bearer(token({**GOOD, "session": "s" * 201}))))
    assert (error.code, error.status) == (Code.IDENTITY_REQUIRED, 401)


async def test_tenant_and_user_are_those_of_the_token() -> None:
    """No header widens them."""
    sent = request(bearer(token(GOOD)), ("X-Harbor-Tenant", "rival"), ("X-Harbor-User", "eve"))
    assert (await gate().verify(sent)).who == Identity("acme", "ada", "s-1")


@each_row("headers", [[], [("X-Harbor-Session", " ")]])
async def test_without_a_session_a_request_is_refused(headers: list[tuple[str, str]]) -> None:
    """The text says what to send."""
    error = await refused(gate(), request(bearer(token(ANONYMOUS)), *headers))
    assert error.code is Code.IDENTITY_REQUIRED
    assert "send X-Harbor-Session" in str(error)


@each_row(
    "headers",
    [
        [("X-Harbor-Session", "a"), ("X-Harbor-Session", "b")],
        [("X-Harbor-Session", "a\x01b")],
        [("X-Harbor-Session", "s" * 201)],
    ],
)
async def test_a_session_that_is_no_one_name_is_refused(headers: list[tuple[str, str]]) -> None:
    """Two names, control characters, or more than 200 of any."""
    error = await refused(gate(), request(bearer(token(GOOD)), *headers))
    assert error.code is Code.IDENTITY_REQUIRED
    assert "X-Harbor-Session" in str(error)


@each_row(
    "headers, query, expected",
    [
        ([], f"access_token={token(GOOD)}", "ada/s-1"),
        ([], f"access_token={token(GOOD)}&session=B", "ada/B"),
        ([], f"access_token={token(GOOD)}&session=", "ada/s-1"),
        ([("X-Harbor-Session", "C")], f"access_token={token(GOOD)}&session=B", "ada/C"),
        ([("Authorization", " ")], f"access_token={token(GOOD)}", "ada/s-1"),
        ([bearer(token(GOOD))], f"access_token={token({**GOOD, 'user': 'ben'})}&session=B", "ada/s-1"),
        ([bearer(token(GOOD))], "access_token=rubbish&session=B", "ada/s-1"),
    ],
)
async def test_a_stream_may_have_its_token_in_the_query(
    headers: list[tuple[str, str]], query: str, expected: str
) -> None:
    """Browsers send no headers with a stream; where there is one, it counts alone."""
    who = (await gate().verify(request(*headers, query=query), allows_query=True)).who
    assert f"{who.user_id}/{who.session_id}" == expected


async def test_a_bad_header_is_not_saved_by_the_query() -> None:
    """A header wins outright, also `Bearer` alone."""
    query = f"access_token={token(GOOD)}"
    for header in ("Bearer", "Bearer x", "Basic x"):
        await refused(gate(), request(("Authorization", header), query=query), allows_query=True)


async def test_other_routes_do_not_read_the_query() -> None:
    """A token in an address would stand in histories and logs."""
    error = await refused(gate(), request(query=f"access_token={token(GOOD)}&session=B"))
    assert str(error) == "jwt rejected: token_missing"
    caller = await gate().verify(request(bearer(token(GOOD)), query="session=B"))
    assert caller.who.session_id == "s-1"


# ── What is told of refused tokens ────────────────────────────────────────────────────────────────────────────────────


async def events_of(bus: EventBus) -> list[Event]:
    """What the bus keeps."""
    return await bus.replay(Cursor(0), EVERYTHING)


async def test_a_refused_token_is_an_event_and_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Under the principal of the edge, with the reason and what the token says of itself."""
    bus = MemoryEventBus(redactor=PatternRedactor())
    bad = token({**GOOD, "exp": 1})
    with caplog.at_level(logging.WARNING, LOGGER):
        await refused(gate(bus=bus), request(bearer(bad)))
    [event] = await events_of(bus)
    assert event.type == EventType.AUTH_REJECTED
    assert msgspec.json.decode(msgspec.json.encode(event.payload)) == {
        "Reason": "token_expired",
        "KID": "k1",
        "Issuer": "us",
        "Subject": "ada@acme",
    }
    [record] = caplog.records
    assert record.getMessage() == "token refused: token_expired (kid 'k1', iss 'us', sub 'ada@acme')"
    assert record.levelname == "WARNING"
    await bus.aclose()


async def test_what_a_token_says_of_itself_is_redacted(caplog: pytest.LogCaptureFixture) -> None:
    """In the event and in the log."""
    bus = MemoryEventBus(redactor=NoopRedactor())
    bad = token({**GOOD, "exp": 1, "sub": "Bearer abcdefgh", "iss": "us"})
    await refused(gate(bus=bus), request(bearer(bad)))
    [event] = await events_of(bus)
    assert getattr(event.payload, "subject", "") == "Bearer ***"
    assert "abcdefgh" not in caplog.text
    await bus.aclose()


class Failing:
    """A redactor that fails, and quotes what it was given."""

    def redact(self, value: Any) -> Any:
        raise ValueError(f"cannot redact {value}")


async def test_with_a_failing_redactor_only_the_reason_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """And nothing is published."""
    bus = MemoryEventBus(redactor=PatternRedactor())
    await refused(gate(bus=bus, redactor=Failing()), request(bearer(token({**GOOD, "exp": 1}))))
    assert await events_of(bus) == []
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "token refused: token_expired"
    ]
    assert "ada@acme" not in caplog.text
    assert "k1" not in caplog.text
    await bus.aclose()


async def test_a_closed_bus_does_not_change_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    """The log says that the event is missing."""
    bus = MemoryEventBus(redactor=PatternRedactor())
    await bus.aclose()
    error = await refused(gate(bus=bus), request(bearer(token({**GOOD, "exp": 1}))))
    assert error.code is Code.AUTH_REJECTED
    assert "auth.rejected was not published: BusClosedError" in caplog.text


async def test_at_most_ten_refused_tokens_a_second_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """The others are one count a second, so that strangers can neither flood the log nor push events out of it."""
    bus, clock = MemoryEventBus(redactor=PatternRedactor()), FakeClock(NOW)
    logger = logging.getLogger(LOGGER)
    rejections = Rejections(PatternRedactor(), bus, clock, logger)
    for _ in range(6):
        rejections.add(TokenRejectedError(Reason.TOKEN_MALFORMED))
    clock.advance(0.5)
    for _ in range(20):
        rejections.add(TokenRejectedError(Reason.TOKEN_MALFORMED))
    assert len(await events_of(bus)) == len(caplog.records) == 10
    clock.advance(0.5)  # the first six are a second old, the next four are not
    for _ in range(20):
        rejections.add(TokenRejectedError(Reason.TOKEN_MALFORMED))
    assert len(await events_of(bus)) == 16
    caplog.clear()
    clock.advance(0.5)
    assert [record.getMessage() for record in caplog.records] == ["30 more tokens were refused within a second"]
    clock.advance(60)
    assert len(caplog.records) == 1
    assert clock.armed == 0
    await bus.aclose()


async def test_a_gate_that_closes_tells_its_last_count(caplog: pytest.LogCaptureFixture) -> None:
    """And leaves no timer."""
    clock = FakeClock(NOW)
    closing = gate(clock=clock)
    for _ in range(12):
        await refused(closing, request())
    caplog.clear()
    closing.close()
    closing.close()
    assert [record.getMessage() for record in caplog.records] == ["2 more tokens were refused within a second"]
    assert clock.armed == 0


class WhoAsks(Answer, frozen=True, kw_only=True):
    """Whom the call ran for."""

    who: tuple[str, ...]
    scopes: tuple[str, ...]


class Scoped(WireRequest, frozen=True, kw_only=True):
    """A request with a scope object, as those of artifacts."""

    scope: PrincipalParts = PrincipalParts()


async def who_asks(call: Call, _: WireRequest) -> WhoAsks:
    """Answer who asks."""
    who = call.who
    return WhoAsks(who=(who.tenant_id, who.user_id, who.session_id), scopes=tuple(sorted(call.caller.scopes)))


def answering(server: Server, by: TokenGate | NoAuthGate) -> Wire:
    """A client of a few methods behind a gate."""
    names = ("tasks.list", "start", "runtime.info", "search.query")
    table = {name: Endpoint(WireRequest, WhoAsks, who_asks) for name in names}
    table["artifacts.list"] = Endpoint(Scoped, WhoAsks, who_asks)
    return Wire(Dispatcher(server.services, by, table))


async def test_no_token_is_in_a_log_an_event_or_an_answer(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """None of the bad ones, nor any part of them."""
    caplog.set_level(logging.DEBUG)
    bus = server.services.parts.bus
    for name, (bad, _) in BAD_TOKENS.items():
        clock = FakeClock(NOW)
        wire = answering(server, gate(clock=clock, bus=bus))
        caplog.clear()
        reply = await wire.post(
            "tasks.list", {}, who=None, headers={"authorization": f"Bearer {bad.encode().decode('latin-1')}"}
        )
        assert reply.status == 401, name
        events = b"".join(msgspec.json.encode(event.payload) for event in await events_of(bus))
        told = f"{reply.body.decode()}{reply.headers}{caplog.text}{events.decode()}"
        for part in filter(lambda one: len(one) > 8, bad.split(".")):
            assert part not in told, name


@each_row(
    "line, masked",
    [
        ("GET /v1/events?access_token=eyJ.a-b_c.d&session=B", "GET /v1/events?access_token=***&session=B"),
        ("/v1/events?type=x&Access_Token=eyJ HTTP/1.1", "/v1/events?type=x&Access_Token=*** HTTP/1.1"),
        ('"GET /v1/events?access_token=eyJ"', '"GET /v1/events?access_token=***"'),
        ("GET /v1/events?session=B", "GET /v1/events?session=B"),
    ],
)
def test_the_access_log_shows_no_token(line: str, masked: str) -> None:
    """Neither in a line nor among the values that a line is made of."""
    assert mask_token(line) == masked
    record = logging.LogRecord("uvicorn.access", logging.INFO, "", 1, '%s - "%s" %d', ("127.0.0.1", line, 200), None)
    assert TokenMask().filter(record)
    assert record.getMessage() == f'127.0.0.1 - "{masked}" 200'
    record = logging.LogRecord("uvicorn.access", logging.INFO, "", 1, line, None, None)
    assert TokenMask().filter(record)
    assert record.getMessage() == masked


# ── How a gate is made ────────────────────────────────────────────────────────────────────────────────────────────────


@each_row(
    "make, fix",
    [
        (lambda: TokenGate(None, redactor=PatternRedactor()), r"TokenVerifier\(keys\)"),
        (lambda: gate(redactor=None), r"PatternRedactor\(\)"),
        (lambda: TokenVerifier(None), "FileKeys"),
    ],
)
def test_a_gate_needs_keys_and_a_redactor(make: Any, fix: str) -> None:
    """The error names what to give."""
    with pytest.raises(InvalidOptionError, match=fix):
        make()


async def test_a_server_without_a_gate_does_not_start(runtime: Runtime) -> None:
    """There is no default that would let everybody in."""
    with pytest.raises(GateMissingError, match="TokenGate"):
        Server(runtime)


# ── Without authentication, in tests ──────────────────────────────────────────────────────────────────────────────────

FULL = {"x-harbor-tenant": "acme", "x-harbor-user": "ada", "x-harbor-session": "s-1"}
BODY = {"tenant": "t", "user": "u", "session": "s"}


@each_row(
    "method, body, headers, expected",
    [
        ("start", {"identity": BODY}, {}, ["t", "u", "s"]),
        ("start", {"identity": BODY}, FULL, ["t", "u", "s"]),
        ("start", {}, FULL, ["acme", "ada", "s-1"]),
        ("runtime.info", {"identity": BODY}, {}, ["t", "u", "s"]),
        ("runtime.info", {"identity": {"session": "x"}}, FULL, ["acme", "ada", "x"]),
        ("artifacts.list", {"scope": BODY}, {}, ["t", "u", "s"]),
        ("search.query", {}, FULL, ["acme", "ada", "s-1"]),
        ("tasks.list", {"identity": BODY}, FULL, ["acme", "ada", "s-1"]),
        ("tasks.list", {"identity": BODY}, {}, None),
        ("start", {}, {}, None),
        ("start", {"identity": {"tenant": "t"}}, {}, None),
        ("tasks.list", {}, {**FULL, "x-harbor-user": " "}, None),
    ],
)
async def test_without_authentication_the_body_or_the_headers_name_the_caller(
    server: Server, method: str, body: dict[str, Any], headers: dict[str, str], expected: list[str] | None
) -> None:
    """On control routes the body goes before, elsewhere the headers count alone."""
    reply = await answering(server, NoAuthGate()).post(method, body, who=None, headers=headers)
    if expected is None:
        assert (reply.status, reply.code) == (401, "identity_required")
    else:
        assert (reply.status, reply.json["who"], reply.json["scopes"]) == (200, expected, [])


async def test_without_authentication_scopes_are_those_of_the_gate(server: Server) -> None:
    """No request can give itself one."""
    wire = answering(server, NoAuthGate([TokenScope.ADMIN]))
    assert (await wire.post("start", {"identity": BODY}, who=None)).json["scopes"] == ["admin"]
    with pytest.raises(ProtocolError, match="X-Harbor-Tenant"):
        await NoAuthGate().verify(request(path="/v1/events"), allows_query=True)


def test_the_parts_of_a_token_are_long_enough_to_be_looked_for() -> None:
    """So that the search for them in logs means something."""
    assert len(segment(GOOD)) > 100
