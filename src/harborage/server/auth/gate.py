"""Who sends a request: the token in its header, the session that it names, and the events of refused tokens.

No log, event or answer holds a token or a part of one.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from starlette._utils import get_route_path

from harborage.clock import SYSTEM_CLOCK, Timer, Timers
from harborage.errors import HarborageError, InvalidOptionError, error_summary
from harborage.events import ANNOUNCED, AuthRejectedPayload, Event, EventError, EventType
from harborage.identity import Identity, Quadruple
from harborage.protocol.errors import Code, ProtocolError
from harborage.protocol.methods import CONTROL_PATH, TokenScope
from harborage.server.auth.tokens import Reason, TokenRejectedError
from harborage.server.http import header_values
from harborage.server.services import Caller

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from starlette.requests import Request

    from harborage.events import Redactor
    from harborage.server.auth.tokens import Validator

EDGE: Final = Quadruple("harbor-auth", "auth-edge", "auth-edge")
"""The principal of refused tokens, whose own is not proven."""
MAX_REJECTED: Final = 10
"""How many refused tokens are published one by one in a second."""

_SCOPES: Final = {scope.value: scope for scope in TokenScope}
_NO_PRINCIPAL: Final = frozenset({Reason.TOKEN_MISSING, Reason.IDENTITY_CLAIM_MISSING})
MAX_NAME_CHARS: Final = 200
"""The most characters of a session's name, and of the other parts of an identity that headers name."""

_CONTROL_CHARACTER: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ACCESS_LOGS: Final = ("uvicorn.access", "hypercorn.access", "gunicorn.access")
_QUERY_TOKEN: Final = re.compile(r"(access_token=)[^&\s\"']+", re.IGNORECASE)
_CONTROLS: Final = CONTROL_PATH.partition("{")[0]


class Gate(Protocol):
    """Verifies requests."""

    async def verify(self, request: Request, *, allows_query: bool = False) -> Caller:
        """Return who sends a request. With `allows_query` a token and a session may stand in its query.

        Raises:
            ProtocolError: `identity_required` or `auth_rejected`.
        """
        ...


class GateMissingError(HarborageError):
    """A server needs gate=; TokenGate(TokenVerifier(FileKeys("keys.json")), …) verifies tokens. NoAuthGate trusts
    everybody, and is for tests alone.
    """


class Announcer(Protocol):
    """Where events of refused tokens are published, such as a bus."""

    def publish_nowait(self, event: Event) -> Event:
        """Publish an event without waiting."""
        ...


class TokenGate:
    """Lets requests in whose bearer token is valid.

    `redactor` hides secrets in the log lines of refused tokens; with `bus` each is an event, too. Tenant and user come
    from the token. The session is that of the header `X-Harbor-Session`, else the token's.
    """

    def __init__(
        self,
        validator: Validator,
        *,
        redactor: Redactor,
        bus: Announcer | None = None,
        clock: Timers = SYSTEM_CLOCK,
        logger: logging.Logger | None = None,
    ) -> None:
        if not hasattr(validator, "verify"):
            raise InvalidOptionError("validator", validator, "what verifies tokens, such as TokenVerifier(keys)")
        self._validator = validator
        self._logger = logging.getLogger("harborage.server.auth") if logger is None else logger
        self._rejections = Rejections(redactor, bus, clock, self._logger)

    async def verify(self, request: Request, *, allows_query: bool = False) -> Caller:
        """Return who sends a request. With `allows_query` a token and a session may stand in its query.

        Raises:
            ProtocolError: `identity_required` or `auth_rejected`; `runtime_error`: the validator is broken.
        """
        try:
            token, asked = _sent(request, allows_query=allows_query)
            found = await self._validator.verify(token)
        except TokenRejectedError as error:
            self._rejections.add(error)
            code = Code.IDENTITY_REQUIRED if error.reason in _NO_PRINCIPAL else Code.AUTH_REJECTED
            raise ProtocolError(code, str(error)) from error
        if not found.tenant or not found.user:
            self._logger.error("%s returned no tenant or no user of a token", type(self._validator).__name__)
            raise ProtocolError(Code.RUNTIME_ERROR, "the server cannot verify tokens; its log says why")
        session = asked or found.session
        if not session:
            raise ProtocolError(
                Code.IDENTITY_REQUIRED, "no session: send X-Harbor-Session, or a token with the claim session"
            )
        _check_length("the session", session)
        return Caller(Identity(found.tenant, found.user, session), known_scopes(found.scopes), found.scopes)

    def close(self) -> None:
        """Publish what was not published yet, and end the timer."""
        self._rejections.close()


class NoAuthGate:
    """Accepts every request under the identity that it names: for tests alone, never where others can reach it.

    The headers `X-Harbor-Tenant`, `-User` and `-Session` name the caller, on the control routes also the body, which
    goes before. Every caller has the scopes given here.
    """

    def __init__(self, scopes: Iterable[TokenScope] = ()) -> None:
        self._scopes = frozenset(scopes)

    async def verify(self, request: Request, *, allows_query: bool = False) -> Caller:
        """Return who a request says that it is from.

        Raises:
            ProtocolError: `identity_required`: its headers leave a part out, where only they count.
        """
        names = [_header(request, f"X-Harbor-{part}") for part in ("Tenant", "User", "Session")]
        if not all(names) and not get_route_path(request.scope).startswith(_CONTROLS):
            raise ProtocolError(
                Code.IDENTITY_REQUIRED, "no identity: send X-Harbor-Tenant, X-Harbor-User and X-Harbor-Session"
            )
        return Caller(Identity(*names), self._scopes, tuple(sorted(self._scopes)), trusts_body=True)


@lru_cache(maxsize=256)
def known_scopes(words: tuple[str, ...]) -> frozenset[TokenScope]:
    """Return the scopes among the words of a token; others mean nothing here."""
    return frozenset(_SCOPES[word] for word in words if word in _SCOPES)


def mask_token(text: str) -> str:
    """Return a line of a log without the token that the query of an address holds."""
    return _QUERY_TOKEN.sub(r"\1***", text) if "access_token=" in text.lower() else text


class TokenMask(logging.Filter):
    """Masks the token in the query of each logged address, in the access log of whatever serves the application."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask a record, and let it pass."""
        if isinstance(record.msg, str):
            record.msg = mask_token(record.msg)
        if isinstance(record.args, tuple):
            record.args = tuple(mask_token(one) if isinstance(one, str) else one for one in record.args)
        return True


_MASK: Final = TokenMask()


def mask_access_logs() -> None:
    """Keep the tokens of streams out of the access logs of servers that programs run the application with."""
    for name in _ACCESS_LOGS:
        logging.getLogger(name).addFilter(_MASK)  # once, however often


def _sent(request: Request, *, allows_query: bool) -> tuple[str, str]:
    """Return the token and the session that a request sends; '' for what it does not.

    Raises:
        TokenRejectedError: it sends two tokens.
        ProtocolError: it names two sessions, or one with control characters.
    """
    session = _header(request, "X-Harbor-Session")
    headers = {one.strip() for one in header_values(request.scope, b"authorization")} - {""}
    if len(headers) > 1:
        raise TokenRejectedError(Reason.TOKEN_MALFORMED)
    if headers:
        scheme, _, token = headers.pop().partition(" ")
        return (token.strip() if scheme.lower() == "bearer" else ""), session
    if not allows_query:
        return "", session
    tokens = set(request.query_params.getlist("access_token"))
    if len(tokens) > 1:
        raise TokenRejectedError(Reason.TOKEN_MALFORMED)
    named = session or _one_value("session", request.query_params.getlist("session"))
    return (tokens.pop().strip() if tokens else ""), named


def _header(request: Request, name: str) -> str:
    """The one value of a header; browsers send Latin-1, other clients UTF-8."""
    values = header_values(request.scope, name.lower().encode())
    return _one_value(name, [_decoded(value) for value in values]) if values else ""


def _decoded(value: str) -> str:
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return value


def _one_value(name: str, values: Sequence[str]) -> str:
    given = {value.strip() for value in values} - {""}
    if len(given) > 1 or any(map(_CONTROL_CHARACTER.search, given)):
        raise ProtocolError(Code.IDENTITY_REQUIRED, f"{name} has two values, or control characters; send one name")
    return _check_length(name, given.pop()) if given else ""


def _check_length(name: str, value: str) -> str:
    if len(value) > MAX_NAME_CHARS:
        raise ProtocolError(Code.IDENTITY_REQUIRED, f"{name} has more than {MAX_NAME_CHARS} characters")
    return value


class Rejections:
    """Tells the log and the bus of refused tokens: ten within any second, the others as one count."""

    def __init__(self, redactor: Redactor, bus: Announcer | None, clock: Timers, logger: logging.Logger) -> None:
        if not hasattr(redactor, "redact"):
            raise InvalidOptionError("redactor", redactor, "what hides secrets, such as PatternRedactor()")
        self._redactor = redactor
        self._bus = bus
        self._clock = clock
        self._logger = logger
        self._told: deque[float] = deque(maxlen=MAX_REJECTED)
        self._untold = 0
        self._timer: Timer | None = None

    def add(self, error: TokenRejectedError) -> None:
        """Tell of one refused token, or count it."""
        now = self._clock.monotonic()
        if len(self._told) == MAX_REJECTED and now - self._told[0] < 1:
            self._untold += 1
            if self._timer is None:
                self._timer = self._clock.call_later(1, self._tell_count)
            return
        self._told.append(now)
        safe = self._redacted(error)
        if safe is None:
            self._logger.warning("token refused: %s", error.reason)
            return
        extra = ANNOUNCED if self._published(safe) else None
        known = {"kid": safe.kid, "iss": safe.issuer, "sub": safe.subject}
        said = ", ".join(f"{name} {value!r}" for name, value in known.items() if value)
        self._logger.warning("token refused: %s%s", error.reason, f" ({said})" if said else "", extra=extra)

    def close(self) -> None:
        """Tell the last count, and end the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._tell_count()

    def _tell_count(self) -> None:
        self._timer = None
        count, self._untold = self._untold, 0
        self._logger.warning("%d more tokens were refused within a second", count)

    def _redacted(self, error: TokenRejectedError) -> AuthRejectedPayload | None:
        """Return what is published of a refused token; None if the redactor fails."""
        try:
            safe: Any = self._redactor.redact({"kid": error.kid, "issuer": error.issuer, "subject": error.subject})
            return AuthRejectedPayload(error.reason, str(safe["kid"]), str(safe["issuer"]), str(safe["subject"]))
        except Exception as failure:  # noqa: BLE001 - whatever a redactor raises, nothing unredacted may pass
            self._logger.error("a refused token is not described: the redactor failed: %s", type(failure).__name__)
            return None

    def _published(self, payload: AuthRejectedPayload) -> bool:
        if self._bus is None:
            return False
        try:
            self._bus.publish_nowait(Event(EventType.AUTH_REJECTED, EDGE, payload))
        except (EventError, OSError, RuntimeError) as failure:
            self._logger.error("auth.rejected was not published: %s", error_summary(failure))
            return False
        return True
